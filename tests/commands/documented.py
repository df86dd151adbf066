"""The commands of a document: its `sh` blocks, each with what an HTML comment in the line above it says."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?m)^(?:<!-- ([^\n]*) -->\n)?```sh\n(.*?)^```$", re.DOTALL)
LASTS = "until Ctrl-C"
NEEDS = ("root", "network", "container")
SECONDS = 120
ENTER = "import tests.commands.documented as here; here.bring_loopback_up(); here.stay()"


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
    privately = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        yield None
        return
    held = subprocess.Popen(
        [*privately, sys.executable, "-c", ENTER],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert held.stdin is not None and held.stdout is not None
    try:
        allowed = held.stdout.readline() == b"ready\n"
        join = ["nsenter", "--target", str(held.pid), "--net"]
        yield (join if os.geteuid() == 0 else [*join, "--user", "--preserve-credentials"]) if allowed else None
    finally:
        held.stdin.close()
        held.stdout.close()
        held.wait(30)


class Terminal:
    """Runs the blocks of a document in the root of the checkout, as a reader types them."""

    def __init__(self, enter: list[str], folder: Path) -> None:
        self._enter = enter
        self._log = folder / "long-running.log"
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
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True, **streams  # type: ignore[call-overload]
        )  # fmt: skip

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
