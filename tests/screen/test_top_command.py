"""`coldplate top` as a command, and its live picture in a real pseudo-terminal."""

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.screen.agents import canned, serving

QUICK = ["--interval", "100ms"]
IDLE = [*QUICK, "--scenario", "idle"]


def top(*arguments: str, status: int = 0) -> str:
    ended = warm.command(["top", *arguments])
    assert ended.status == status, ended.error.decode()
    return ended.output.decode()


def refused(*arguments: str) -> str:
    ended = warm.command(["top", *arguments])
    assert (ended.status, ended.output) == (2, b""), ended
    lines = ended.error.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_json_and_csv_of_a_node_that_is_sampled_by_the_command_itself() -> None:
    (node,) = json.loads(top("--json", *IDLE))["nodes"]
    assert node["unjudged"] == "not all rules have been evaluated yet"
    assert (node["origin"], node["synthetic"], node["problem"], node["alerts"]) == ("sampled here", "idle", None, [])
    assert [gpu["gpu"] for gpu in node["gpus"]] == list("01234567")
    gpu = node["gpus"][0]
    # The ledger counts once a second.
    assert (gpu["up"], gpu["state"], gpu["utilization_ratio"]) == (True, None, 0.0)
    assert gpu["nvlink_bytes_per_second"] is not None
    assert gpu["driver_version"] and set(gpu["ecc_errors"]) == {"corrected", "uncorrected"}
    assert all(gpu["processes"] in ([], None) for gpu in node["gpus"])  # None until the driver was first asked
    rows = list(csv.DictReader(io.StringIO(top("--csv", *IDLE))))
    assert [row["gpu"] for row in rows] == list("01234567")
    assert rows[0]["utilization_ratio"] == "0.0"
    assert rows[0]["job"] == ""


def test_without_a_terminal_it_prints_one_plain_screen_and_ascii_in_locale_c() -> None:
    ended = warm.command(["top", "--once", *IDLE], environment={"LC_ALL": "C", "PYTHONUTF8": "1"})
    assert ended.status == 0
    for picture in (top("--ascii", *IDLE), ended.output.decode()):
        assert picture.isascii()
        assert "\x1b" not in picture
        assert len(re.findall(r"^[? ] +\d \S", picture, re.MULTILINE)) == 8


@pytest.mark.parametrize("words", [["--scenario", "idle"], ["--backend", "none"], ["--no-attach"]])
def test_options_of_this_node_are_refused_beside_agents_of_others(words: list[str]) -> None:
    assert refused("--once", "--url", "127.0.0.1:9", *words).startswith(f"coldplate top: {words[0]}: ")


def configuration(tmp_path: Path, place: str, **rack: object) -> list[str]:
    file = tmp_path / "coldplate.yaml"
    content = {"node": {"name": "here"}, "web": {"listen": [place]}, "rack": rack, "backends": {"devices": "none"}}
    file.write_text(json.dumps(content))
    return ["--config.file", str(file), *QUICK]


def test_it_attaches_to_the_agent_of_this_node_unless_told_not_to(tmp_path: Path) -> None:
    with serving(canned("checkpoint-stall", 200)) as place:
        options = configuration(tmp_path, place)
        document = json.loads(top("--json", *options))
        (node,) = document["nodes"]
        assert (node["node"], node["origin"], node["synthetic"]) == ("here", "from its agent", "checkpoint-stall")
        assert "GpuImbalance" in {alert["alert"] for alert in node["alerts"]}
        assert node["gpus"][0]["nvlink_bytes_per_second"] is not None
        assert document["troubles"][0]["text"] == "GpuImbalance"
        assert node["unjudged"] is None
        (own,) = json.loads(top("--json", "--no-attach", *options))["nodes"]
        assert (own["node"], own["origin"], own["gpus"]) == ("here", "sampled here", [])


def test_a_foreign_server_on_the_agents_port_is_told_of_and_not_attached_to(tmp_path: Path) -> None:
    with serving(lambda _: (200, b"<html>")) as place:
        document = json.loads(top("--json", *configuration(tmp_path, place)))
    assert document["nodes"][0]["origin"] == "sampled here"
    trouble = document["troubles"][-1]
    assert trouble == {
        "tone": "unknown",
        "text": f"not attached to http://{place}: the answer is not JSON: is this the port of an agent?",
    }


