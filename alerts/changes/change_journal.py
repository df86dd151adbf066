"""Note what changed on the node in the last minutes, and say what changed around the moment at which an alert began.

It reads no clock and touches no device. It watches rows whose changes may explain an alert and that seldom change, and
notes each change with its second. A round in which no watched value moved costs one comparison for each frame; the
places of watched values are looked up once for each layout. The text of a change follows the names of what it is
about: "GPU 3: ", "ports mlx5_3/1, mlx5_4/1: ".

The annotation `changes` of an alert has them as one text, nearest first: what happened to the same GPU or port, then
to its job, then to the node, then to the other parts of it. The text says over which time nothing else is known, so
that an empty one is an answer too.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from datetime import datetime, timezone
from itertools import zip_longest
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agent.lib.layout_columns import picker
from agent.lib.wording import index_runs
from agent.model import Alert, Backend, BackendReport, Entity, Frame, Gpu, IbPort, Layout, NvLink, Rack, Reason, Series

DescribeStep = Callable[[Series, float, float], str]
"""The words for a step from one value to the next; empty if it is not worth any."""

STEADY_SHARE = 0.15
"""A clock that moves by a smaller share is at work as usual: one that is held by the power limit moves by a tenth."""
STEADY_SECONDS = 10.0
"""Seconds for which a level must stay elsewhere before it counts as changed: one step of a job is shorter."""
_NORMAL_REASONS = frozenset({"gpu_idle", "sw_power_cap"})
"""Reasons for a lower clock that come and go while everything is well."""


def _state(down: str, up: str) -> DescribeStep:
    def describe(_: Series, before: float, now: float) -> str:
        return down if now < before else up

    return describe


def _throttled(series: Series, before: float, now: float) -> str:
    reason = dict(series.labels).get("reason", "")
    return "" if now <= before or reason in _NORMAL_REASONS else f"clocks held down by {reason}"


def _power_limit(_: Series, before: float, now: float) -> str:
    return f"power limit from {before:.0f} to {now:.0f} W" if abs(now - before) >= 1.0 else ""


def _grew(template: str) -> DescribeStep:
    def describe(series: Series, before: float, now: float) -> str:
        return template.format(**dict(series.labels)) if now > before else ""

    return describe


def _uncorrected(series: Series, before: float, now: float) -> str:
    return "an uncorrected memory error" if now > before and ("type", "uncorrected") in series.labels else ""


STEPS: dict[str, DescribeStep] = {
    "coldplate_gpu_up": _state("not answering", "answering again"),
    "coldplate_nvlink_up": _state("down", "up again"),
    "coldplate_infiniband_port_up": _state("down", "up again"),
    "coldplate_backend_up": _state("cannot be read", "read again"),
    "coldplate_gpu_throttle_active": _throttled,
    "coldplate_gpu_power_limit_watts": _power_limit,
    "coldplate_gpu_row_remap_pending": _state("", "a memory row waits to be remapped"),
    "coldplate_gpu_ecc_errors_total": _uncorrected,
    "coldplate_node_nvswitch_sxid_errors_total": _grew("SXid {sxid} of NVSwitch {pci}"),
}
"""Rows whose step from one snapshot to the next is a change."""

PRESENCE = frozenset({"coldplate_gpu_up", "coldplate_backend_up"})
"""Rows whose 0 has a reason, which the backends report. It counts as a change at the agent's start, too."""
MAX_REASON_LENGTH = 250

SM_CLOCK = "coldplate_gpu_clock_hertz"
"""A row that wanders: of its series that of the multiprocessors is watched."""

MOMENTS: dict[str, str] = {
    "coldplate_gpu_xid_last_timestamp_seconds": "XID {xid}",
    "coldplate_job_start_timestamp_seconds": "job {job_id} began",
    "coldplate_config_last_reload_success_timestamp_seconds": "the agent's configuration was reloaded",
}
"""Rows whose value is the moment of the change, in Unix seconds."""


KEPT_SECONDS = 2700.0
"""Seconds for which a change is remembered: some alerts wait for half an hour until they fire."""
MOST = 1000
"""Changes that are remembered; the oldest are forgotten first."""
QUIET_SECONDS = 60.0
"""Seconds in which the same change of the same thing is noted once: what flaps would push everything else out."""
SPARE = 256
"""Series that are gone whose last value is remembered: they may come back with another one."""


class Change(Struct, frozen=True):
    """What happened to a part of the node, at a wall second. `job` is the number of the job that it is about."""

    at: float
    entity: Entity
    text: str
    job: str = ""


class _Level(Struct):
    """A figure that wanders: where it was for long, where it is now, and since when it has been elsewhere."""

    usual: float
    now: float
    since: float | None = None

    def move(self, value: float, at: float) -> None:
        self.now = value
        if abs(value - self.usual) <= STEADY_SHARE * self.usual:
            self.since = None
        elif self.since is None:
            self.since = at


