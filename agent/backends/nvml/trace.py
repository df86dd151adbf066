"""The trace of a driver: the answers of one machine, call by call, in lines of JSON, without what identifies it.

The first line is the provenance. Then one line for each call, in order:

    {"at": 0.1534, "us": 12, "call": "nvmlDeviceGetClockInfo", "args": [{"is": "gpu0"}, 1], "value": 1980}

`at` is seconds since the recording started, `us` the duration of the call in microseconds; `code` replaces
`value` if it failed. Handles and other opaque things are `{"is": NAME}`. A batch of fields has
`fields`, the (field, scope) pairs, and `slots`: [type, value] each, or the field's own error code; GPM has `metrics`
and `results`, [code, value] each. The last line lists the metrics that the recorded run showed.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import Driver, DriverError

FORMAT = 1

Slot = list[int | float] | int
"""A field's type and value, or its error code."""


def fill_slot(array: FieldArray, index: int, slot: Slot) -> None:
    code, kind, value = (slot, 3, 0) if isinstance(slot, int) else (0, int(slot[0]), slot[1])
    array.store(index, code, kind, value)


_UUID = re.compile(r"^(GPU|MIG)-.+$")
_SHORT = 6
"""Originals shorter than this are not searched for in free text: `0` is a serial number on some boards."""

_KINDS = {"nvmlDeviceGetUUID": "uuid", "nvmlDeviceGetSerial": "serial", "nvmlDeviceGetBoardPartNumber": "part"}


class Pseudonyms:
    """Replaces what identifies a machine: UUIDs, serials, board parts, cluster ids, host names.

    The same original always gets the same pseudonym within one run, so that lines still belong together.
    """

    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self._known: dict[str, str] = {host: "HOST" for host in hosts if host}
        self._counts: dict[str, int] = {}

    def _stand_in(self, kind: str, original: str) -> str:
        if original not in self._known:
            n = self._counts[kind] = self._counts.get(kind, 0) + 1
            made = {
                "uuid": f"{original[:4]}00000000-0000-4000-8000-{n:012x}",
                "serial": f"{n:013d}",
                "part": f"PART-{n:04d}",
                "cluster": f"{n:032x}",
            }
            self._known[original] = made[kind]
        return self._known[original]

    def of(self, call: str, value: Any) -> Any:
        """Return an argument or the answer of an NVML call, without identifying parts."""
        if isinstance(value, dict):
            cluster = value.get("cluster_uuid")
            if isinstance(cluster, str) and cluster.strip("0"):
                return {**value, "cluster_uuid": self._stand_in("cluster", cluster)}
            return value
        if not isinstance(value, str) or not value:
            return value
        kind = "uuid" if _UUID.match(value) else _KINDS.get(call)
        return value if kind is None else self._stand_in(kind, value)

    def learn(self, uuid: str, serial: str, part: str) -> None:
        """Learn a GPU's identifiers before they occur."""
        for kind, original in (("uuid", uuid), ("serial", serial), ("part", part)):
            if original:
                self._stand_in(kind, original)

    def scrub(self, text: str) -> str:
        """Free text with every known original replaced; the longest first, because one may contain another."""
        for original in sorted(self._known, key=len, reverse=True):
            if len(original) >= _SHORT or self._known[original] == "HOST":
                text = re.sub(rf"(?<![\w-]){re.escape(original)}(?![\w-])", self._known[original], text)
        return text

    def left_in(self, text: str) -> list[str]:
        """Originals that the text still contains."""
        for pseudonym in set(self._known.values()):
            text = text.replace(pseudonym, "")
        return [each for each in self._known if len(each) >= _SHORT and each in text]


HANDLES = frozenset(
    {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigDeviceHandleByIndex"}
)
"""Calls that answer with a device's handle."""

FIELDS, GPM = "nvmlDeviceGetFieldValues", "nvmlGpmMetricsGet"
"""Calls that fill an array."""
WAIT = "nvmlEventSetWait_v2"
TAKES = ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet")
"""Calls that take a sample, which is their last argument: of a GPU, and of a GPU instance."""


def sampled_part(device: object, args: Sequence[Any]) -> str:
    """Return what a sample is of: the device, or its GPU instance, which is the argument between device and sample."""
    return "/".join(map(str, (device, *args[1:-1])))


class IdentifierLeakError(Exception):
    """The trace would contain an identifier; it is not written."""


class RecordingDriver:
    """Implements `Driver`: passes each call on and records it, with its arguments and its answer."""

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
            plain = [each for each in args if not isinstance(each, FieldArray | GpmArray)]
            line["args"] = [self._plain(name, each) for each in plain]
            if name in (*TAKES, "nvmlGpmSampleFree"):
                line["args"][-1] = {"is": self._token("sample", plain[-1])}
            array = next((each for each in args if isinstance(each, FieldArray | GpmArray)), None)
            if isinstance(array, FieldArray):
                line["fields"] = [list(pair) for pair in array.pairs]
            elif isinstance(array, GpmArray):
                line["metrics"] = list(array.ids)
                line["device"] = self._devices.get(array.later, "")
            if failed is not None:
                line |= failed
            elif isinstance(array, FieldArray):
                stored = map(array.stored, range(array.count))
                line["slots"] = [code or [kind, value] for code, kind, value in stored]
            elif isinstance(array, GpmArray):
                line["results"] = list(zip(*array.stored(), strict=True))
            else:
                if name == "nvmlDeviceGetHandleByIndex_v2":
                    self._tokens.setdefault(answer, f"gpu{args[0]}")
                line["value"] = self._answer(name, answer)
            if name in TAKES:
                self._devices[int(args[-1])] = sampled_part(self._token("gpu", args[0]), args)
            self.lines.append(json.dumps(line, separators=(",", ":")))

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
        """Return the whole trace. Raises IdentifierLeakError."""
        head = json.loads(self._names.scrub(json.dumps({"trace": FORMAT, **provenance})))
        text = "\n".join([json.dumps(head), *self.lines, json.dumps({"shown": shown})]) + "\n"
        left = self._names.left_in(text)
        if left:
            raise IdentifierLeakError(f"{len(left)} identifiers of this machine are still in the trace")
        return text