def test_the_rack_is_this_node_and_its_peers(tmp_path: Path) -> None:
    with serving(canned("straggler", 200)) as here, serving(canned("straggler", 200)) as there:
        options = configuration(tmp_path, here, name="r1", peers=[here, there, "127.0.0.1:1"])
        document = json.loads(top("--json", "--rack", *options))
    problems = {node["node"]: node["problem"] for node in document["nodes"]}
    assert problems == {"here": None, there: None, "127.0.0.1:1": "no answer: Connection refused"}


def test_an_agent_that_has_not_evaluated_its_rules_yet_is_said_to_be_unjudged() -> None:
    with serving(canned("checkpoint-stall", 200, is_evaluated=False)) as place:
        document = json.loads(top("--json", *QUICK, "--url", place))
    assert document["nodes"][0]["unjudged"] == "not all rules have been evaluated yet"
    assert "not all rules have been evaluated yet" in document["troubles"][-1]["text"]


def test_a_scenario_is_printed_once_its_faults_show_or_at_a_given_age() -> None:
    def silent(*arguments: str) -> list[str]:
        (node,) = json.loads(top("--json", *QUICK, "--scenario", "gpu-lost", *arguments))["nodes"]
        return [gpu["gpu"] for gpu in node["gpus"] if not gpu["up"]]

    assert silent() == ["3"]
    assert silent("--at", "10s") == []
    assert "--at: needs --scenario" in refused("--once", "--backend", "none", "--at", "10s")


def test_nodes_have_their_own_names_and_addresses_where_two_have_one_name() -> None:
    with (
        serving(canned("idle", 20, node="node7")) as one,
        serving(canned("idle", 20, node="node8")) as two,
        serving(canned("idle", 20, node="node8")) as three,
    ):
        nodes = json.loads(top("--json", *QUICK, "--url", one, two, three))["nodes"]
        (alone,) = json.loads(top("--json", *QUICK, "--url", two))["nodes"]
    assert [node["node"] for node in nodes] == ["node7", f"node8 ({two})", f"node8 ({three})"]
    assert alone["node"] == "node8"


def test_other_nodes_by_url_and_none_that_answers() -> None:
    with serving(canned("checkpoint-stall", 200)) as place:
        rows = list(csv.DictReader(io.StringIO(top("--csv", *QUICK, "--url", place, "127.0.0.1:1"))))
    assert [row["node"] for row in rows] == [place] * 8 + ["127.0.0.1:1"]
    assert (rows[-1]["state"], rows[-1]["why"]) == ("no answer", "no answer: Connection refused")
    assert "Connection refused" in top("--once", *QUICK, "--url", "127.0.0.1:1", status=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "http://user:secret@node"], "--url: url: contains credentials"),
        (["--rack"], "--rack: no peers are configured"),
        (["--interval", "5h"], "5h is not from 100ms to 60s"),
        (["--json", "--csv"], "not allowed with argument"),
        (["--scenario", "stragler"], "stragler"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], told: str) -> None:
    message = refused(*arguments)
    assert told in message
    assert "secret" not in message


def without_rich(arguments: list[str]) -> tuple[int, str]:
    """In a process of its own: status and errors of the command where rich is missing."""
    from agent.cli import main

    modules: dict[str, Any] = sys.modules
    modules["rich"] = None
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        status = main(["top", *arguments])
    return status, errors.getvalue()


def test_programs_need_no_rich_and_people_are_told_to_install_it() -> None:
    assert warm.call(without_rich, ["--csv", *IDLE]) == (0, "")
    status, errors = warm.call(without_rich, ["--once", *IDLE])
    assert status == 2
    assert "make install EXTRAS=top" in errors


ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
LEFT = b"\x1b[?1049l"
"""Back from the alternate screen."""
SHELL = """
import fcntl, os, signal, sys, termios
slave = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(slave, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    for number in range(3):
        os.dup2(slave, number)
    os.execv(sys.argv[2], sys.argv[2:])
print(child, flush=True)
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    print("stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status), flush=True)
    if not os.WIFSTOPPED(status):
        break
"""


