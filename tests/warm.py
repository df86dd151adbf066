"""Processes of their own for what is tried there a hundred times, forked from one that has loaded the agent already.

Loading it takes a third of a second each time, which would be most of what such tests cost.
"""

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


CLOSED = ""
"""In the place of a path: standard output is closed."""


def command(
    arguments: list[str],
    given: bytes = b"",
    seconds: float = 120,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    output: str | None = None,
) -> Ended:
    """Run `coldplate ARGUMENTS` with `given` as its standard input; `environment` goes before this process's own.

    `output` is where its standard output goes, if not into the result.
    """
    with tempfile.TemporaryDirectory() as kept:
        streams = [Path(kept, name) for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(streams, (given, b"", b""), strict=True):
            stream.write_bytes(content)
        paths = [os.fspath(stream) for stream in streams]
        if output is not None:
            paths[1] = output
        place = (os.fspath(folder or Path.cwd()), {**os.environ, **(environment or {})})
        status = _status_of(_placed, (arguments, paths, *place), seconds)
        return Ended(status, streams[1].read_bytes(), streams[2].read_bytes())


def commands(all_arguments: Sequence[Sequence[str]], seconds: float = 120) -> list[Ended]:
    """What `coldplate ARGUMENTS` does for each of these, one after the other in one process: for what ends at once."""
    with tempfile.TemporaryDirectory() as folder:
        kept = [
            [os.path.join(folder, f"{number}.{name}") for name in ("out", "error")]
            for number in range(len(all_arguments))
        ]
        statuses = call(_commands, [list(each) for each in all_arguments], kept, seconds=seconds)
        return [
            Ended(status, *(Path(stream).read_bytes() for stream in streams))
            for status, streams in zip(statuses, kept, strict=True)
        ]


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

    _take_streams(streams)
    sys.argv = ["coldplate", *arguments]
    cli.entry()


def _commands(all_arguments: list[list[str]], kept: list[list[str]]) -> list[int]:
    from agent import cli

    statuses = []
    for arguments, (output, error) in zip(all_arguments, kept, strict=True):
        for each in (output, error):
            Path(each).touch()
        _take_streams([os.devnull, output, error])
        sys.argv = ["coldplate", *arguments]
        try:
            cli.entry()
        except SystemExit as ended:
            statuses.append(int(ended.code or 0))
        sys.stdout.flush()
        sys.stderr.flush()
    return statuses


def _take_streams(streams: list[str]) -> None:
    found: list[Any] = []
    for number, (path, how) in enumerate(zip(streams, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        if path == CLOSED:
            os.close(number)
            found.append(None)
            continue
        opened = os.open(path, how)
        os.dup2(opened, number)
        os.close(opened)
        found.append(open(number, "rww"[number], closefd=False))  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = found


def _answer(there: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    there.send(function(*arguments))
