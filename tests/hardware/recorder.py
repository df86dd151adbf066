"""Records every driver call with its arguments and its answer, as lines of JSON, without what identifies a machine.

The first line is the provenance. Then one line for each call, in order:

    {"at": 0.1534, "us": 12, "call": "nvmlDeviceGetClockInfo", "args": [{"is": "gpu0"}, 1], "value": 1980}

`at` is seconds since the recording began, `us` how long the call took; `code` stands in place of `value` when
it ended with an error. Handles and other opaque things are `{"is": NAME}`. A batch of fields has `fields`, the
(field, scope) pairs, and `slots`: [type, value] each, or the field's own error code; GPM has `metrics` and
`results`, [code, value] each. The last line lists the metrics that the recorded run showed.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import Driver
from agent.backends.nvml.return_codes import DriverError
from tests.hardware.pseudonyms import Pseudonyms
from tests.hardware.spy import HANDLES

FORMAT = 1
FORMATS = ("<d", "<I4x", "<Q", "<Q", "<q", "<i4x", "<H6x")
"""How each nvmlValueType_t lies in the eight bytes of a field's value."""
RECORD = FieldArray.RECORD

Slot = list[int | float] | int


class LeakError(Exception):
    """The trace would hold an identifier; it is not written."""


def field_slots(array: FieldArray) -> list[Slot]:
    """What the library wrote: [type, value], or the field's error code."""
    slots: list[Slot] = []
    for i in range(array.count):
        kind, code = struct.unpack_from("<II", array.buffer, i * RECORD + 24)
        form = FORMATS[kind] if kind < len(FORMATS) else "<Q"
        (value,) = struct.unpack_from(form, array.buffer, i * RECORD + 32)
        slots.append(code or [kind, value])
    return slots


def fill_slot(array: FieldArray, index: int, slot: Slot) -> None:
    """Write one slot as the library does."""
    kind, value, code = (3, 0, slot) if isinstance(slot, int) else (int(slot[0]), slot[1], 0)
    struct.pack_into("<II", array.buffer, index * RECORD + 24, kind, code)
    struct.pack_into(FORMATS[kind] if kind < len(FORMATS) else "<Q", array.buffer, index * RECORD + 32, value)


def gpm_results(array: GpmArray) -> list[list[int | float]]:
    """[code, value] of each metric."""
    found: list[list[int | float]] = []
    for i in range(len(array.ids)):
        _, code, value = struct.unpack_from("<IId", array.buffer, 24 + i * 40)
        found.append([code, value])
    return found


def gpm_samples(array: GpmArray) -> tuple[int, int]:
    """The addresses of the earlier and the later sample."""
    earlier, later = struct.unpack_from("<QQ", array.buffer, 8)
    return earlier, later


class RecordingDriver:
    """Implements `Driver`: passes each call on and notes it."""

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
            self._kept.append(value)  # so that its address is not given out again
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
        """Write the trace; its size in bytes. Raises LeakError and OSError."""
        data = self.text(provenance, shown).encode()
        path.write_bytes(data)
        return len(data)
