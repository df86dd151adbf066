"""Whatever a file or folder is that a command is given: it ends with its exit status and says in one line why."""

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from tests import warm
from tests.daemon.conftest import RunningDaemon
from tests.lib.test_textfile import directory, fifo, latin, link_to_a_fifo, no_text, nothing, too_large, unix_socket
from tests.waiting import wait_until

RULES = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: up == 0}\n"
LIMIT = 120


def written(content: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path.write_text(content)
        return path

    return write


UNNAMED = "a name that is not UTF-8"
BROKEN: dict[str, Callable[[Path], Path]] = {
    "a FIFO": fifo,
    "a directory": directory,
    "a socket": unix_socket,
    "a link to a FIFO": link_to_a_fifo,
    "nothing": nothing,
    "a terabyte": too_large,
    "Latin-1": latin,
    "no text": no_text,
    "a device": lambda _: Path("/dev/zero"),
    UNNAMED: lambda path: path.with_name("\udcff.yml"),
    "a node within itself": written("&a {b: *a}"),
    "no end of aliases": written(
        "a: &a [x]\n" + "\n".join(f"{c}: &{c} [{f'*{chr(ord(c) - 1)},' * 9}]" for c in "bcdefg")
    ),
    "brackets": written("[" * 50_000),
    "a list": written("- a\n"),
    "a number": written("7\n"),
    "half a file": written("groups:\n- name: 'g"),
}
"""More that is no YAML is in tests/lib/test_yamltree.py."""


def run(arguments: list[str], given: bytes = b"") -> tuple[int | None, str, list[str]]:
    """The exit status, what went to standard output, and the lines of standard error."""
    ended = warm.command(arguments, given, LIMIT)
    return ended.status, ended.output.decode(), ended.error.decode().splitlines()


def refusals(commands: dict[str, list[str]]) -> Iterator[tuple[str, int | None, str, list[str]]]:
    """By what each command was named: its exit status, its standard output and the lines of standard error."""
    for name, ended in zip(commands, warm.commands(list(commands.values()), LIMIT), strict=True):
        yield name, ended.status, ended.output.decode(), ended.error.decode().splitlines()


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """The path of a file of each kind."""
    for kind in BROKEN:
        (tmp_path / kind).mkdir()
    return {kind: os.fspath(make(tmp_path / kind / "file.yml")) for kind, make in BROKEN.items()}


def shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def test_rules_check_fails_with_its_status_and_one_line(broken: dict[str, str]) -> None:
    for kind, status, _, said in refusals({kind: ["rules", "check", path] for kind, path in broken.items()}):
        assert (status, said[0], len([line for line in said if line])) == (1, "  FAILED:", 2), (kind, said)
        assert said[1].startswith(f"  {shown(broken[kind])}:")


@pytest.mark.parametrize(
    "words",
    [
        ["once", "--backend", "none", "--config.file"],
        ["run", "--backend", "none", "--config.file"],
        ["render", "rules", "--output", "/nowhere", "--config.file"],
        ["once", "--scenario"],
    ],
)
def test_a_file_that_cannot_be_used_ends_the_command_with_one_line(words: list[str], broken: dict[str, str]) -> None:
    name = " ".join(word for word in words[:2] if word in ("once", "run", "render", "rules"))
    for kind, status, printed, said in refusals({kind: [*words, path] for kind, path in broken.items()}):
        assert (status, printed, len(said)) == (2, "", 1), (kind, said)
        assert "--scenario" in words or said[0].startswith(f"coldplate {name}: {shown(broken[kind])}:")


def test_a_rule_file_of_the_configuration_that_cannot_be_used_is_named(tmp_path: Path, broken: dict[str, str]) -> None:
    del broken[UNNAMED]  # a configuration cannot name it
    commands = {}
    for kind, path in broken.items():
        config = tmp_path / f"{kind}.yaml"
        config.write_text(f"rules: {{files: ['{path}']}}\n")
        out = os.fspath(tmp_path / "out")
        commands[kind] = ["render", "rules", "--output", out, "--config.file", os.fspath(config)]
    for kind, status, _, said in refusals(commands):
        assert (status, len(said) <= 2) == (2, True), (kind, said)
        assert broken[kind] in said[-1]


def test_an_option_that_names_nothing_and_an_invalid_address_are_refused_in_one_line() -> None:
    options = {"--config.file": "once", "--scenario": "once", "--path.sysfs": "once", "--web.telemetry-path": "run"}
    commands = {
        f"{option} {len(name)} {name[:9]}": [command, "--backend", "synthetic", option, name]
        for option, command in options.items()
        for name in ("x" * 300, "x" * 5000, "a\nb", "*", "[")
    }
    for address in (":\u00b2", "a b:1", "::1:1", ":99999", "x" * 300 + ":1", ":1\n", "user@host:1"):
        commands[f"address {address}"] = ["run", "--backend", "none", "--web.listen-address", address]
    for name, status, printed, said in refusals(commands):
        assert (status, printed, len(said)) == (2, "", 1), (name, said)
        assert name.startswith("--") or "is not an address" in said[0]


def test_rules_are_checked_from_standard_input_and_from_what_a_shell_hands_over(tmp_path: Path) -> None:
    assert run(["rules", "check", "/dev/stdin"], RULES.encode())[:2] == (
        0,
        "Checking /dev/stdin\n  SUCCESS: 1 rules found\n\n",
    )
    (tmp_path / "r.yml").write_text(RULES)
    script = '"$0" -m agent.cli rules check <(cat "$1") /dev/stdin < "$1"'
    command = ["bash", "-c", script, sys.executable, str(tmp_path / "r.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SUCCESS: 1 rules found") == 2


def test_one_sample_is_taken_with_a_configuration_from_a_pipe() -> None:
    status, printed, said = run(
        ["once", "--backend", "none", "--config.file", "/dev/stdin"],
        b"metrics: {profile: none, include: [coldplate_build_info]}",
    )
    assert status == 0, said
    assert "no GPU" not in "".join(said)  # none was looked for
    assert "\ncoldplate_build_info{" in printed
    assert "coldplate_node_" not in printed


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    """Starts an agent without devices with a configuration of its own."""
    with contextlib.ExitStack() as stack:

        def start(config: Path, **more: Any) -> RunningDaemon:
            words = ["--backend", "none", "--config.file", os.fspath(config)]
            daemon = RunningDaemon(words, tmp_path / "log", **more)
            stack.callback(daemon.stop)
            daemon.await_url()
            return daemon

        yield start


def reload(daemon: RunningDaemon) -> str:
    """What the agent says when it is told to read its files again."""
    before = len(daemon.log.read_text())
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reloaded" in daemon.log.read_text()[before:].rpartition("\n")[0], LIMIT)
    return daemon.log.read_text()[before:]


def most_memory(daemon: RunningDaemon) -> int:
    """Bytes that it had at most so far."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_a_daemon_that_got_its_configuration_from_a_pipe_keeps_it_at_a_reload(start) -> None:
    """Empty at the second reading, it would silently be the defaults."""
    out, into = os.pipe()
    os.write(into, b"node: {name: from-a-pipe}\nrules: {files: []}\n")
    os.close(into)
    daemon = start(Path(f"/dev/fd/{out}"), pass_fds=[out])
    os.close(out)
    said = reload(daemon)
    assert "is a pipe, which can be read only once; give a regular file" in said
    assert "keeping the current one" in said


@pytest.mark.parametrize("broken", ["configuration", "rules"])
def test_a_daemon_continues_whatever_becomes_of_its_files(broken: str, start, tmp_path: Path) -> None:
    config, rules = tmp_path / "coldplate.yaml", tmp_path / "site.rules.yml"
    config.write_text("rules: {files: [site.rules.yml]}\n")
    rules.write_text(RULES)
    path = config if broken == "configuration" else rules
    daemon = start(config)
    assert "configuration reloaded" in reload(daemon)
    before = most_memory(daemon)
    for make in BROKEN.values():
        path.rename(tmp_path / "good")
        made = make(path)
        if made != path:  # a file that lies elsewhere
            path.symlink_to(made)
        said = reload(daemon)
        assert "configuration not reloaded, keeping the current one" in said
        assert path.name in said
        assert daemon.get("/-/healthy") == "healthy\n"
        if path.is_dir():
            path.rmdir()
        (tmp_path / "good").rename(path)
    assert "configuration reloaded" in reload(daemon)
    assert most_memory(daemon) - before < 64 * 2**20
    assert daemon.stop() == 0


VERSION_3 = 0x20080522
"""Of capset(2): two words for each set of capabilities."""


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "forbidden"
    folder.mkdir(mode=0o000)
    yield folder
    folder.chmod(0o700)


def without_capabilities(arguments: list[str]) -> tuple[int, str]:
    """Run a command as root runs it without the right to ignore permissions; status and standard error."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0:
        assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        return cli.main(arguments), error.getvalue()


@pytest.mark.parametrize("entry", ["site.yml", "*.yml", "*/site.yml"])
def test_rule_files_in_a_forbidden_folder_are_refused_as_that(entry: str, forbidden: Path, tmp_path: Path) -> None:
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"rules:\n  files: ['{forbidden}/{entry}']\n")
    words = ["run", "--config.check", "--config.file", str(config)]
    ended, error = warm.call(without_capabilities, words)
    assert (ended, len(error.splitlines())) == (2, 1), error
    assert error.startswith(f"coldplate run: {config}:2: rules.files: ") and "Permission denied" in error


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("record --duration 1s -o {0}/x", 1),
        ("record -o {0}/x -- true", 125),
        ("render dashboards --output {0}/d", 2),
        ("render rules --output {0}/d", 2),
        ("check --learn {0}/y --scenario idle --timeout 20s", 3),
        ("run --config.check --config.file {1}", 2),
    ],
)
def test_a_command_that_may_not_write_ends_with_one_line(
    words: str, status: int, forbidden: Path, tmp_path: Path
) -> None:
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"state_dir: {forbidden}/state\n")
    ended, error = warm.call(without_capabilities, words.format(forbidden, config).split())
    assert (ended, len(error.splitlines())) == (status, 1), error
    assert "forbidden" in error and error.startswith("coldplate")
