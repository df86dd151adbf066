"""The domain types: what a metric is, what it is measured on, and what one sample of a node contains.

Everything here is frozen. Nothing here reads a clock, a file or a device, or imports another module of coldplate: every
layer may use these types, so they may depend on none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from types import MappingProxyType
from typing import NamedTuple


class Kind(Enum):
    """How a value behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"  # 0 or 1, or a small documented code
    INFO = "info"  # always 1; the labels are the message


class Unit(Enum):
    """Base units only; the binding that reads a device converts, once."""

    CELSIUS = "celsius"
    WATTS = "watts"
    JOULES = "joules"
    BYTES = "bytes"
    SECONDS = "seconds"
    HERTZ = "hertz"
    LITERS = "liters"
    PASCALS = "pascals"
    VOLTS = "volts"
    AMPERES = "amperes"
    RATIO = "ratio"
    NONE = ""


class Lane(Enum):
    """How often a row is sampled. The periods are configuration; the lane is a property of the row."""

    FAST = "fast"
    SLOW = "slow"
    COLD = "cold"
    EVENT = "event"

    __hash__ = object.__hash__  # at each tick lanes are looked up by the hundred; Enum's own hashes the name, in Python


LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
"""The lanes that have a period; events come with the fast one."""


class Shown(Enum):
    """How a page shows a row that the configuration does not mention."""

    DEFAULT = "default"
    COUNTED = "counted"  # each series while it is not 0; the sum of counters is another row, which is always shown
    FULL = "full"  # only in the full profile


class Reason(Enum):
    """Why a metric is absent."""

    UNSUPPORTED = "unsupported"  # the device or the driver does not offer it
    DENIED = "denied"  # it is offered, but not to this user
    LOST = "lost"  # the device is gone or needs a reset
    TIMEOUT = "timeout"  # the device did not answer in time
    MALFORMED = "malformed"  # the answer could not be understood
    IMPLAUSIBLE = "implausible"  # the answer is outside what is physically possible, or a counter that fell
    PAUSED = "paused"  # the agent was asked to release the driver for a while


class Outcome(Enum):
    """The outcome of a backend's last read."""

    OK = "ok"
    ABSENT = "absent"  # this node simply has no such hardware
    FAILED = "failed"


class Phase(Enum):
    """The stage of an alert's life."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class RuleHealth(Enum):
    """The outcome of a rule's last evaluation, in the words of Prometheus's API."""

    UNKNOWN = "unknown"  # not evaluated yet
    OK = "ok"
    FAILED = "err"


Labels = tuple[tuple[str, str], ...]
"""Label pairs in the order in which they are exposed."""


class Instant(NamedTuple):
    """One moment, on both clocks: intervals are measured on `mono`, people are shown `wall`.

    Both are in seconds; `wall` since the Unix epoch.
    """

    mono: float
    wall: float


@dataclass(frozen=True, slots=True)
class Entity:
    """What a reading is of. `label_names` are its labels, in the order in which they are exposed: its fields'."""

    label_names = tuple[str, ...]()

    @property
    def labels(self) -> Labels:
        return tuple(zip(self.label_names, map(self.__getattribute__, type(self).__match_args__), strict=True))


@dataclass(frozen=True, slots=True)
class Node(Entity):
    """The node itself; its name is a target label, so it carries none."""


@dataclass(frozen=True, slots=True)
class Gpu(Entity):
    """One physical GPU. `index` is the driver's (it may change over a reboot), `uuid` is for life."""

    index: str
    uuid: str
    label_names = ("gpu", "uuid")


@dataclass(frozen=True, slots=True)
class NvLink(Entity):
    """One NVLink of one GPU."""

    gpu: Gpu
    link: int
    label_names = (*Gpu.label_names, "link")

    @property
    def labels(self) -> Labels:
        return (*self.gpu.labels, ("link", str(self.link)))


@dataclass(frozen=True, slots=True)
class IbPort(Entity):
    """One port of an InfiniBand or RoCE device."""

    device: str
    port: str
    label_names = ("device", "port")


@dataclass(frozen=True, slots=True)
class Rack(Entity):
    """The rack that feeds this node."""

    name: str
    label_names = ("rack",)


