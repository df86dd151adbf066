"""Decodes a worker's lines to messages, and trusts none of them.

A worker shares its memory with a driver library that may have corrupted it. So every name, label, number and text is
checked against the catalogue and the bounds of `worker_messages` before it is kept or shown, and a single wrong message
does no lasting harm: a sample that refers to another edition of its layout is rejected, and changes of the devices are
accepted when they were sent twice. A worker may report only rows that its source reads, and entities of its channel: a
GPU and its links, or everything that is not a GPU's.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample, Unidentified
from agent.catalogue import BY_NAME, ROWS, equipment, optics
from agent.catalogue.bindings import Call, DeviceValue, Field, Gpm, is_measured
from agent.model import (
    EMPTY_LAYOUT,
    Entity,
    Frame,
    Gap,
    Gpu,
    GpuIdentity,
    IbPort,
    Labels,
    Lane,
    Layout,
    Metric,
    Node,
    NvLink,
    Reason,
    Series,
    Xid,
)
from agent.worker import worker_messages as limits
from agent.worker.worker_messages import Alive, Hello, Message, MessageError, Refusal, check_channels, unseal

JOBS, JOB_SM = "coldplate_gpu_job_info", "coldplate_gpu_job_sm_ratio"
_OF_SYNTHETIC = frozenset(
    {
        JOBS,
        "coldplate_gpu_job_memory_used_bytes",
        "coldplate_job_info",
        "coldplate_job_start_timestamp_seconds",
        "coldplate_job_gpus",
        "coldplate_job_processes",
        "coldplate_job_energy_joules_total",
        "coldplate_node_power_watts",
        "coldplate_node_nvswitch_sxid_errors_total",
        *(row.name for row in (*optics.ROWS, *equipment.ROWS)),
    }
)


def rows_of(source: str) -> Mapping[str, Metric]:
    """Return the rows by name.

    `source` is a family of devices; a `synthetic` node has its ports, power, water and jobs.
    """
    of_gpus = (row for row in ROWS if row.entity in (Gpu, NvLink))
    if source == "synthetic":
        node_rows = (row for row in ROWS if row.name in _OF_SYNTHETIC or row.entity is IbPort)
        return {row.name: row for row in (*node_rows, *filter(is_measured, of_gpus))}
    return {row.name: row for row in of_gpus if any(_family(b) == source for b in row.origin)}


def missable(source: str) -> Mapping[str, Metric]:
    """Return the rows that may be reported as missing: of jobs, too, if the driver does not list processes."""
    return {**rows_of(source), **{name: BY_NAME[name] for name in (JOBS, JOB_SM)}}


def _family(binding: object) -> str | None:
    """Return the family of devices that reads a binding; None if none does."""
    if isinstance(binding, DeviceValue):
        return binding.family
    return "nvml" if isinstance(binding, Field | Call | Gpm) else None


Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[float, Meta(ge=0, le=1e15)]
"""Seconds, finite: any other time would never become old."""
Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME)]
LabelValue = Annotated[str, Meta(max_length=limits.LABEL)]
Detail = Annotated[str, Meta(max_length=limits.TEXT)]


class _Tagged(Struct, array_like=True, forbid_unknown_fields=True):
    """A list: the tag of its class, and these items."""


class _NodeName(_Tagged, tag="node"):
    pass


class _PortName(_Tagged, tag="ib"):
    device: Name
    port: Name


class _GpuName(_Tagged, tag="gpu"):
    index: str
    uuid: str


class _LinkName(_Tagged, tag="nvlink"):
    index: str
    uuid: str
    link: Annotated[int, Meta(ge=0, lt=limits.LINKS)]


_EntityName = _NodeName | _PortName | _GpuName | _LinkName
_Pairs = tuple[tuple[str, LabelValue], ...]
_Facts = Annotated[_Pairs, Meta(max_length=limits.FACTS)]
_Gpu = tuple[Name, LabelValue, LabelValue, LabelValue, _Facts]
"""Index, slot, serial, model and facts; the UUID is the channel's key."""
_Missing = tuple[Name, Reason, Detail]
_SeriesRow = tuple[str, _EntityName, _Pairs]
_GapRow = tuple[str, _EntityName, Reason, Detail]
_Process = tuple[
    Annotated[int, Meta(ge=0, lt=limits.PID)],
    Annotated[int, Meta(ge=0)] | None,
    Annotated[int, Meta(ge=0, lt=2**32)] | None,
    Annotated[float, Meta(ge=0, le=1)] | None,
]
_Event = tuple[
    Name, Annotated[int, Meta(ge=0, lt=limits.CODE)], Annotated[float, Meta(ge=0, le=1e11)], Literal["nvml"], Detail
]


