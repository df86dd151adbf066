"""Parses /proc/PID/stat, /proc/PID/status and /proc/stat. Pure: bytes in, numbers out, or ValueError."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stat:
    """The parts of /proc/PID/stat that are used. `started` is in clock ticks after boot."""

    command: str
    parent: int
    session: int
    started: int


def parse_stat(data: bytes) -> Stat:
    """The text of /proc/PID/stat. Raises ValueError."""
    head, _, tail = data.rpartition(b")")  # the command may hold parentheses and blanks
    command = head.partition(b"(")[2].decode("utf-8", "replace")
    fields = tail.split()
    if len(fields) < 20:
        raise ValueError(f"{len(fields)} fields after the command")
    started = int(fields[19])
    if not 0 <= started < 2**63:
        raise ValueError(f"started {started} ticks after boot")
    return Stat(command, int(fields[1]), int(fields[3]), started)


def parse_uid(data: bytes) -> int:
    """The real user id in a /proc/PID/status. Raises ValueError."""
    return _number_after(data, b"Uid:")


def parse_boot(data: bytes) -> int:
    """When the node was started, from /proc/stat, in seconds since the epoch. Raises ValueError."""
    return _number_after(data, b"btime")


def _number_after(data: bytes, word: bytes) -> int:
    for line in data.split(b"\n"):
        if line.startswith(word):
            _, text, *_ = (*line.split(None, 2), b"")
            number = int(text)
            if not 0 <= number < 2**63:
                raise ValueError(f"{word.decode()} {number}")
            return number
    raise ValueError(f"no line {word.decode()}")