@dataclass(frozen=True, slots=True)
class Backend(Entity):
    """One source of readings inside the agent."""

    name: str
    label_names = ("backend",)


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the catalogue: everything about a metric. Compared by identity; there is one of each.

    `span` is the closed range of physically possible values, in the row's unit: a value outside is
    left out and counted, never shown.
    `origin` holds the bindings (see `agent.catalogue.bindings`) from which the value is read. `growth` is the
    most by which a counter can grow in a second, in the row's unit, where that is not what is usual for the unit.
    `further_labels` are those that a series has beside `labels` if the device reports them.
    `statistics_shown` is `shown` for the rows of the minimum, mean and maximum of a rolling row, and of a peak. `peak`:
    the row is the highest rate at which a counter grew from one sample to the next within the rolling minute.
    """

    name: str
    kind: Kind
    unit: Unit
    entity: type[Entity]
    help: str
    lane: Lane
    origin: tuple[object, ...]
    labels: tuple[str, ...] = ()
    span: tuple[float, float] = (0.0, float("inf"))
    growth: float | None = None
    rolling: bool = False
    peak: bool = False
    shown: Shown = Shown.DEFAULT
    statistics_shown: Shown = Shown.DEFAULT
    further_labels: tuple[str, ...] = ()

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def label_names(self) -> tuple[str, ...]:
        """Every label that a series may have, in the order in which they are exposed."""
        return (*self.entity.label_names, *self.labels, *self.further_labels)


class Series:
    """One time series: a metric of an entity, distinguished by `labels`. Immutable by convention.

    Its hash is computed once, because the sampler and the encoder look series up thousands of times a
    second; make a series once and keep it.
    """

    __slots__ = ("_hash", "entity", "labels", "metric")

    def __init__(self, metric: Metric, entity: Entity, labels: Labels = ()) -> None:
        self.metric = metric
        self.entity = entity
        self.labels = labels
        self._hash = hash((metric.name, entity, labels))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Series)
            and self.metric is other.metric
            and self.entity == other.entity
            and self.labels == other.labels
        )

    def __repr__(self) -> str:
        pairs = ",".join(f'{name}="{value}"' for name, value in self.all_labels)
        return f"{self.metric.name}{{{pairs}}}"

    @property
    def all_labels(self) -> Labels:
        """The entity's labels first, then the series' own."""
        return self.entity.labels + self.labels


class Reading(NamedTuple):
    """A finite value of one series, in the metric's unit. Absence is a `Gap`, never a value."""

    series: Series
    value: float

    @property
    def metric(self) -> Metric:
        return self.series.metric

    @property
    def entity(self) -> Entity:
        return self.series.entity

    @property
    def labels(self) -> Labels:
        return self.series.labels


class Layout:
    """Series in a fixed order. Compared by identity: code that knows a layout need not look at its series again."""

    __slots__ = ("series",)

    def __init__(self, series: tuple[Series, ...]) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series)


class _Frame(NamedTuple):
    layout: Layout
    values: tuple[float, ...]