class _Hello(_Tagged, tag="hello"):
    source: str
    channels: Annotated[tuple[tuple[Name, _Gpu | None], ...], Meta(max_length=limits.CHANNELS)]
    missing: Annotated[tuple[_Missing, ...], Meta(max_length=limits.CHANNELS)]


class _Alive(_Tagged, tag="alive"):
    order: Whole


class _Absent(_Tagged, tag="absent"):
    detail: Detail


class _Failed(_Tagged, tag="failed"):
    detail: Detail


class _Xids(_Tagged, tag="xid"):
    number: Whole
    events: Annotated[tuple[_Event, ...], Meta(max_length=limits.EVENTS)]


class _OfLane(_Tagged):
    channel: Whole
    lane: Lane


class _Layout(_OfLane, tag="layout"):
    edition: Whole
    series: Annotated[tuple[_SeriesRow, ...], Meta(max_length=limits.SERIES_OF_LANE)]


class _Gaps(_OfLane, tag="gaps"):
    edition: Whole
    gaps: Annotated[tuple[_GapRow, ...], Meta(max_length=limits.GAPS_OF_LANE)]


class _Error(_OfLane, tag="error"):
    mono: Moment
    reason: Reason
    detail: Detail


class _Sample(_OfLane, tag="sample"):
    editions: tuple[Whole, Whole]
    mono: Moment
    duration: Annotated[float, Meta(ge=0, le=limits.DURATION_SECONDS)]
    calls: Annotated[int, Meta(ge=0, lt=limits.CALLS)]
    values: tuple[int | float, ...]
    processes: Annotated[tuple[_Process, ...], Meta(max_length=limits.PROCESSES)] | None = None


_AnyMessage = _Sample | _Alive | _Layout | _Gaps | _Error | _Xids | _Hello | _Absent | _Failed
_decoder = msgspec.json.Decoder(_AnyMessage)


def _parsed(body: bytes) -> _AnyMessage:
    """Return a message. The standard library reads NaN, which a driver may report, at ten times the cost."""
    try:
        message: _AnyMessage = _decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        message = msgspec.convert(json.loads(body), _AnyMessage)
    if not isinstance(message, (_Sample, _Layout)):  # one has no text, the other many names that must be known ones
        _check_texts(message)
    return message


def _check_texts(part: object) -> None:
    """Check that all texts are printable: they become values of labels and parts of log lines."""
    if isinstance(part, str) and not part.isprintable():
        raise MessageError(f"an unprintable text: {part!r:.60}")
    if isinstance(part, (tuple, Struct)):
        for p in part if isinstance(part, tuple) else astuple(part):
            _check_texts(p)


class _LaneState(Struct):
    """What the samples of one lane of a channel refer to, and the time of the newest one."""

    layout_edition: int = 0
    layout: Layout = EMPTY_LAYOUT
    gaps_edition: int = 0
    gaps: tuple[Gap, ...] = ()
    newest: float = -1.0

    def advance(self, mono: float) -> None:
        if mono <= self.newest:
            raise MessageError("a sample that is not newer than the previous one")
        self.newest = mono


