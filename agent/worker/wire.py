"""What the device worker and the main process say to each other: one JSON value a line, each way.

JSON, because a worker whose library scribbled over its memory may write anything: the reader must be
able to refuse every byte string without harm. What seldom changes (the channels, the series of a
channel's lane, its gaps, its processes) is sent when it changes; a sample is then a list of numbers.

Worker to main: `hello`, `absent`, `failed`, `layout`, `gaps`, `processes`, `sample`, `error`, `xid`.
Main to worker: the lanes of a tick, such as `fast slow`, or `stop`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import isfinite
from typing import Any

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample
from agent.catalogue import BY_NAME
from agent.model import (
    Entity,
    Gap,
    Gpu,
    GpuIdentity,
    IbPort,
    Lane,
    Node,
    NvLink,
    Reading,
    Reason,
    Series,
    Xid,
)

MAX_LINE = 4 * 2**20
"""A longer line cannot be a message of ours: 72 links with every error type stay far below."""


_NUMBERS = {int, float}
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
# Readings are made by the hundred at each tick: this makes them without a call of Python code for each.
_MAKE_READING = tuple.__new__
_OF_READING = repeat(Reading)


class WireError(ValueError):
    """The line is no message of ours."""


def encode(kind: str, *parts: object) -> bytes:
    """One message as a line."""
    return _ENCODE([kind, *parts]).encode() + b"\n"


def encode_entity(entity: Entity) -> list[object]:
    if isinstance(entity, Gpu):
        return ["gpu", entity.index, entity.uuid]
    if isinstance(entity, NvLink):
        return ["nvlink", entity.gpu.index, entity.gpu.uuid, entity.link]
    if isinstance(entity, IbPort):
        return ["ib", entity.device, entity.port]
    if isinstance(entity, Node):
        return ["node"]
    raise WireError(f"a worker has no readings of {entity}")


def decode_entity(parts: list[Any]) -> Entity:
    match parts:
        case ["gpu", str(index), str(uuid)]:
            return Gpu(index, uuid)
        case ["nvlink", str(index), str(uuid), int(link)]:
            return NvLink(Gpu(index, uuid), link)
        case ["ib", str(device), str(port)]:
            return IbPort(device, port)
        case ["node"]:
            return Node()
    raise WireError(f"no entity: {parts!r:.80}")


def encode_series(series: Sequence[Series]) -> list[list[object]]:
    return [[each.metric.name, encode_entity(each.entity), each.labels] for each in series]


def decode_series(rows: list[Any]) -> tuple[Series, ...]:
    made = []
    for name, entity, labels in rows:
        made.append(Series(BY_NAME[name], decode_entity(entity), tuple((str(k), str(v)) for k, v in labels)))
    return tuple(made)


def encode_gaps(gaps: Sequence[Gap]) -> list[list[object]]:
    return [[gap.metric.name, encode_entity(gap.entity), gap.reason.value, gap.detail] for gap in gaps]


def decode_gaps(rows: list[Any]) -> tuple[Gap, ...]:
    return tuple(
        Gap(BY_NAME[name], decode_entity(entity), Reason(reason), str(detail)) for name, entity, reason, detail in rows
    )


def encode_processes(processes: Sequence[GpuProcess] | None) -> list[list[object]] | None:
    return None if processes is None else [[each.pid, each.memory, each.instance] for each in processes]


def decode_processes(rows: list[Any] | None) -> tuple[GpuProcess, ...] | None:
    return None if rows is None else tuple(_process(row) for row in rows)


def _process(row: list[Any]) -> GpuProcess:
    match row:
        case [int(pid), int() | None as memory, int() | None as instance]:
            return GpuProcess(pid, memory, instance)
    raise WireError(f"no process: {row!r:.80}")


def encode_identity(key: str, identity: GpuIdentity | None) -> list[object]:
    if identity is None:
        return [key]
    gpu = identity.gpu
    return [key, gpu.index, gpu.uuid, identity.slot, identity.serial, identity.model, identity.facts]


def decode_identity(row: list[Any]) -> tuple[str, GpuIdentity | None]:
    match row:
        case [str(key)]:
            return key, None
        case [str(key), str(index), str(uuid), str(slot), str(serial), str(model), list(facts)]:
            pairs = tuple((str(k), str(v)) for k, v in facts)
            return key, GpuIdentity(Gpu(index, uuid), slot, serial, model, pairs)
    raise WireError(f"no channel: {row!r:.80}")


def _finite(number: float) -> float:
    """A time: one that is not finite would never be old."""
    if not isfinite(number):
        raise WireError(f"no time: {number!r}")
    return float(number)


@dataclass(frozen=True, slots=True)
class Hello:
    """The source is open; these are its channels, in the order in which they are numbered."""

    source: str
    channels: tuple[tuple[str, GpuIdentity | None], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The source could not be opened (`absent`: nothing there to open), or broke as a whole."""

    absent: bool
    detail: str


Message = Hello | Refusal | LaneSample | ChannelError | tuple[Xid, ...]


class Decoder:
    """Turns lines into messages, remembering each channel's layouts, gaps and processes."""

    def __init__(self) -> None:
        self._channels: tuple[str, ...] = ()
        self._layouts: dict[tuple[int, str], tuple[Series, ...]] = {}
        self._gaps: dict[tuple[int, str], tuple[Gap, ...]] = {}
        self._processes: dict[tuple[int, str], tuple[GpuProcess, ...] | None] = {}

    def decode(self, line: bytes) -> Message | None:
        """The message of a line; None if it only changed what is remembered. Raises WireError."""
        try:
            return self._decode(json.loads(line))
        except WireError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise WireError(f"{type(error).__name__}: {error}") from error

    def _decode(self, message: list[Any]) -> Message | None:
        kind = message[0]
        if kind == "sample":
            return self._sample(*message[1:])
        if kind == "layout":
            _, channel, lane, rows = message
            self._layouts[channel, lane] = decode_series(rows)
            return None
        if kind == "gaps":
            _, channel, lane, rows = message
            self._gaps[channel, lane] = decode_gaps(rows)
            return None
        if kind == "processes":
            _, channel, lane, rows = message
            self._processes[channel, lane] = decode_processes(rows)
            return None
        if kind == "error":
            _, channel, lane, mono, reason, detail = message
            return ChannelError(self._channels[channel], Lane(lane), _finite(mono), Reason(reason), str(detail))
        if kind == "xid":
            return tuple(Xid(str(d), int(c), _finite(w), str(r), str(t)) for d, c, w, r, t in message[1])
        if kind == "hello":
            channels = tuple(decode_identity(row) for row in message[2])
            self._channels = tuple(key for key, _ in channels)
            return Hello(str(message[1]), channels)
        if kind in ("absent", "failed"):
            return Refusal(kind == "absent", str(message[1]))
        raise WireError(f"unknown message {kind!r:.40}")

    def _sample(
        self, channel: int, lane: str, mono: float, duration: float, calls: int, values: list[float]
    ) -> LaneSample:
        layout = self._layouts[channel, lane]
        if len(layout) != len(values):
            raise WireError(f"{len(values)} values for {len(layout)} series")
        if not _NUMBERS.issuperset(map(type, values)):
            raise WireError("a value that is no number")
        return LaneSample(
            self._channels[channel],
            Lane(lane),
            _finite(mono),
            _finite(duration),
            int(calls),
            tuple(map(_MAKE_READING, _OF_READING, zip(layout, values, strict=True))),
            self._gaps.get((channel, lane), ()),
            self._processes.get((channel, lane)),
        )
