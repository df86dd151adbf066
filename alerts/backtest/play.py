"""Plays rules over the snapshots of one node as its daemon evaluates them, and collects alerts as spans of time.

Recorded series of alerts come from the rules that the daemon had; for rules that read them, they are replaced by what
the played rules give. A span reaches from pending over firing to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.lib import record
from agent.lib.layout_columns import picker
from agent.model import Alert, Frame, Framer, Instant, Labels, Layout, Phase, Snapshot, Transition
from alerts.engine import RuleEngine, Ruleset
from alerts.exposition import Exposition
from alerts.limits import patient_time, prompt_time
from alerts.promql.labels import make_labels
from alerts.windows import Needs

PAUSE_SECONDS = 300.0
"""Seconds without a snapshot after which the alerts start from nothing: as long as instant selectors look back."""
_HAIR = 1e-6
"""The largest error of rounded sums, in seconds."""


class Round(NamedTuple):
    """One round of the engine: what it takes in, and when it takes place."""

    snapshot: Snapshot
    now: Instant


class RecordedRounds:
    """Gives the rounds that the daemon would have gone through; `interval` and `period` as in `patient_time`.

    While snapshots are late, the rounds go on with the last one. If some are missing, which a jump in the snapshots'
    numbers shows, that time has no rounds.
    """

    def __init__(self, interval: float, period: float) -> None:
        self._interval = interval
        self._period = period
        self._last: Snapshot | None = None
        self._began = float("-inf")

    def begins_anew(self, snapshot: Snapshot) -> bool:
        """Return True if the snapshot does not continue the last one: after a reboot or a long pause."""
        if self._last is None:
            return False
        passed = snapshot.at.mono - self._last.at.mono
        return not 0 <= passed <= PAUSE_SECONDS

    def take(self, snapshot: Snapshot) -> Iterator[Round]:
        """Yield the rounds until a snapshot, and its own if it is time for one. One that was there already has none."""
        at, last = snapshot.at, self._last
        if last is not None and not self.begins_anew(snapshot):
            if (snapshot.sequence, at) == (last.sequence, last.at):
                return
            if snapshot.sequence == last.sequence + 1 or at.mono - last.at.mono <= 2 * self._period:
                yield from self._without(last, at.mono)
        else:
            self._began = float("-inf")
        self._last = snapshot
        if at.mono >= prompt_time(self._began, self._interval) - _HAIR:
            self._began = at.mono
            yield Round(snapshot, at)

    def _without(self, last: Snapshot, until: float) -> Iterator[Round]:
        """Yield the rounds of a time without a new snapshot."""
        while (at := patient_time(self._began, self._interval, self._period)) < until - _HAIR:
            self._began = at
            yield Round(last, Instant(at, last.at.wall + at - last.at.mono))


class AlertSpan(Struct, frozen=True):
    """One alert from its beginning to its end. Times are wall seconds.

    `fired_at`: None if it never fired. `ended_at`: None if the alert was still there at the end. `value` and
    `annotations` are those at the moment of firing, or else of its beginning.
    """

    node: str
    alert: str
    labels: Labels
    active_at: float
    fired_at: float | None
    ended_at: float | None
    value: float
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def fired(self) -> bool:
        return self.fired_at is not None


class SpanCollector:
    """Follows the alerts of one node. Group and labels identify an alert."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._done: list[AlertSpan] = []
        self._open: dict[str, dict[Labels, AlertSpan]] = {}

    def follow(
        self, group: str, at: float, transitions: Iterable[Transition], alerts: Callable[[], Iterable[Alert]]
    ) -> None:
        """Take in an evaluation of a group: what changed, and the alerts that there are now."""
        spans = self._open.setdefault(group, {})
        if spans:
            self._end_pending(spans, at, alerts())
        for change in transitions:
            alert = change.alert
            if alert.phase is Phase.RESOLVED:
                span = spans.pop(alert.labels, None)
                if span is not None:
                    self._done.append(replace(span, ended_at=alert.resolved_at))
            else:
                spans[alert.labels] = AlertSpan(
                    self._node, alert.rule, alert.labels, alert.active_at, alert.fired_at, None, alert.value,
                    tuple(alert.annotations.items()),
                )  # fmt: skip

    def spans(self) -> list[AlertSpan]:
        """Return those that ended and those that are still there, in the order of their beginnings."""
        found = [*self._done, *(span for spans in self._open.values() for span in spans.values())]
        return sorted(found, key=attrgetter("active_at", "alert", "labels"))

    def _end_pending(self, spans: dict[Labels, AlertSpan], at: float, alerts: Iterable[Alert]) -> None:
        """End those that were pending and are gone: they have no transition, since no receiver was notified."""
        here = {alert.labels for alert in alerts}
        for labels in [labels for labels, span in spans.items() if not span.fired and labels not in here]:
            self._done.append(replace(spans.pop(labels), ended_at=at))