def has_more(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, now or soon."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Terminal:
    """A pseudo-terminal with `coldplate top` in it, started by a process that stands in for a shell.

    A shell is needed: nobody could continue a group of processes without one, so the kernel does not stop it either.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(100, 30)
        self.before = termios.tcgetattr(self.slave)
        self.written = b""
        command = [sys.executable, "-m", "agent.cli", "top", *arguments]
        variables = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC", **environment}
        self._shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, os.ttyname(self.slave), *command],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.pid = int(self.says())

    def says(self) -> str:
        """The next line of the shell: the process's id, `stopped`, or how it ended."""
        assert self._shell.stdout is not None
        assert has_more(self._shell.stdout.fileno(), PATIENCE_SECONDS), (
            f"the shell says nothing: {self.written[-3000:]!r}"
        )
        return self._shell.stdout.readline().strip()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def types(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def until(self, *parts: bytes) -> bytes:
        """Read until these were written in this order after what was seen before; what was written meanwhile."""
        pattern = re.compile(b".*?".join(re.escape(part) for part in parts), re.DOTALL)
        end = time.monotonic() + PATIENCE_SECONDS
        while (match := pattern.search(self.written)) is None:
            remaining = end - time.monotonic()
            assert remaining > 0, f"{parts!r} never came: {self.written[-3000:]!r}"
            if has_more(self.master, remaining):
                self.written += os.read(self.master, 65536)
        output, self.written = self.written[: match.end()], self.written[match.end() :]
        return output

    @property
    def is_restored(self) -> bool:
        return termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.hang_up()

    def hang_up(self) -> None:
        """As when the window is closed."""
        for descriptor in (self.master, self.slave):
            with suppress(OSError):
                os.close(descriptor)


@contextmanager
def terminal(*arguments: str, **environment: str) -> Iterator[Terminal]:
    process = Terminal(*arguments, **environment)
    try:
        yield process
    finally:
        process.close()


def test_keys_sizes_and_stops_in_a_real_terminal() -> None:
    with terminal("--scenario", "two-jobs") as screen:
        screen.until(b"\x1b[?1049h", b"\x1b[?1006h", b"SYNTHETIC two-jobs", b"THROTTLE")
        screen.types(b"s")
        screen.until(b"sort: index")
        screen.types(b"/5002\r")
        screen.until(b"filter: 5002")
        screen.types(b"\x1b")  # alone: the key, after a moment
        screen.until(b"filter ")
        screen.types(b"jj\r")
        screen.until(b"GPU 1  ", b"power limit")
        screen.resize(44, 12)
        screen.until(b"\x1b[2J", b"GPU 1")
        os.kill(screen.pid, signal.SIGTSTP)
        screen.until(LEFT)
        assert screen.says() == "stopped"
        assert screen.is_restored
        os.kill(screen.pid, signal.SIGCONT)
        screen.until(b"\x1b[?1049h", b"\x1b[2J", b"GPU 1")
        assert not screen.is_restored
        screen.types(b"mq")
        screen.until(b"\x1b[?1006l", b"\x1b[?25h", LEFT)
        assert screen.says() == "0"
        assert screen.is_restored


@pytest.mark.parametrize(
    ("act", "status"),
    [
        pytest.param(lambda screen: os.kill(screen.pid, signal.SIGTERM), 143, id="SIGTERM"),
        pytest.param(lambda screen: screen.types(b"\x03"), 130, id="Ctrl-C"),
        pytest.param(Terminal.hang_up, 129, id="the window is closed"),
    ],
)
def test_a_signal_or_the_end_of_its_window_ends_it_and_leaves_the_terminal_as_it_was(
    act: Callable[[Terminal], None], status: int
) -> None:
    with terminal("--backend", "none", "--no-attach") as screen:
        screen.until(b"coldplate", b"no GPU here")
        act(screen)
        if status != 129:
            screen.until(LEFT)
        assert screen.says() == str(status)
        assert status == 129 or screen.is_restored


def test_an_error_while_drawing_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """The defect is put in by a module that Python imports at its start."""
    broken = "import agent.commands.top.screen.key_input as u\nu._ACTS['x'] = lambda state, screen: 1 / 0\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    with terminal("--backend", "none", "--no-attach", PYTHONPATH=f"{tmp_path}:{ROOT}") as screen:
        screen.until(b"no GPU here")
        screen.types(b"x")
        screen.until(LEFT, b"ZeroDivisionError")
        assert screen.says() == "1"
        assert screen.is_restored
