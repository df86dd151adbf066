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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from agent.backends.protocol import ChannelError, LaneSample
from agent.catalogue import BY_NAME, ROWS, equipment, optics
from agent.catalogue.bindings import Call, DeviceValue, Field, Gpm, is_measured
from agent.model import (
    EMPTY_LAYOUT,
    LANES,
    Entity,
    Frame,
    Gap,
    Gpu,
    GpuIdentity,
    IbPort,
    Lane,
    Layout,
    Metric,
    Node,
    NvLink,
    Reason,
    Series,
    Xid,
)
from agent.worker import message_checks, worker_messages
from agent.worker.worker_messages import LINKS, PORTS, Alive, Hello, Message, MessageError, Refusal, unseal

JOBS, JOB_SM = "coldplate_gpu_job_info", "coldplate_gpu_job_sm_ratio"
_OF_SYNTHETIC = frozenset(
    {
        JOBS, "coldplate_gpu_job_memory_used_bytes",
        "coldplate_job_info", "coldplate_job_start_timestamp_seconds", "coldplate_job_gpus",
        "coldplate_job_processes", "coldplate_job_energy_joules_total", "coldplate_node_power_watts",
        "coldplate_node_nvswitch_sxid_errors_total",
        *(row.name for row in (*optics.ROWS, *equipment.ROWS)),
    }
)  # fmt: skip


def rows_of(source: str) -> Mapping[str, Metric]:
    """Return the rows by name.

    `source` is a family of devices; a `synthetic` node has its ports, power, water and jobs.
    """
    of_gpus = (row for row in ROWS if row.entity in (Gpu, NvLink))
    if source == "synthetic":
        others = (row for row in ROWS if row.name in _OF_SYNTHETIC or row.entity is IbPort)
        return {row.name: row for row in (*others, *filter(is_measured, of_gpus))}
    return {row.name: row for row in of_gpus if any(_family(each) == source for each in row.origin)}


def missable(source: str) -> Mapping[str, Metric]:
    """Return the rows that may be reported as missing: of jobs, too, if the driver does not list processes."""
    return {**rows_of(source), **{name: BY_NAME[name] for name in (JOBS, JOB_SM)}}


def _family(binding: object) -> str | None:
    """Return the family of devices that reads a binding; None if none does."""
    if isinstance(binding, DeviceValue):
        return binding.family
    return "nvml" if isinstance(binding, Field | Call | Gpm) else None


class Entities:
    """Makes the entities of messages, each only once."""

    def __init__(self) -> None:
        self._own: list[Gpu | None] = []
        self._gpus: dict[tuple[str, str], Gpu] = {}
        self._links: dict[tuple[Gpu, int], NvLink] = {}
        self._ports: dict[tuple[str, str], IbPort] = {}
        self._node = Node()

    def enlist(self, channels: Sequence[tuple[str, GpuIdentity | None]]) -> None:
        self._own = [None if identity is None else identity.gpu for _, identity in channels]
        self._gpus = {(gpu.index, gpu.uuid): gpu for gpu in self._own if gpu is not None}

    def of(self, channel: int, parts: Any) -> Entity:
        """Return the entity that these parts name. Raises MessageError, or another exception for malformed parts."""
        own = self._own[channel]
        kind, *rest = parts
        if kind in ("gpu", "nvlink"):
            gpu = self._gpus[rest[0], rest[1]]
            if own is not None and gpu is not own:
                raise MessageError(f"{own} reports {gpu}")
            return gpu if kind == "gpu" and len(rest) == 2 else self._link(gpu, rest)
        if own is not None:
            raise MessageError(f"{own} reports {kind!r:.20}")
        if kind == "ib":
            return self._port(rest)
        if parts != ["node"]:
            raise MessageError(f"not an entity: {parts!r:.80}")
        return self._node

    def _link(self, gpu: Gpu, rest: Any) -> NvLink:
        _, _, number = rest
        key = (gpu, message_checks.whole(number, LINKS))
        return self._links.setdefault(key, NvLink(gpu, number))

    def _port(self, rest: Any) -> IbPort:
        device, port = rest
        key = (message_checks.name(device), message_checks.name(port))
        if key not in self._ports and len(self._ports) >= PORTS:
            raise MessageError(f"more than {PORTS} ports, or a name of more than {worker_messages.NAME} characters")
        return self._ports.setdefault(key, IbPort(*key))


