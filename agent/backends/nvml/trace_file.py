"""Reads a trace of driver calls, which a stranger may have made: bounded, and each line checked before it is kept.

The file is the trace itself, or the bundle of `coldplate doctor` that has it. Nothing is unpacked onto the disk.
"""

from __future__ import annotations

import json
import os
import stat
import tarfile
import zlib
from gzip import GzipFile
from pathlib import Path
from typing import Any

from agent.backends.nvml.trace import FORMAT
from agent.backends.nvml.trace_checks import check_call
from agent.lib.wording import one_line

MEMBER = "driver-calls.jsonl"
"""The trace in a bundle."""
MOST_BYTES = 4 * 2**20
"""Of a trace: that of 8 GPUs of 2026, each with 18 NVLinks, takes half a mebibyte."""
MOST_LINE = 256 * 2**10
MOST_ANSWERS = 100_000
"""Answers in a trace: those 8 GPUs give 24,000. The worker that plays a trace may hold 128 MiB."""
MOST_UNPACKED = 2**30
"""Bytes that may come before the trace in a bundle: it has seven other files of at most 64 MiB."""
REMEDY = "have a trace or a bundle made again, by `coldplate doctor --bundle`"
_GZIP = b"\x1f\x8b"
_CHUNK = 2**20


class DriverTraceError(Exception):
    """The file is not a trace that can be played; the text names it, the line and the remedy."""


class DriverTrace:
    """A trace that was read: its first line, its calls, and the metrics that were shown. Raises DriverTraceError."""

    def __init__(self, path: Path) -> None:
        self.provenance: dict[str, Any] = {}
        self.calls: list[dict[str, Any]] = []
        self.shown: dict[str, list[str]] = {}
        self._is_whole = False
        name, number, answers = one_line(str(path)), 0, 0
        text, member = _read(path, name)
        try:
            for number, content in enumerate(text.splitlines(), 1):  # noqa: B007 - the error names it
                answers += self._take(content)
                if answers > MOST_ANSWERS:
                    raise ValueError(f"is beyond the limit of {MOST_ANSWERS} answers")
            if not self._is_whole:
                raise ValueError("is not the end of a complete trace")
        except ValueError as error:
            raise DriverTraceError(f"{name}:{member}{number}: {error}; {REMEDY}") from error

    def _take(self, content: bytes) -> int:
        """Keep a line; returns the number of its answers. Raises ValueError."""
        line = _parsed(content)
        if not self.provenance:
            if line.get("trace") != FORMAT:
                raise ValueError(f"is not the beginning of a complete trace of format {FORMAT}")
            self.provenance = line
            return 0
        if self._is_whole:
            raise ValueError("comes after the end of the trace")
        if "shown" in line:
            if not isinstance(line["shown"], dict):
                raise ValueError("shown: is not an object")
            self.shown, self._is_whole = line["shown"], True
            return 0
        self.calls.append(line)
        return check_call(line)


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_LINE:
        raise ValueError(f"is longer than {MOST_LINE} bytes")
    try:
        line = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {one_line(str(error))}") from error
    if not isinstance(line, dict):
        raise ValueError("is not a JSON object")
    return line


def _read(path: Path, name: str) -> tuple[bytes, str]:
    """Return the trace, and where in the file it is, for messages."""
    try:
        # A path may lead to a pipe without a writer, or to a device.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DriverTraceError(f"{name}: is not a regular file; name a trace of driver calls, or a bundle")
            packed = file.peek(2)[:2] == _GZIP
            text = _find(GzipFile(fileobj=file)) if packed else file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise DriverTraceError(f"{name}: is not a bundle, or damaged: {one_line(str(error))}; {REMEDY}") from error
    except OSError as error:
        why = error.strerror or f"is damaged: {one_line(str(error))}"
        raise DriverTraceError(f"{name}: cannot be read: {why}; name a trace of driver calls, or a bundle") from error
    if text is None:
        raise DriverTraceError(f"{name}: has no {MEMBER}: index.json in it says why; {REMEDY}")
    member = f" {MEMBER}:" if packed else ""
    if len(text) > MOST_BYTES:
        raise DriverTraceError(f"{name}:{member} is larger than {MOST_BYTES // 2**20} MiB; is it the right file?")
    return text, member


def _find(archive: GzipFile) -> bytes | None:
    """Return the trace in a bundle, unpacked to one byte more than it may have; None without one.

    Each header is read by itself, where `tarfile.open` would read a name of any length into memory.
    """
    before = 0
    while (block := archive.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if member.isreg() and member.name.rpartition("/")[2] == MEMBER:
            text = archive.read(min(member.size, MOST_BYTES + 1))
            if len(text) < min(member.size, MOST_BYTES + 1):
                raise EOFError("it ends too early")
            return text
        left = -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        before += left
        if left < 0 or before > MOST_UNPACKED:
            raise ValueError(f"it unpacks to more than {MOST_UNPACKED // 2**20} MiB")
        while left > 0:
            data = archive.read(min(left, _CHUNK))
            if not data:
                raise EOFError("it ends too early")
            left -= len(data)
    return None
