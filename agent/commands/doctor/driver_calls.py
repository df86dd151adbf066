"""Record every driver call of a few samples, so that what this machine answers becomes a test of coldplate.

`coldplate doctor --bundle` runs this module in a process of its own, because a driver may hang or crash.
"""

import json
import logging
import os
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent import __version__
from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import Driver, DriverError
from agent.backends.nvml.nvml_source import NvmlSource
from agent.backends.nvml.trace import FORMAT, HANDLES, SAMPLE_CALLS, sampled_part
from agent.backends.protocol import AbsentError, SourceError
from agent.lib.clock import clock
from agent.model import LANES, GpuIdentity, Lane
from agent.recording.redaction import Redaction

TURNS = 12
PERIOD_SECONDS = 0.12
"""Seconds between samples: the driver's performance counters need more than 0.1."""
STAND_IN = "stand-in"
"""What the tests' library for libnvidia-ml.so.1 says of itself in its error texts."""


KINDS = {"nvmlDeviceGetUUID": "uuid", "nvmlDeviceGetSerial": "serial", "nvmlDeviceGetBoardPartNumber": "part"}
"""Calls whose answers identify the machine, and the kinds of their pseudonyms."""


class IdentifierLeakError(Exception):
    """The trace would contain an identifier; it is not written."""


class RecordingDriver:
    """Implements `Driver`: passes each call on and records it, with its arguments and its answer."""

    def __init__(self, inner: Driver, clock: Callable[[], float], names: Redaction) -> None:
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
            self._record_call(name, args, began, {"code": error.code})
            raise
        self._record_call(name, args, began, None, answer)
        return answer

    def _record_call(
        self, name: str, args: Sequence[Any], began: float, failed: dict[str, int] | None, answer: Any = None
    ) -> None:
        took = self._clock() - began
        with self._lock:
            line: dict[str, Any] = {"at": round(began - self._began, 6), "us": round(took * 1e6), "call": name}
            plain = [argument for argument in args if not isinstance(argument, FieldArray | GpmArray)]
            line["args"] = [self._plain(name, argument) for argument in plain]
            if name in (*SAMPLE_CALLS, "nvmlGpmSampleFree"):
                line["args"][-1] = {"is": self._token("sample", plain[-1])}
            array = next((argument for argument in args if isinstance(argument, FieldArray | GpmArray)), None)
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
            if name in SAMPLE_CALLS:
                self._devices[int(args[-1])] = sampled_part(self._token("gpu", args[0]), args)
            self.lines.append(json.dumps(line, separators=(",", ":")))

    def _answer(self, call: str, value: Any) -> Any:
        if call == "nvmlGpmSampleAlloc":
            return {"is": self._token("sample", value)}
        if call in HANDLES:
            return {"is": self._token("gpu", value)}
        return self._plain(call, value)

    def _plain(self, call: str, value: Any) -> Any:
        """Return an argument or an answer in JSON's types, with pseudonyms for what identifies the machine."""
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            if value in self._tokens:  # a driver whose handles are text
                return {"is": self._tokens[value]}
            kind = "uuid" if value.startswith(("GPU-", "MIG-")) else KINDS.get(call)
            return value if kind is None else self._names.pseudonym(kind, value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            cluster = value.get("cluster_uuid", "")
            replaced = {"cluster_uuid": self._names.pseudonym("cluster", cluster)} if cluster.strip("0") else {}
            return {**value, **replaced}
        if isinstance(value, tuple | list):
            return [self._plain(call, item) for item in value]
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
            self._tokens[key] = f"{kind}{sum(token.startswith(kind) for token in self._tokens.values())}"
        return self._tokens[key]

    def text(self, provenance: Mapping[str, Any], metrics_by_lane: Mapping[str, Sequence[str]]) -> str:
        """Return the whole trace. Raises IdentifierLeakError."""
        head, end = json.dumps({"trace": FORMAT, **provenance}), json.dumps({"shown": metrics_by_lane})
        text = "\n".join([head, *self.lines, end]) + "\n"
        if self._names.without_known(text) != text:
            raise IdentifierLeakError("an identifier of this machine is still in the trace")
        return text


def record_session(driver: Driver, names: Redaction) -> str:
    """Return the trace of opening the GPUs and reading each: the fast lane, and in the first and the last turn every
    lane. Raises AbsentError, SourceError and IdentifierLeakError.
    """
    recording = RecordingDriver(driver, lambda: clock().mono, names)
    source = NvmlSource(recording, wall=lambda: clock().wall)
    metrics_by_lane: dict[Lane, set[str]] = {lane: set() for lane in LANES}
    try:
        channels = source.open(clock())
        for turn in range(TURNS):
            for channel in channels:
                for lane in LANES if turn in (0, TURNS - 1) else (Lane.FAST,):
                    metrics_by_lane[lane] |= {reading.metric.name for reading in channel.read(lane, clock()).readings}
            time.sleep(PERIOD_SECONDS)
        identities = [channel.identity for channel in channels if channel.identity is not None]
        provenance = facts_of_trace(identities, driver, "coldplate doctor --bundle")
    finally:
        source.close()
    return recording.text(provenance, {lane.value: sorted(metrics) for lane, metrics in metrics_by_lane.items()})


def facts_of_trace(identities: list[GpuIdentity], driver: Driver, command: str) -> dict[str, Any]:
    """Return what a trace says about where it comes from; nothing of it identifies the machine."""
    facts = [dict(identity.facts) for identity in identities]
    models = Counter(identity.model or "unknown" for identity in identities)
    answer: Any = driver.call("nvmlErrorString", 999)
    return {
        "stand_in": STAND_IN in (answer.decode() if isinstance(answer, bytes) else str(answer)),
        "GPUs": ", ".join(f"{number} x {model}" for model, number in models.items()),
        "driver": ", ".join(sorted({gpu_facts.get("driver_version", "?") for gpu_facts in facts})),
        "VBIOS": ", ".join(sorted({gpu_facts.get("vbios", "?") for gpu_facts in facts})),
        "date": time.strftime("%Y-%m-%d", time.gmtime(clock().wall)),
        "coldplate": __version__,
        "Python": platform.python_version(),
        "command": command,
    }


def main() -> int:
    """Write the trace to standard output; without one, return exit status 3 and say why on standard error.

    Standard input is the key of the pseudonyms; if it is a terminal or empty, they are those of this trace alone.
    """
    from agent.backends.nvml.pynvml_driver import PynvmlDriver

    logging.disable()
    key = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        trace = record_session(PynvmlDriver(), Redaction(key or os.urandom(32)))
    except (AbsentError, SourceError, IdentifierLeakError, ImportError) as error:
        print(error, file=sys.stderr)
        return 3
    sys.stdout.write(trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
