"""Records every driver call with its arguments and its answer, without what identifies a machine: see `trace.py`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import Driver
from agent.backends.nvml.return_codes import DriverError
from agent.backends.nvml.trace.answer_slots import field_slots, gpm_results, gpm_samples
from agent.backends.nvml.trace.pseudonyms import Pseudonyms
from agent.backends.nvml.trace.trace import FORMAT

HANDLES = frozenset(
    {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigDeviceHandleByIndex"}
)
"""Calls that answer with a device's handle."""


class LeakError(Exception):
    """The trace would contain an identifier; it is not written."""


class RecordingDriver:
    """Implements `Driver`: passes each call on and records it."""

    def __init__(self, inner: Driver, clock: Callable[[], float], names: Pseudonyms) -> None:
        self._inner = inner
        self._clock = clock
        self._names = names
        self._began = clock()
        self._lock = threading.Lock()
        self._tokens: dict[Any, str] = {}
        self._kept: list[Any] = []
        self._devices: dict[int, str] = {}
        self.lines: list[str] = []

    def call(self, name: str, *args: Any) -> Any:
        began = self._clock()
        try:
            answer = self._inner.call(name, *args)
        except DriverError as error:
            self._note(name, args, began, {"code": error.code})
            raise
        self._note(name, args, began, None, answer)
        return answer

    def _note(
        self, name: str, args: Sequence[Any], began: float, failed: dict[str, int] | None, answer: Any = None
    ) -> None:
        took = self._clock() - began
        with self._lock:
            line: dict[str, Any] = {"at": round(began - self._began, 6), "us": round(took * 1e6), "call": name}
            line["args"] = [self._argument(name, each) for each in args if not isinstance(each, FieldArray | GpmArray)]
            array = next((each for each in args if isinstance(each, FieldArray | GpmArray)), None)
            if isinstance(array, FieldArray):
                line["fields"] = [list(pair) for pair in array.pairs]
            elif isinstance(array, GpmArray):
                line["metrics"] = list(array.ids)
                line["device"] = self._devices.get(gpm_samples(array)[1], "")
            if failed is not None:
                line |= failed
            elif isinstance(array, FieldArray):
                line["slots"] = field_slots(array)
            elif isinstance(array, GpmArray):
                line["results"] = gpm_results(array)
            else:
                if name == "nvmlDeviceGetHandleByIndex_v2":
                    self._tokens.setdefault(answer, f"gpu{args[0]}")
                line["value"] = self._answer(name, answer)
            if name == "nvmlGpmSampleGet":
                self._devices[int(args[1])] = self._token("gpu", args[0])
            self.lines.append(json.dumps(line, separators=(",", ":")))

    def _argument(self, call: str, value: Any) -> Any:
        if call in ("nvmlGpmSampleGet", "nvmlGpmSampleFree") and isinstance(value, int):
            return {"is": self._token("sample", value)}
        return self._plain(call, value)

    def _answer(self, call: str, value: Any) -> Any:
        if call == "nvmlGpmSampleAlloc":
            return {"is": self._token("sample", value)}
        if call in HANDLES:
            return {"is": self._token("gpu", value)}
        return self._plain(call, value)

    def _plain(self, call: str, value: Any) -> Any:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value in self._tokens:
            return {"is": self._tokens[value]}  # a driver whose handles are text
        if value is None or isinstance(value, bool | int | float | str):
            return self._names.of(call, value)
        if isinstance(value, dict):
            return dict(self._names.of(call, value))
        if isinstance(value, tuple | list):
            return [self._plain(call, each) for each in value]
        return {"is": self._token("set" if "Event" in call else "gpu", value)}

    def _token(self, kind: str, value: Any) -> str:
        try:
            hash(value)
        except TypeError:  # an event set of pynvml's cannot be hashed
            key: Any = ("id", id(value))
        else:
            key = value
        if key not in self._tokens:
            self._kept.append(value)  # so that its address is not reused
            self._tokens[key] = f"{kind}{sum(each.startswith(kind) for each in self._tokens.values())}"
        return self._tokens[key]

    def text(self, provenance: Mapping[str, Any], shown: Mapping[str, Sequence[str]]) -> str:
        """The whole trace. Raises LeakError."""
        head = json.loads(self._names.scrub(json.dumps({"trace": FORMAT, **provenance})))
        text = "\n".join([json.dumps(head), *self.lines, json.dumps({"shown": shown})]) + "\n"
        left = self._names.left_in(text)
        if left:
            raise LeakError(f"{len(left)} identifiers of this machine are still in the trace")
        return text

    def write(self, path: Path, provenance: Mapping[str, Any], shown: Mapping[str, Sequence[str]]) -> int:
        """Write the trace; returns its size in bytes. Raises LeakError and OSError."""
        data = self.text(provenance, shown).encode()
        path.write_bytes(data)
        return len(data)