ALERT_SERIES = BY_NAME["coldplate_alert"]


class RuleFailures(Struct, frozen=True):
    """A rule that failed: how often, when first (wall seconds), and why it did then."""

    node: str
    group: str
    rule: str
    count: int
    first_at: float
    error: str


class RulePlay:
    """One version of the rules on the snapshots of one node.

    `target` are the labels that a scrape gives the node's series.
    """

    def __init__(self, node: str, rules: Ruleset, target: Labels) -> None:
        self._node = node
        self._rules = rules
        self._target = target
        self._engine: RuleEngine | None = None
        self._collector = SpanCollector(node)
        self._earlier: list[AlertSpan] = []
        self._failures: dict[tuple[str, str], RuleFailures] = {}
        self._reads_alerts = Needs(rules.groups).history_of(make_labels({}, ALERT_SERIES.name)) is not None
        self._alert_series = _AlertSeries(target)

    def take(self, one: Round) -> None:
        """Play a round."""
        if self._engine is None:
            self._engine = RuleEngine(self._rules, self._target, one.now)
        snapshot = self._alert_series.replaced(one.snapshot, self._engine) if self._reads_alerts else one.snapshot
        for done in self._engine.round(snapshot, one.now):
            outcome = done.outcome
            self._collector.follow(done.key, done.at, outcome.transitions, done.group.alerts)
            for group, rule, error in outcome.failures:
                first = RuleFailures(self._node, group, rule, 0, done.at, error)
                known = self._failures.get((group, rule), first)
                self._failures[group, rule] = replace(known, count=known.count + 1)

    def begin_anew(self) -> None:
        """Forget what was: the alerts that there are, and the past that rules look at. Spans are kept."""
        self._earlier += self._collector.spans()
        self._engine, self._collector = None, SpanCollector(self._node)

    def spans(self) -> list[AlertSpan]:
        """Return the alerts so far, in the order of their beginnings."""
        return [*self._earlier, *self._collector.spans()]

    def failures(self) -> list[RuleFailures]:
        """Return the rules that failed, in the order in which they first did."""
        return list(self._failures.values())


class NodePlay:
    """Versions of the rules, all of one interval, on the snapshots of one node, which come every `period` seconds."""

    def __init__(self, node: str, plays: Sequence[RulePlay], interval: float, period: float) -> None:
        self.node = node
        self.plays = plays
        self.snapshots = 0
        self.pauses: list[tuple[float, float]] = []
        """Where alerts started from nothing: the wall seconds of the snapshots before and after."""
        self.first: float | None = None
        self.last = 0.0
        """The wall seconds of the first snapshot and the last."""
        self._rounds = RecordedRounds(interval, period)

    def take(self, snapshot: Snapshot) -> None:
        """Play until the moment of a snapshot."""
        wall = snapshot.at.wall
        if self._rounds.begins_anew(snapshot):
            self.pauses.append((self.last, wall))
            for play in self.plays:
                play.begin_anew()
        for one in self._rounds.take(snapshot):
            for play in self.plays:
                play.take(one)
        self.first = wall if self.first is None else self.first
        self.last = wall
        self.snapshots += 1


class _AlertSeries:
    """Puts the series of the played alerts in the place of those that were recorded."""

    def __init__(self, target: Labels) -> None:
        self._exposition = Exposition(target)
        self._framer = Framer()
        self._pruned: dict[Layout, tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]] = {}

    def replaced(self, snapshot: Snapshot, engine: RuleEngine) -> Snapshot:
        """Return the snapshot with what the engine says of alerts."""
        frames = [self._without(frame) for frame in snapshot.frames]
        own = self._exposition.frame(engine.reports(), engine.windows, ())
        alerts = self._framer.frame(each for each in own.readings if each.metric is ALERT_SERIES)
        return record.replace(snapshot, frames=(*frames, alerts))

    def _without(self, frame: Frame) -> Frame:
        known = self._pruned.get(frame.layout)
        if known is None:
            series = frame.layout.series
            kept = [place for place, each in enumerate(series) if each.metric is not ALERT_SERIES]
            layout = frame.layout if len(kept) == len(series) else Layout(tuple(series[place] for place in kept))
            known = self._pruned[frame.layout] = (layout, picker(kept))
        layout, pick = known
        return frame if layout is frame.layout else Frame(layout, pick(frame.values))
