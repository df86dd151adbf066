"""Processes of their own for what is tried there a hundred times, forked from one that has loaded the agent already.

Loading it takes a third of a second each time, which would be most of what such tests cost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["agent.cli", "agent.wiring.sources", "agent.daemon.service", "tests.warm", "tests.lib.measured_files"]
)


class Ended(NamedTuple):
    status: int | None
    """The exit status, negative for the signal that ended it, or None: it had to be killed."""
    output: bytes
    error: bytes


def command(
    arguments: list[str],
    given: bytes = b"",
    seconds: float = 120,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `coldplate ARGUMENTS` with `given` as its standard input; `environment` goes before this process's own."""
    with tempfile.TemporaryDirectory() as kept:
        streams = [Path(kept, name) for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(streams, (given, b"", b""), strict=True):
            stream.write_bytes(content)
        place = (os.fspath(folder or Path.cwd()), {**os.environ, **(environment or {})})
        status = _status_of(_placed, (arguments, [os.fspath(stream) for stream in streams], *place), seconds)
        return Ended(status, streams[1].read_bytes(), streams[2].read_bytes())


def call(function: Callable[..., Any], *arguments: Any, seconds: float = 120) -> Any:
    """What a function of a module answers in a process of its own."""
    here, there = _CONTEXT.Pipe(duplex=False)
    status = _status_of(_answer, (there, function, arguments), seconds)
    there.close()
    assert (status, here.poll()) == (0, True), f"{function.__name__} ended with {status}"
    return here.recv()


class Started:
    """`coldplate ARGUMENTS` at work, with what a test uses of subprocess.Popen; what it tells goes to a file."""

    def __init__(self, arguments: Sequence[str], told: Path, folder: Path, environment: Mapping[str, str]) -> None:
        given = (list(arguments), os.fspath(told), os.fspath(folder), dict(environment))
        self._process = _CONTEXT.Process(target=_start, args=given, daemon=True)  # what nobody ended ends with us
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired, as Popen does."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("coldplate", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _status_of(target: Callable[..., None], arguments: tuple[Any, ...], seconds: float) -> int | None:
    process = _CONTEXT.Process(target=target, args=arguments, daemon=False)
    process.start()
    process.join(seconds)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    return None if late else process.exitcode


def _start(arguments: list[str], told: str, folder: str, environment: dict[str, str]) -> None:
    _placed(arguments, [os.devnull, os.devnull, told], folder, environment)


def _placed(arguments: list[str], streams: list[str], folder: str, environment: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    _command(arguments, streams)


def _command(arguments: list[str], streams: list[str]) -> None:
    from agent import cli

    for number, (path, how) in enumerate(zip(streams, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        opened = os.open(path, how)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
    sys.argv = ["coldplate", *arguments]
    cli.entry()


def _answer(there: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    there.send(function(*arguments))