class Frame(_Frame):
    """The result of one read: a layout and the values of its series, in the same order and in their units.

    Raises ValueError for another number of values than series: each series would get the value of its neighbour.
    """

    __slots__ = ()

    def __new__(cls, layout: Layout, values: tuple[float, ...]) -> Frame:  # noqa: PYI034 - Self is newer than Python 3.10
        if len(layout.series) != len(values):
            raise ValueError(f"{len(values)} values for {len(layout.series)} series")
        return super().__new__(cls, layout, values)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The series and values in pairs."""
        return tuple(readings_of(self.layout.series, self.values))


EMPTY_LAYOUT = Layout(())
EMPTY_FRAME = Frame(EMPTY_LAYOUT, ())


class Framer:
    """Makes frames of readings. The layout stays the same object for as long as the series are equal.

    This is the one place where series are compared with those of the read before: keep a framer for each lane of each
    source, and all later code may rely on the layout.
    """

    __slots__ = ("_layout",)

    def __init__(self) -> None:
        self._layout = EMPTY_LAYOUT

    def frame(self, readings: Iterable[Reading]) -> Frame:
        """Return a frame of the readings of one read, in their order."""
        columns = tuple(zip(*readings, strict=True))
        if not columns:
            return EMPTY_FRAME
        series, values = columns
        if series != self._layout.series:
            self._layout = Layout(series)
        return Frame(self._layout, values)


def readings_of(series: Iterable[Series], values: Iterable[float]) -> Iterator[Reading]:
    """Return pairs of series and values as readings, made without a Python call for each."""
    return map(tuple.__new__, repeat(Reading), zip(series, values, strict=True))


@dataclass(frozen=True, slots=True)
class Gap:
    """A reading that is absent, and why. `detail` is for people: the call, the file, the error."""

    metric: Metric
    entity: Entity
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID error that the driver reported about a GPU.

    `device` is the GPU's UUID or its PCI bus id (`0000:1b:00`), whichever the reporter knows.
    `wall` is in seconds since the epoch. `reporter` is `nvml` or `kmsg`.
    """

    device: str
    code: int
    wall: float
    reporter: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What a GPU is, apart from what it is doing: kept when the GPU itself is gone.

    `slot` is the PCI bus id in lower case with a four-digit domain, `0000:1b:00.0`. `facts` are
    further label pairs for `coldplate_gpu_info`.
    """

    gpu: Gpu
    slot: str
    serial: str
    model: str
    facts: Labels = ()


class BackendReport(NamedTuple):
    """The state of one backend. `duration` in seconds; `calls` counts device or file reads."""

    backend: str
    outcome: Outcome
    duration: float
    detail: str = ""
    gaps: tuple[Gap, ...] = ()
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the node at one moment. Passed by reference, and never changed."""

    sequence: int
    at: Instant
    frames: tuple[Frame, ...]
    reports: tuple[BackendReport, ...] = ()

    def __iter__(self) -> Iterator[Reading]:
        """Yield all readings, one after the other: for occasional use, since it makes a new object for each."""
        for layout, values in self.frames:
            yield from readings_of(layout.series, values)

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(self)

    def __len__(self) -> int:
        """Return the number of readings."""
        return sum(len(frame.layout) for frame in self.frames)


class PastMoment(NamedTuple):
    """What is remembered of a moment: its wall seconds, and layouts with the values of their series."""

    wall: float
    parts: tuple[tuple[Layout, Sequence[float]], ...]


class Severity(Enum):
    """How bad a condition is, the worst first: the label `severity` of its alert."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITIES = {severity.value: severity for severity in Severity}


NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert instance; `labels` is its identity. Times are wall seconds, None where not reached.

    `inhibited_by` is the name of a firing alert of which this one is an effect; empty if there is no such alert.
    `fires_at` is when a pending alert fires if its expression holds until then, by the rule's `for`.
    """

    rule: str
    labels: Labels
    phase: Phase
    value: float
    active_at: float
    fired_at: float | None = None
    resolved_at: float | None = None
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS)
    inhibited_by: str = ""
    fires_at: float | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is, by its label; a word that is no severity of the pack may mean anything."""
        word = next((value for name, value in self.labels if name == "severity"), "")
        return SEVERITIES.get(word, Severity.WARNING)


class RuleReport(NamedTuple):
    """The state of one rule. Texts are as in the rule file, templates unrendered.

    `hold` and `keep` are `for` and `keep_firing_for` in seconds, `evaluated_at` is in wall seconds (None
    before the first evaluation), `duration` in seconds. `alerts` are those pending or firing; a recording
    rule has none.
    """

    name: str
    alerting: bool
    query: str
    labels: Labels = ()
    annotations: Labels = ()
    hold: float = 0.0
    keep: float = 0.0
    health: RuleHealth = RuleHealth.UNKNOWN
    error: str = ""
    evaluated_at: float | None = None
    duration: float = 0.0
    alerts: tuple[Alert, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The state of one group of rules; `interval` in seconds, `limit` 0 means no limit."""

    name: str
    file: str
    interval: float
    limit: int = 0
    evaluated_at: float | None = None
    duration: float = 0.0
    rules: tuple[RuleReport, ...] = ()