Place = tuple[int, Lane]
"""A channel's number, and a lane."""

_LANES = {lane.value: lane for lane in LANES}
_NUMBERS = {int, float}
_JSON = msgspec.json.Decoder()


def _parsed(body: bytes) -> Any:
    """Return a JSON value. The standard library reads NaN, which a driver may report, at ten times the cost."""
    try:
        return _JSON.decode(body)
    except msgspec.DecodeError:
        return json.loads(body)


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
        self._said: object = None
        """The last `hello`, accepted or not."""
        self._channels: tuple[tuple[str, GpuIdentity | None], ...] = ()
        self._entities = Entities()
        self._layouts: dict[Place, tuple[int, Layout]] = {}
        self._gaps: dict[Place, tuple[int, tuple[Gap, ...]]] = {}
        self._owners: dict[Series, Place] = {}
        self._newest: dict[Place, float] = {}
        self._events = 0
        self._kinds: dict[str, Callable[..., Message | Alive | None]] = {
            "sample": self._sample, "alive": self._alive, "layout": self._layout, "gaps": self._take_gaps,
            "error": self._error, "xid": self._xid, "hello": self._take_hello,
            "absent": partial(self._refusal, True), "failed": partial(self._refusal, False),
        }  # fmt: skip

    @property
    def legacy(self) -> dict[tuple[str, Lane], Layout]:
        """The last layout of each channel's lane: this worker's or, if it has sent none, that of an earlier worker.

        By the channel's key: it has another number where a GPU before it is lost or back.
        """
        own = {(self._channels[number][0], lane): layout for (number, lane), (_, layout) in self._layouts.items()}
        return {**self._inherited, **own}

    def decode(self, line: bytes) -> Message | Alive | None:
        """Return the message of a line; None if it only changed what is remembered. Raises MessageError."""
        body = unseal(line)
        try:
            kind, *parts = _parsed(body)
            return self._kinds[kind](*parts)
        except MessageError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise MessageError(f"{type(error).__name__}: {error}"[: worker_messages.TEXT]) from error

    def _alive(self, order: Any) -> Alive:
        return Alive(message_checks.whole(order, 2**63))

    def _refusal(self, absent: bool, detail: Any) -> Refusal:
        return Refusal(absent, message_checks.text(detail, worker_messages.TEXT))

    def _take_hello(self, source: Any, channels: Any, unidentified: Any) -> Hello | None:
        """Believe a hello that comes twice in a row; a worker's channels stay, and others may only join them."""
        before, self._said = self._said, [source, channels, unidentified]
        if source != self._source:
            raise MessageError(f"the source is {source!r:.40}, not {self._source}")
        made = message_checks.roster(channels), message_checks.unidentified(unidentified)
        message_checks.indexes(*made)
        known = self._channels
        if made[0][: len(known)] != known:
            raise MessageError("a channel changed its identity")
        hello = Hello(self._source, *made)
        if self._said != before or hello == self._hello:
            return None
        self._hello, self._channels = hello, hello.channels
        self._entities.enlist(hello.channels)
        return hello

    def _place(self, channel: Any, lane: Any) -> Place:
        number = message_checks.whole(channel, len(self._channels))
        return number, _LANES[lane]

    def _layout(self, channel: Any, lane: Any, edition: Any, rows: Any) -> None:
        place, edition = self._place(channel, lane), message_checks.whole(edition, 2**63)
        made = tuple(self._series(place[0], row) for row in message_checks.rows(rows, worker_messages.SERIES_OF_LANE))
        if len(set(made)) != len(made):
            raise MessageError("a duplicate series")
        if any(self._owners.get(series, place) != place for series in made):
            raise MessageError("a series already belongs to another lane")
        _, layout = self._layouts.get(place, (0, EMPTY_LAYOUT))
        if len(self._owners) - len(layout) + len(made) > worker_messages.SERIES:
            raise MessageError(f"more than {worker_messages.SERIES} series")
        if made != layout.series:
            for series in layout.series:
                del self._owners[series]
            inherited = self._inherited.get((self._channels[place[0]][0], place[1]), EMPTY_LAYOUT)
            # Equal series keep their layout: other code knows it by identity.
            layout = inherited if inherited.series == made else Layout(made)
            self._owners.update(dict.fromkeys(layout.series, place))
        self._layouts[place] = (edition, layout)

    def _series(self, channel: int, row: Any) -> Series:
        name, parts, pairs = row
        metric = self._rows[name]
        entity = self._entities.of(channel, parts)
        if type(entity) is not metric.entity:
            raise MessageError(f"{name} does not belong to {entity}")
        return Series(metric, entity, message_checks.labels(metric, pairs))

    def _take_gaps(self, channel: Any, lane: Any, edition: Any, rows: Any) -> None:
        place = self._place(channel, lane)
        made = tuple(self._gap(place[0], row) for row in message_checks.rows(rows, worker_messages.GAPS_OF_LANE))
        others = sum(len(gaps) for where, (_, gaps) in self._gaps.items() if where != place)
        if others + len(made) > worker_messages.GAPS:
            raise MessageError(f"more than {worker_messages.GAPS} gaps")
        self._gaps[place] = (message_checks.whole(edition, 2**63), made)

    def _gap(self, channel: int, row: Any) -> Gap:
        name, parts, reason, detail = row
        return Gap(
            self._missable[name],
            self._entities.of(channel, parts),
            Reason(reason),
            message_checks.text(detail, worker_messages.TEXT),
        )

    def _xid(self, number: Any, rows: Any) -> tuple[Xid, ...]:
        """Return the events of a message: it is numbered, so that one that comes twice counts once."""
        made = tuple(message_checks.xid(row) for row in message_checks.rows(rows, worker_messages.EVENTS))
        if message_checks.whole(number, 2**63) <= self._events:
            raise MessageError("XID errors that were already sent")
        self._events = number
        return made

    def _error(self, channel: Any, lane: Any, mono: Any, reason: Any, detail: Any) -> ChannelError:
        place = self._place(channel, lane)
        error = ChannelError(
            self._channels[place[0]][0],
            place[1],
            message_checks.moment(mono),
            Reason(reason),
            message_checks.text(detail, worker_messages.TEXT),
        )
        self._advance(place, error.mono)
        return error

    def _sample(  # noqa: PLR0917 - the fields of a message, in their order
        self, channel: Any, lane: Any, editions: Any, mono: Any, duration: Any, calls: Any, values: Any,
        processes: Any = None,
    ) -> LaneSample:  # fmt: skip
        place = self._place(channel, lane)
        edition, layout = self._layouts.get(place, (0, EMPTY_LAYOUT))
        gap_edition, gaps = self._gaps.get(place, (0, ()))
        if editions != [edition, gap_edition]:
            raise MessageError(f"a sample with editions {editions!r:.60}, which are not the last ones sent")
        if len(layout) != len(values):
            raise MessageError(f"{len(values)} values for {len(layout)} series")
        if not _NUMBERS.issuperset(map(type, values)):
            raise MessageError("a value that is not a number")
        array("d", values)  # raises OverflowError for a whole number with which nothing can be computed
        sample = LaneSample(
            self._channels[place[0]][0],
            place[1],
            message_checks.moment(mono),
            message_checks.moment(duration, worker_messages.DURATION_SECONDS),
            message_checks.whole(calls, worker_messages.CALLS),
            Frame(layout, tuple(values)),
            gaps,
            message_checks.processes(processes),
        )
        self._advance(place, sample.mono)
        return sample

    def _advance(self, place: Place, mono: float) -> None:
        if mono <= self._newest.get(place, -1.0):
            raise MessageError("a sample that is not newer than the previous one")
        self._newest[place] = mono
