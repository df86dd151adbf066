"""Every command of README and of the first hour runs as it is printed: the `sh` blocks, each with its mark."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from alerts import packs, rulefile
from tests.lab.bring.archive import Archive
from tests.lab.bring.environment import Environment
from tests.servers import need

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?m)^(?:<!-- ([^\n]*) -->\n)?```sh\n(.*?)^```$", re.DOTALL)
LASTS = "until Ctrl-C"
INSTALLED = "installed"
"""The mark of commands for a machine with a package, in a folder of the reader's own."""
NEEDS = ("root", "network", "container")
SECONDS = 120
ENTER = "import tests.commands.test_documented_commands as here; here.bring_loopback_up(); here.stay()"


class Block(NamedTuple):
    """One fenced block: its commands, and its mark, or nothing."""

    mark: str
    commands: str

    @property
    def needs(self) -> str:
        """What the block needs that the suite does not have."""
        return self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else ""


def blocks(document: Path) -> list[Block]:
    return [Block(mark, commands) for mark, commands in BLOCK.findall(document.read_text())]


def bring_loopback_up() -> None:
    """Set IFF_UP and IFF_RUNNING of `lo` (netdevice(7)); a new network namespace has it down."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))


def stay() -> None:
    """Keep the namespace until standard input ends."""
    print("ready", flush=True)
    sys.stdin.read()


@contextmanager
def own_network() -> Iterator[list[str] | None]:
    """Give the words that run a command in a network of its own, where every port is free; None if none is allowed."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        yield None
        return
    may = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0  # a root may
    privately = ["unshare", "--net"] if may else ["unshare", "--user", "--map-root-user", "--net"]
    held = subprocess.Popen(
        [*privately, sys.executable, "-c", ENTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert held.stdin is not None and held.stdout is not None
    try:
        allowed = held.stdout.readline() == b"ready\n"
        join = ["nsenter", "--target", str(held.pid), "--net"]
        yield (join if may else [*join, "--user", "--preserve-credentials"]) if allowed else None
    finally:
        held.stdin.close()
        held.stdout.close()
        held.wait(30)


class Terminal:
    """Runs the blocks of a document in the root of the checkout, as a reader types them."""

    def __init__(self, enter: list[str], folder: Path) -> None:
        self._enter = enter
        self._log = folder / "long-running.log"
        self.own = folder / "own"
        self.own.mkdir()
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, block: Block) -> None:
        """Run one block, and check what its mark says. Raises AssertionError with the output if it fails."""
        if block.mark == LASTS:
            with self._log.open("ab") as log:
                self._running.append(self._start(block, stdout=log, stderr=log))
            return
        allowed = (0, 1) if block.mark == "ends with 0 or 1" else (0,)
        expected = block.mark.removeprefix("shows: ") if block.mark.startswith("shows: ") else ""
        until = time.monotonic() + SECONDS
        while True:
            status, output = self._finished(block)
            if status in allowed and expected in output:
                return
            why = f"{block.commands}exit status {status}:\n{output}\n{self._log.read_text() if self._running else ''}"
            # What a program started in the block before does not answer yet is asked again, as a reader would.
            assert self._running and time.monotonic() < until, why
            assert all(each.poll() is None for each in self._running), why
            time.sleep(0.5)

    def _finished(self, block: Block) -> tuple[int, str]:
        process = self._start(block, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output.decode("utf-8", "replace")

    def _start(self, block: Block, **streams: object) -> subprocess.Popen[bytes]:
        command = [*self._enter, "bash", "-e", "-c", block.commands]
        folder, environment = ROOT, dict(os.environ)
        if block.mark == INSTALLED:
            folder, environment["PATH"] = self.own, f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **streams,  # type: ignore[call-overload]
        )

    def close(self) -> None:
        """End what still runs, as Ctrl-C does."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)


OPERATORS = {"alertmanager.yml": "route: {receiver: mine}\n", "prometheus.yml": "scrape_configs: []\n"}
"""Configurations of the operator's own, where commands for installed machines run."""
ADVICE = {rule.name for group in rulefile.load(packs.find(packs.ADVICE, None)[0]).groups for rule in group.rules}
README = ROOT / "README.md"
FIRST_HOUR = ROOT / "docs" / "first-hour.md"
NOT_RUN = {README: {"root": 1}, FIRST_HOUR: {"container": 1}}
"""Blocks that the suite cannot run, by what they need; `make test-packages` installs packages and the single file."""


@pytest.mark.parametrize("document", [README, FIRST_HOUR], ids=lambda path: path.name)
def test_a_block_that_is_not_run_says_what_it_needs(document: Path) -> None:
    found = blocks(document)
    assert {each.needs for each in found if each.needs} <= set(NEEDS)
    assert Counter(each.needs for each in found if each.needs) == NOT_RUN[document]
    assert all(
        each.needs or each.mark in ("", LASTS, INSTALLED, "ends with 0 or 1") or each.mark.startswith("shows: ")
        for each in found
    )
    assert "```sh" in document.read_text() and len(found) == document.read_text().count("```sh\n")


@pytest.mark.parametrize("document", [README, FIRST_HOUR], ids=lambda path: path.name)
def test_every_command_runs_as_printed(document: Path, tmp_path: Path) -> None:
    for program in ("prometheus", "prometheus-alertmanager", "amtool", "promtool"):
        if not (ROOT / ".programs" / "usr" / "bin" / program).exists():
            need(f"{program} in .programs")
    # `make` must find nothing to install: it would change the environment below the tests that run now.
    note = ROOT / ".venv" / "complete.json"
    if not note.exists():
        need("the .venv that make makes")
    found = json.loads(note.read_bytes())
    wanted = Environment(ROOT, Archive(ROOT / ".programs" / "apt")).made_from(found["extras"])
    assert found["project"] == wanted, ".venv is not of this pyproject.toml: run `make .venv/dev.stamp`"
    shutil.rmtree(ROOT / ".programs" / "first-hour", ignore_errors=True)
    with own_network() as enter:
        if enter is None:
            pytest.skip("no network of its own is allowed here, and the documents' ports may be in use")
        terminal = Terminal(enter, tmp_path)
        for name, text in OPERATORS.items():
            (terminal.own / name).write_text(text)
        try:
            for block in blocks(document):
                if not block.needs:
                    terminal.run(block)
        finally:
            terminal.close()
        assert {name: (terminal.own / name).read_text() for name in OPERATORS} == OPERATORS
    rendered = [*terminal.own.rglob("*.yml"), *(ROOT / ".programs" / "first-hour").rglob("*.yml")]
    assert "fleet.rules.yml" in {path.name for path in rendered}, "the boards read what it records"
    assert not [path for path in rendered if ADVICE & set(path.read_text().split())], "advice is off by default"