class _Watched(Struct):
    """The watched part of the frames of one layout: a function that picks its values, its series, and the last values:
    all of the frame's, and those that were picked.
    """

    pick: Callable[[Sequence[float]], tuple[float, ...]]
    series: tuple[Series, ...]
    values: Sequence[float] | None = None
    picked: tuple[float, ...] = ()


class ChangeJournal:
    """The changes of the last minutes. Used by one thread."""

    def __init__(self) -> None:
        self.began: float | None = None
        """The wall second of the first snapshot: of what was before nothing is known."""
        self._changes: deque[Change] = deque(maxlen=MOST)
        self._watched: dict[Layout, _Watched] = {}
        self._values: dict[Series, float] = {}
        self._levels: dict[Series, _Level] = {}
        self._reports: Sequence[BackendReport] = ()

    def record_snapshot(self, frames: Sequence[Frame], at: float, reports: Sequence[BackendReport] = ()) -> None:
        """Note what changed since the snapshot before; `at` is in wall seconds.

        `reports` say why a device or a backend cannot be read.
        """
        self._reports = reports
        if self.began is None:
            self.began = at
        for layout, values in frames:
            watched = self._watched.get(layout) or self._look_up(layout)
            if watched.values is values:  # those of a lane that has not been read again
                continue
            picked, before = watched.pick(values), watched.picked
            watched.values = values
            if picked != before:
                watched.picked = picked
                for series, value, old in zip_longest(watched.series, picked, before):
                    if value != old:
                        self._compare(series, value, at)
        if len(self._watched) > len(frames):
            self._forget([frame.layout for frame in frames])
        self._record_settled_levels(at)
        while self._changes and self._changes[0].at < at - KEPT_SECONDS:
            self._changes.popleft()

    def known_since(self, now: float) -> float:
        """Return the wall second from which on every change is remembered."""
        began = now if self.began is None else self.began
        is_full = len(self._changes) == MOST
        return max(began, now - KEPT_SECONDS, self._changes[0].at if is_full else began)

    def between(self, start: float, end: float) -> Iterator[Change]:
        """Yield the changes within a span of wall seconds."""
        return (change for change in self._changes if start <= change.at <= end)

    def shift(self, seconds: float) -> None:
        """Move the past along: the clock was set."""
        if self.began is not None:
            self.began += seconds
        self._changes = deque((replace(c, at=c.at + seconds) for c in self._changes), MOST)
        for level in self._levels.values():
            if level.since is not None:
                level.since += seconds

    def _look_up(self, layout: Layout) -> _Watched:
        places = [place for place, series in enumerate(layout.series) if _is_watched(series)]
        watched = self._watched[layout] = _Watched(picker(places), tuple(layout.series[place] for place in places))
        return watched

    def _forget(self, present: Sequence[Layout]) -> None:
        """Forget layouts that are gone, and series that are in none of the present layouts."""
        self._watched = {layout: self._watched[layout] for layout in present}
        present_series = {series for watched in self._watched.values() for series in watched.series}
        if len(self._values) + len(self._levels) > len(present_series) + SPARE:
            self._values = {series: value for series, value in self._values.items() if series in present_series}
            self._levels = {series: level for series, level in self._levels.items() if series in present_series}

    def _compare(self, series: Series, value: float, at: float) -> None:
        name = series.metric.name
        if name == SM_CLOCK:
            self._levels.setdefault(series, _Level(value, value)).move(value, at)
            return
        before = self._values.get(series)
        self._values[series] = value
        if value == before:
            return
        if name in MOMENTS:
            self._record_moment(series, value, at)
            return
        if before is None:
            if name not in PRESENCE or value:
                return
            before = 1.0
        text = STEPS[name](series, before, value)
        if not text:
            return
        reason = self._reason_for(series.entity) if name in PRESENCE and not value else ""
        self._record(Change(at, series.entity, f"{text}: {reason}" if reason else text))

    def _reason_for(self, entity: Entity) -> str:
        """Return why a backend or a device cannot be read, with the remedy if the source knows one."""
        for report in self._reports:
            if isinstance(entity, Backend):
                if report.backend == entity.name:
                    return report.detail[:MAX_REASON_LENGTH]
                continue
            for gap in report.gaps:
                if gap.entity == entity and gap.reason is not Reason.UNSUPPORTED and gap.detail:
                    return gap.detail[:MAX_REASON_LENGTH]
        return ""

    def _record_settled_levels(self, at: float) -> None:
        """Note the levels that have stayed elsewhere for long enough; from then on they are usual there."""
        for series, level in self._levels.items():
            if level.since is not None and at - level.since >= STEADY_SECONDS:
                text = f"SM clock from {level.usual * 1e-9:.1f} to {level.now * 1e-9:.1f} GHz"
                self._record(Change(level.since, series.entity, text))
                level.usual, level.since = level.now, None

    def _record_moment(self, series: Series, moment: float, at: float) -> None:
        """Note an event whose moment the row itself gives. `began` shows whether the agent ran at that moment."""
        if self.began is not None and self.began < moment < at + QUIET_SECONDS:  # clocks of others may be ahead
            labels = dict(series.labels)
            text = MOMENTS[series.metric.name].format(**labels)
            self._record(Change(min(moment, at), series.entity, text, labels.get("job_id", "")))

    def _record(self, change: Change) -> None:
        for other in reversed(self._changes):
            if other.at < change.at - QUIET_SECONDS:
                break
            if (other.entity, other.text) == (change.entity, change.text):
                return
        self._changes.append(change)


