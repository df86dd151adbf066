"""Play a trace of driver calls in place of the NVIDIA driver: the same answers, on a machine without a GPU.

A stranger may have made the trace: it is read within bounds, and each line is checked before it is kept. The file is
the trace itself, or the bundle of `coldplate doctor` that has it. Nothing is unpacked onto the disk.
"""

import json
import os
import stat
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from gzip import GzipFile
from itertools import count
from pathlib import Path
from typing import Any

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import FUNCTION_NOT_FOUND, NOT_SUPPORTED, TIMEOUT, DriverError
from agent.backends.nvml.trace import FIELDS, FORMAT, GPM, SAMPLE_CALLS, WAIT, fill_slot, sampled_part
from agent.backends.nvml.trace_checks import check_call
from agent.backends.protocol import SourceError
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
        self.shown_metrics: dict[str, list[str]] = {}
        self._is_whole = False
        name, number, answers = one_line(str(path)), 0, 0
        text, member = _read(path, name)
        try:
            for number, content in enumerate(text.splitlines(), 1):  # noqa: B007 - the error names it
                answers += self._add_line(content)
                if answers > MOST_ANSWERS:
                    raise ValueError(f"is beyond the limit of {MOST_ANSWERS} answers")
            if not self._is_whole:
                raise ValueError("is not the end of a complete trace")
        except ValueError as error:
            raise DriverTraceError(f"{name}:{member}{number}: {error}; {REMEDY}") from error

    def _add_line(self, content: bytes) -> int:
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
            self.shown_metrics, self._is_whole = line["shown"], True
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
        problem = error.strerror or f"is damaged: {one_line(str(error))}"
        raise DriverTraceError(
            f"{name}: cannot be read: {problem}; name a trace of driver calls, or a bundle"
        ) from error
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
        remaining = -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        before += remaining
        if remaining < 0 or before > MOST_UNPACKED:
            raise ValueError(f"it unpacks to more than {MOST_UNPACKED // 2**20} MiB")
        while remaining > 0:
            data = archive.read(min(remaining, _CHUNK))
            if not data:
                raise EOFError("it ends too early")
            remaining -= len(data)
    return None


class ReplayDriver:
    """Implements `Driver` over a trace, so that a real machine's answers become a test's. Tokens stand for handles.

    Answers are kept by request: a function with its arguments, a field of a device, a GPM metric of a device. Each has
    its own sequence, which stays at its last answer at the end. So a version of the agent that asks in another order,
    or for other batches, still gets this machine's answers; what was never asked while recording is `not supported`, or
    for a function `not found`. An event comes once; `pause` waits for the seconds in which none comes.
    """

    def __init__(self, trace: DriverTrace, pause: Callable[[float], object] = lambda _: None) -> None:
        self._pause = pause
        self._allocated = count(1)
        self._answers: dict[object, list[Any]] = {}
        self._lock = threading.Lock()
        self._samples: dict[int, object] = {}
        self.unknown: set[object] = set()
        """Requests that were not made while recording."""
        for line in trace.calls:
            self._add_answers(line)

    def _add_answers(self, line: dict[str, Any]) -> None:
        name, args = line["call"], tuple(_thaw(arg) for arg in line["args"])
        if name == FIELDS and "code" not in line:
            for pair, slot in zip(line["fields"], line["slots"], strict=True):
                self._answers.setdefault((args[0], tuple(pair)), []).append(slot)
        elif name == FIELDS:
            pairs = tuple(tuple(pair) for pair in line["fields"])
            self._answers.setdefault((FIELDS, args[0], pairs), []).append(line["code"])
        elif name == GPM:
            results = [[line["code"], 0.0]] * len(line["metrics"]) if "code" in line else line["results"]
            for metric, result in zip(line["metrics"], results, strict=True):
                self._answers.setdefault((GPM, line["device"], metric), []).append(result)
        else:
            answer = ("code", line["code"]) if "code" in line else ("value", _thaw(line["value"]))
            self._answers.setdefault(_question(name, args), []).append(answer)

    def _next(self, question: object) -> Any:
        with self._lock:
            answers = self._answers.get(question)
            if answers is None:
                self.unknown.add(question)
                return None
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def call(self, name: str, *args: Any) -> Any:
        if name == FIELDS:
            return self._fields(args[0], args[1])
        if name == GPM:
            return self._gpm(args[0])
        if name in SAMPLE_CALLS:
            self._samples[args[-1]] = sampled_part(args[0], args)
        if name == WAIT:
            return self._wait(args)
        answer = self._next(_question(name, args))
        if answer is None:
            raise DriverError(name, FUNCTION_NOT_FOUND)
        kind, value = answer
        if kind == "code":
            raise DriverError(name, value)
        return next(self._allocated) if name == "nvmlGpmSampleAlloc" else value

    def _wait(self, args: Sequence[Any]) -> Any:
        """Return the next event; what happened in the trace once does not happen again."""
        with self._lock:
            answers = self._answers.get(_question(WAIT, args))
            answer = answers.pop(0) if answers else ("code", TIMEOUT)
        kind, value = answer
        if kind == "code":
            self._pause(args[1] / 1000)
            raise DriverError(WAIT, value)
        return value

    def _fields(self, device: object, array: FieldArray) -> None:
        refused = (FIELDS, device, array.pairs)
        if refused in self._answers:
            raise DriverError(FIELDS, self._next(refused))
        for index, pair in enumerate(array.pairs):
            slot = self._next((device, pair))
            fill_slot(array, index, NOT_SUPPORTED if slot is None else slot)

    def _gpm(self, array: GpmArray) -> None:
        device = self._samples.get(array.later)
        for index, metric in enumerate(array.ids):
            result = self._next((GPM, device, metric))
            if result is None:
                array.store(index, NOT_SUPPORTED, 0.0)
            else:
                code, value = result
                array.store(index, int(code), float(value))


def open_trace(path: str) -> ReplayDriver:
    """Return what stands in for the driver of the machine that was traced. Raises SourceError."""
    try:
        return ReplayDriver(DriverTrace(Path(path)), time.sleep)
    except DriverTraceError as error:
        raise SourceError(str(error)) from error


def _thaw(value: Any) -> Any:
    if isinstance(value, dict):
        return value["is"] if set(value) == {"is"} else value
    return tuple(_thaw(part) for part in value) if isinstance(value, list) else value


def _question(name: str, args: Sequence[Any]) -> object:
    """Return a request, without the buffer for the answer and without the time to wait."""
    if name == "nvmlGpmSampleFree":
        return name
    if name in SAMPLE_CALLS:
        return (name, *args[:-1])
    if name == WAIT:
        return name, args[0]
    return (name, *args)
