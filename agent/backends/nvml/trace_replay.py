"""Plays a trace of driver calls in place of the NVIDIA driver: the same answers, on a machine without a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import FUNCTION_NOT_FOUND, NOT_SUPPORTED, TIMEOUT, DriverError
from agent.backends.nvml.trace import FIELDS, GPM, TAKES, WAIT, fill_slot, gpm_samples, sampled_part
from agent.backends.nvml.trace_file import DriverTrace, DriverTraceError
from agent.backends.protocol import SourceError


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
        self._at: dict[object, int] = {}
        self._lock = threading.Lock()
        self._samples: dict[int, object] = {}
        self.unknown: set[object] = set()
        """Requests that were not made while recording."""
        for line in trace.calls:
            self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        name, args = line["call"], tuple(_thaw(each) for each in line["args"])
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
            at = self._at.get(question, 0)
            self._at[question] = at + 1
            return answers[min(at, len(answers) - 1)]

    def call(self, name: str, *args: Any) -> Any:
        if name == FIELDS:
            return self._fields(args[0], args[1])
        if name == GPM:
            return self._gpm(args[0])
        if name in TAKES:
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
            kind, value = answers.pop(0) if answers else ("code", TIMEOUT)
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
        device = self._samples.get(gpm_samples(array)[1])
        for index, metric in enumerate(array.ids):
            result = self._next((GPM, device, metric))
            code, value = (NOT_SUPPORTED, 0.0) if result is None else result
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
    return tuple(_thaw(each) for each in value) if isinstance(value, list) else value


def _question(name: str, args: Sequence[Any]) -> object:
    """Return a request, without the buffer for the answer and without the time to wait."""
    if name == "nvmlGpmSampleFree":
        return name
    if name in TAKES:
        return (name, *args[:-1])
    if name == WAIT:
        return name, args[0]
    return (name, *args)