class Decoder:
    """Reads one worker's lines, remembering the layouts and gaps of each channel's lanes."""

    def __init__(self, source: str, before: Decoder | None = None) -> None:
        """`source` is the one that the worker opens: it decides which rows the worker may report. `before` read an
        earlier worker's lines: a layout equal to one of its layouts stays the same object, which other parts hold.
        """
        self._source = source
        self._inherited: dict[tuple[str, Lane], Layout] = {} if before is None else before.legacy
        self._rows, self._missable = rows_of(source), missable(source)
        self._hello: Hello | None = None
        self._last_hello: _Hello | None = None
        """Accepted or not."""
        self._channels: tuple[tuple[str, GpuIdentity | None], ...] = ()
        self._gpus: dict[tuple[str, str], Gpu] = {}
        self._entities: dict[Entity, Entity] = {}
        """Links and ports, each only once."""
        self._lanes: dict[tuple[int, Lane], _LaneState] = {}
        self._owners: dict[Series, _LaneState] = {}
        self._events = 0
        self._methods: dict[type, Callable[[Any], Message | Alive | None]] = {
            _Sample: self._decode_sample,
            _Layout: self._decode_layout,
            _Gaps: self._decode_gaps,
            _Error: self._decode_error,
            _Xids: self._decode_xids,
            _Hello: self._decode_hello,
            _Alive: lambda message: Alive(message.order),
            _Absent: lambda message: Refusal(True, message.detail),
            _Failed: lambda message: Refusal(False, message.detail),
        }

    @property
    def legacy(self) -> dict[tuple[str, Lane], Layout]:
        """The last layout of each channel's lane: this worker's or, if it has sent none, that of an earlier worker.

        By the channel's key: it has another number where a GPU before it is lost or back.
        """
        own = {(self._channels[number][0], lane): state.layout for (number, lane), state in self._lanes.items()}
        return self._inherited | {key: layout for key, layout in own.items() if layout is not EMPTY_LAYOUT}

    def decode(self, line: bytes) -> Message | Alive | None:
        """Return the message of a line; None if it only changed what is remembered. Raises MessageError."""
        body = unseal(line)
        try:
            message = _parsed(body)
            return self._methods[type(message)](message)
        except MessageError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise MessageError(f"{type(error).__name__}: {error}"[: limits.TEXT]) from error

    def _decode_hello(self, message: _Hello) -> Hello | None:
        """Believe a hello that comes twice in a row; a worker's channels stay, and others may only join them."""
        before, self._last_hello = self._last_hello, message
        if message.source != self._source:
            raise MessageError(f"the source is {message.source!r:.40}, not {self._source}")
        channels = tuple(
            (key, None if gpu is None else GpuIdentity(Gpu(gpu[0], key), *gpu[1:])) for key, gpu in message.channels
        )
        check_channels(channels)
        missing = tuple(Unidentified(*m) for m in message.missing)
        gpus = [identity.gpu for _, identity in channels if identity is not None]
        indexes = [gpu.index for gpu in gpus] + [m.index for m in missing]
        if len(set(indexes)) != len(indexes) or not (channels or message.missing):
            raise MessageError("no device at all, or two with the same index")
        previous = self._channels
        if channels[: len(previous)] != previous:
            raise MessageError("a channel changed its identity")
        hello = Hello(self._source, channels, missing)
        if message != before or hello == self._hello:
            return None
        self._hello, self._channels = hello, channels
        self._gpus = {(gpu.index, gpu.uuid): gpu for gpu in gpus}
        return hello

    def _state(self, message: _OfLane) -> _LaneState:
        if message.channel >= len(self._channels) or message.lane is Lane.EVENT:
            raise MessageError(f"no such channel or lane: {message.channel}, {message.lane.value}")
        return self._lanes.setdefault((message.channel, message.lane), _LaneState())

    def _decode_layout(self, message: _Layout) -> None:
        state = self._state(message)
        layout_series = tuple(self._series(message.channel, *row) for row in message.series)
        if len(set(layout_series)) != len(layout_series):
            raise MessageError("a duplicate series")
        if any(self._owners.get(series, state) is not state for series in layout_series):
            raise MessageError("a series already belongs to another lane")
        if len(self._owners) - len(state.layout) + len(layout_series) > limits.SERIES:
            raise MessageError(f"more than {limits.SERIES} series")
        if layout_series != state.layout.series:
            for s in state.layout.series:
                del self._owners[s]
            key = (self._channels[message.channel][0], message.lane)
            inherited = self._inherited.get(key, EMPTY_LAYOUT)
            # Equal series keep their layout: other code knows it by identity.
            state.layout = inherited if inherited.series == layout_series else Layout(layout_series)
            self._owners.update(dict.fromkeys(state.layout.series, state))
        state.layout_edition = message.edition

    def _series(self, channel: int, name: str, parts: _EntityName, labels: Labels) -> Series:
        metric, entity = self._rows[name], self._entity(channel, parts)
        if type(entity) is not metric.entity:
            raise MessageError(f"{name} does not belong to {entity}")
        if tuple(label for label, _ in labels) != metric.labels:
            raise MessageError(f"{metric.name} has the labels {metric.labels}, not {labels!r:.80}")
        _check_texts(labels)
        return Series(metric, entity, labels)

    def _entity(self, channel: int, name: _EntityName) -> Entity:
        """Return the entity of this name, if the channel may report it. Raises MessageError and KeyError."""
        own = self._channels[channel][1]
        if isinstance(name, (_GpuName, _LinkName)):
            gpu = self._gpus[name.index, name.uuid]
            if own is not None and gpu is not own.gpu:
                raise MessageError(f"{own.gpu} reports {gpu}")
            if isinstance(name, _GpuName):
                return gpu
            link = NvLink(gpu, name.link)
            return self._entities.setdefault(link, link)
        if own is not None:
            raise MessageError(f"{own.gpu} reports {name!r:.80}")
        if isinstance(name, _NodeName):
            return Node()
        _check_texts(name)
        port = IbPort(name.device, name.port)
        if port not in self._entities and sum(type(e) is IbPort for e in self._entities) >= limits.PORTS:
            raise MessageError(f"more than {limits.PORTS} ports")
        return self._entities.setdefault(port, port)

    def _decode_gaps(self, message: _Gaps) -> None:
        state = self._state(message)
        gaps = tuple(
            Gap(self._missable[name], self._entity(message.channel, parts), reason, detail)
            for name, parts, reason, detail in message.gaps
        )
        if sum(len(lane_state.gaps) for lane_state in self._lanes.values()) - len(state.gaps) + len(gaps) > limits.GAPS:
            raise MessageError(f"more than {limits.GAPS} gaps")
        state.gaps_edition, state.gaps = message.edition, gaps

    def _decode_xids(self, message: _Xids) -> tuple[Xid, ...]:
        """Return the events of a message: it is numbered, so that one that comes twice counts once."""
        if message.number <= self._events:
            raise MessageError("XID errors that were already sent")
        self._events = message.number
        return tuple(Xid(*event) for event in message.events)

    def _decode_error(self, message: _Error) -> ChannelError:
        self._state(message).advance(message.mono)
        key = self._channels[message.channel][0]
        return ChannelError(key, message.lane, message.mono, message.reason, message.detail)

    def _decode_sample(self, message: _Sample) -> LaneSample:
        state, values, processes = self._state(message), message.values, message.processes
        if message.editions != (state.layout_edition, state.gaps_edition):
            raise MessageError(f"a sample with editions {message.editions!r:.60}, which are not the last ones sent")
        if len(state.layout) != len(values):
            raise MessageError(f"{len(values)} values for {len(state.layout)} series")
        # Each raises OverflowError for a whole number with which nothing can be computed.
        array("d", values)
        array("Q", [memory for _, memory, _, _ in processes or () if memory is not None])
        state.advance(message.mono)
        return LaneSample(
            self._channels[message.channel][0],
            message.lane,
            message.mono,
            message.duration,
            message.calls,
            Frame(state.layout, values),
            state.gaps,
            None if processes is None else tuple(GpuProcess(*p) for p in processes),
        )