def _is_watched(series: Series) -> bool:
    name = series.metric.name
    return name in STEPS or name in MOMENTS or (name == SM_CLOCK and ("domain", "sm") in series.labels)


BEFORE_SECONDS = 120.0
"""Seconds before an alert began that are looked at: rules judge means over a minute and more."""
TOGETHER_SECONDS = 5.0
"""Seconds within which the same change of several parts is one."""
MAX_LISTED = 5
_KINDS: dict[type, str] = {IbPort: "port", Backend: "backend", Rack: "rack"}


class _MergedChange(NamedTuple):
    """One change of one part or of several: how near it is to the alert, when, of what, and in which words."""

    nearness: int
    at: float
    entities: tuple[Entity, ...]
    text: str


def explain(journal: ChangeJournal, alert: Alert, now: float) -> str:
    """Return what changed on the node from two minutes before the alert began until `now`, in wall seconds."""
    start = alert.active_at - BEFORE_SECONDS
    known_since = journal.known_since(now)
    if known_since > start:
        reason = "the agent's start" if known_since == journal.began else "as far back as it remembers"
        span = f"from {_clock(known_since)}, {reason}, to {_clock(now)}"
    else:
        span = f"from {_clock(start)} to {_clock(now)}"
    merged = _merge_changes(journal.between(start, now), dict(alert.labels))
    by_nearness = sorted(merged, key=lambda change: (change.nearness, change.at))
    listed = sorted(by_nearness[:MAX_LISTED], key=lambda change: (change.at, change.nearness))
    if not listed:
        return f"no other change was seen on this node {span}"
    parts = [f"{_clock(change.at)} {_subject(change.entities)}{change.text}" for change in listed]
    remaining = len(by_nearness) - len(listed)
    return "; ".join(parts) + (f"; and {remaining} more" if remaining else "") + f" ({span})"


def _merge_changes(changes: Iterable[Change], labels: dict[str, str]) -> Iterable[_MergedChange]:
    """Yield the changes by their nearness; the same change of several parts at one time is one."""
    open_ones: dict[tuple[int, type, str], _MergedChange] = {}
    closed = []
    for change in sorted(changes, key=lambda c: c.at):
        key = (_nearness(change, labels), type(change.entity), change.text)
        open_one = open_ones.get(key)
        if open_one is not None and change.at - open_one.at <= TOGETHER_SECONDS:
            open_ones[key] = open_one._replace(entities=(*open_one.entities, change.entity))
            continue
        if open_one is not None:
            closed.append(open_one)
        open_ones[key] = _MergedChange(key[0], change.at, (change.entity,), change.text)
    return [*closed, *open_ones.values()]


def _nearness(change: Change, labels: dict[str, str]) -> int:
    """Return 0 for the alert's own part, 1 for its job, 2 for the node, 3 for other parts of the node."""
    own = dict(_part(change.entity).labels)
    if own and all(labels.get(name) == value for name, value in own.items()):
        return 0
    if change.job and labels.get("job_id") == change.job:
        return 1
    return 2 if not own else 3


def _part(entity: Entity) -> Entity:
    """Return the part that alerts are about: of a link its GPU."""
    return entity.gpu if isinstance(entity, NvLink) else entity


def _subject(entities: Sequence[Entity]) -> str:
    """Return the names of the parts, with a colon before the text of the change; empty for the node itself."""
    if isinstance(entities[0], (Gpu, NvLink)):
        gpus = {_part(entity).labels[0][1] for entity in entities}
        links = f"{_plural('NVLink', entities)} of " if isinstance(entities[0], NvLink) else ""
        return f"{links}{_plural('GPU', gpus)} {index_runs(gpus)}: "
    names = sorted({"/".join(value for _, value in entity.labels) for entity in entities})
    kind = _KINDS.get(type(entities[0]))
    return f"{_plural(kind, names)} {', '.join(names)}: " if kind else ""


def _plural(kind: str, members: Sized) -> str:
    return kind if len(members) == 1 else f"{kind}s"


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%H:%M:%SZ")
