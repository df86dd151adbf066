"""The running agent's process, and the configuration with which it was started, by its command line.

A person types `coldplate doctor`, and the agent beside it may have been started with another file, other addresses or
other devices. Its command line says so to every user (proc(5), /proc/PID/cmdline); the folder in which relative paths
begin, only to its own user and to root.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from agent.backends.sysfs import list_names

UNIT = "coldplate.service"
MAX_READ_BYTES = 1 << 20
"""Bytes of a command line: execve(2) allows no more in one argument list of usual size."""
_PYTHONS = ("python", "pypy")


class AgentProcess(Struct, frozen=True):
    """A process of `coldplate run`, with the options behind that word."""

    pid: int
    options: tuple[str, ...]


class UnknownArgumentsError(Exception):
    """The configuration of the process cannot be read; the text says why."""


def find_agent_process(procfs: Path, port: int) -> AgentProcess | None:
    """Return the process of the unit, else the one that listens on `port`; None if this user sees neither."""
    agents = {process.pid: process for process in _agents(procfs)}
    of_unit = [pid for pid in agents if f"/{UNIT}" in _read(procfs / str(pid) / "cgroup")]
    if of_unit:
        return agents[min(of_unit)]
    listening = sorted(agents.keys() & _listeners(procfs, port))
    return agents[listening[0]] if listening else None


def _agents(procfs: Path) -> Iterator[AgentProcess]:
    for name in list_names(procfs):
        if name.isdigit():
            words = _read(procfs / name / "cmdline").rstrip("\0").split("\0")
            options = options_of_run(words)
            if options is not None:
                yield AgentProcess(int(name), tuple(options))


def options_of_run(words: Sequence[str]) -> Sequence[str] | None:
    """Return what follows `coldplate run` in a command line; None if it is another command."""
    if "run" not in words[1:]:
        return None
    position = words.index("run", 1)
    first, program = os.path.basename(words[0]), os.path.basename(words[position - 1])  # noqa: PTH119 - texts
    is_ours = program.startswith("coldplate") or program == "agent.cli"
    if not is_ours or not first.startswith((*_PYTHONS, "coldplate")):
        return None
    return words[position + 1 :]


def _read(path: Path) -> str:
    """Return the text of a file of procfs; empty for a process that has ended."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_READ_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _listeners(procfs: Path, port: int) -> set[int]:
    """Return the processes that listen on a port, as far as this user may see whose sockets they are."""
    former, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(procfs)
    try:
        connections: list[Any] = psutil.net_connections("tcp")
    except (OSError, psutil.Error):
        return set()
    finally:
        psutil.PROCFS_PATH = former
    return {
        connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
    }


def arguments_of(process: AgentProcess, procfs: Path) -> argparse.Namespace:
    """Return the options as `coldplate run` parses them, with absolute paths. Raises UnknownArgumentsError."""
    from agent.commands import run
    from agent.lib.commandline import Parser
    from agent.lib.textfile import descriptor_of

    parser = Parser(prog="coldplate run")
    run.add_arguments(parser)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            arguments = parser.parse_args(list(process.options))
    except SystemExit:
        raise UnknownArgumentsError("its command line is of another version") from None
    file = arguments.config_file
    if file is not None and descriptor_of(file) is not None:
        raise UnknownArgumentsError(f"it read its configuration through a pipe, {file}")
    paths = [path for path in (file, arguments.web_config_file) if path is not None]
    if all(Path(path).is_absolute() for path in paths):
        return arguments
    try:
        folder = Path(os.readlink(procfs / str(process.pid) / "cwd"))  # noqa: PTH115 - it may lead to nothing
    except OSError as error:
        raise UnknownArgumentsError(f"only its user may see in which folder {paths[0]} is: {error.strerror}") from error
    if file is not None:
        arguments.config_file = folder / file
    if arguments.web_config_file is not None:
        arguments.web_config_file = str(folder / arguments.web_config_file)
    return arguments
