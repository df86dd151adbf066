"""Plays rules over the snapshots of one node as its daemon evaluates them, and collects alerts as spans of time.

Recorded series of alerts come from the rules that the daemon had; for rules that read them, they are replaced by what
the played rules give. A span reaches from pending over firing to the end.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.lib.layout_columns import picker
from agent.model import Frame, Framer, Instant, Labels, Layout, Phase, Snapshot
from alerts.engine import Evaluation, RuleEngine, Ruleset
from alerts.exposition import Exposition
from alerts.inhibition import Inhibition
from alerts.limits import patient_time, prompt_time
from alerts.promql.labels import make_labels
from alerts.windows import Needs

PAUSE_SECONDS = 300.0
"""Seconds without a snapshot after which the alerts start from nothing: as long as instant selectors look back."""
_HAIR = 1e-6
"""The largest error of rounded sums, in seconds."""


class AlertSpan(Struct, frozen=True):
    """One alert from its beginning to its end. Times are wall seconds.

    `fired_at`: None if it never fired. `ended_at`: None if the alert was still there at the end; the last snapshot
    before a pause ends the alerts that it had. `value` and `annotations` are those at the moment of firing, or else of
    its beginning. `inhibited_by` is the name of the alert of which it was an effect when it began to fire: the agent
    holds back such an alert; empty if there was no cause.
    `fires_at`: of one that did not fire, when it would have by its `for`.
    """

    node: str
    alert: str
    labels: Labels
    active_at: float
    fired_at: float | None
    ended_at: float | None
    value: float
    annotations: tuple[tuple[str, str], ...] = ()
    inhibited_by: str = ""
    fires_at: float | None = None

    @property
    def fired(self) -> bool:
        return self.fired_at is not None


ALERT_SERIES = (BY_NAME["coldplate_alert"], BY_NAME["coldplate_alert_text_info"])


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

    `target` are the labels that a scrape gives the node's series, `external` those that the agent adds to alerts.
    With `inhibition`, effects are marked with their causes.
    """

    def __init__(
        self, node: str, rules: Ruleset, target: Labels, *, inhibition: bool = True, external: Labels = ()
    ) -> None:
        self.rules = rules
        self._node = node
        self._target = target
        self._external = external
        self._inhibit_rules = None if inhibition else ()
        self._inhibition = Inhibition(self._inhibit_rules)
        self._engine: RuleEngine | None = None
        self._ended: list[AlertSpan] = []
        self._open: dict[str, dict[Labels, AlertSpan]] = {}
        """The alerts that there are, by group and labels, which identify an alert."""
        self._failures: dict[tuple[str, str], RuleFailures] = {}
        needs = Needs(rules.groups)
        self._reads_alerts = any(needs.history_of(make_labels({}, row.name)) is not None for row in ALERT_SERIES)
        self._alert_series = _AlertSeries(target)

    def play_round(self, snapshot: Snapshot, now: Instant) -> None:
        """Play a round."""
        if self._engine is None:
            self._engine = RuleEngine(self.rules, self._target, now)
        if self._reads_alerts:
            snapshot = self._alert_series.replace_alerts(snapshot, self._engine, self._inhibition.causes)
        evaluations = self._engine.round(snapshot, now)
        if evaluations:
            records = (record for _, _, record in self._engine.remembered())
            self._inhibition.update(records, now.mono, self._external)
        for evaluation in evaluations:
            self._apply_evaluation(evaluation)
            for group, rule, error in evaluation.outcome.failures:
                first = RuleFailures(self._node, group, rule, 0, evaluation.at, error)
                failures = self._failures.get((group, rule), first)
                self._failures[group, rule] = replace(failures, count=failures.count + 1)

    def start_over(self, wall: float) -> None:
        """Forget the past that rules look at, and the alerts that there are: nothing is known of them after `wall`."""
        spans = [span for spans in self._open.values() for span in spans.values()]
        self._ended += [replace(span, ended_at=wall) for span in spans]
        self._open, self._engine = {}, None
        self._inhibition = Inhibition(self._inhibit_rules)

    def spans(self) -> list[AlertSpan]:
        """Return the alerts so far, in the order of their beginnings."""
        started = [*self._ended, *(span for spans in self._open.values() for span in spans.values())]
        return sorted(started, key=attrgetter("active_at", "alert", "labels"))

    def pending(self) -> list[AlertSpan]:
        """Return the alerts that are pending now, in the order of their beginnings."""
        pending = [span for spans in self._open.values() for span in spans.values() if not span.fired]
        return sorted(pending, key=attrgetter("active_at", "alert", "labels"))

    def failures(self) -> list[RuleFailures]:
        """Return the rules that failed, in the order in which they first did."""
        return list(self._failures.values())

    def _apply_evaluation(self, evaluation: Evaluation) -> None:
        """Apply an evaluation of a group: what changed, and which of its pending alerts are gone.

        Those have no transition, since no receiver was notified.
        """
        spans = self._open.setdefault(evaluation.key, {})
        here = {alert.labels for alert in evaluation.group.alerts()} if spans else set()
        for labels in [labels for labels, span in spans.items() if not span.fired and labels not in here]:
            self._ended.append(replace(spans.pop(labels), ended_at=evaluation.at))
        for alert in evaluation.outcome.transitions:
            if alert.phase is not Phase.RESOLVED:
                cause = dict(self._inhibition.causes.get(alert.labels, ()))
                spans[alert.labels] = AlertSpan(
                    self._node, alert.rule, alert.labels, alert.active_at, alert.fired_at, None, alert.value,
                    tuple(alert.annotations.items()), cause.get("alertname", ""), alert.fires_at,
                )  # fmt: skip
            elif alert.labels in spans:
                self._ended.append(replace(spans.pop(alert.labels), ended_at=alert.resolved_at))


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
        self.metrics: set[str] = set()
        """The names of all metrics that there were."""
        self._layouts: list[Layout] = []
        self._interval = interval
        self._period = period
        self._before: Snapshot | None = None
        self._began = -inf

    def play_until(self, snapshot: Snapshot) -> None:
        """Play until the moment of a snapshot."""
        before = self._before
        self._record_metrics(snapshot)
        for played, now in self.rounds(snapshot):
            for play in self.plays:
                play.play_round(played, now)
        self.last = snapshot.at.wall
        self.first = self.last if self.first is None else self.first
        if before is None or not _are_same(snapshot, before):
            self.snapshots += 1

    def _record_metrics(self, snapshot: Snapshot) -> None:
        layouts = [frame.layout for frame in snapshot.frames]
        if layouts != self._layouts:
            self._layouts = layouts
            self.metrics.update(series.metric.name for layout in layouts for series in layout.series)

    def rounds(self, snapshot: Snapshot) -> Iterator[tuple[Snapshot, Instant]]:
        """Yield the rounds that the daemon would have gone through until a snapshot, and its own if it is time for one:
        what each takes in, and when it takes place. A snapshot that was there already has none.

        While snapshots are late, the rounds go on with the last one. If some are missing, which a jump in the
        snapshots' numbers shows, that time has no rounds. After a reboot or a long pause all starts from nothing.
        """
        at, before = snapshot.at, self._before
        self._before = snapshot
        if before is not None and not 0 <= at.mono - before.at.mono <= PAUSE_SECONDS:
            self.pauses.append((before.at.wall, at.wall))
            self._began = -inf
            for play in self.plays:
                play.start_over(before.at.wall)
        elif before is not None:
            if _are_same(snapshot, before):
                return
            if snapshot.sequence == before.sequence + 1 or at.mono - before.at.mono <= 2 * self._period:
                yield from self._rounds_without(before, at.mono)
        if at.mono >= prompt_time(self._began, self._interval) - _HAIR:
            self._began = at.mono
            yield snapshot, at

    def _rounds_without(self, last: Snapshot, until: float) -> Iterator[tuple[Snapshot, Instant]]:
        """Yield the rounds of a time without a new snapshot."""
        while (at := patient_time(self._began, self._interval, self._period)) < until - _HAIR:
            self._began = at
            yield last, Instant(at, last.at.wall + at - last.at.mono)


def _are_same(one: Snapshot, other: Snapshot) -> bool:
    """Return True for a snapshot that two files have."""
    return (one.sequence, one.at) == (other.sequence, other.at)


class _AlertSeries:
    """Puts the series of the played alerts in the place of those that were recorded."""

    def __init__(self, target: Labels) -> None:
        self._exposition = Exposition(target)
        self._framer = Framer()
        self._pruned: dict[Layout, tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]] = {}

    def replace_alerts(self, snapshot: Snapshot, engine: RuleEngine, causes: Mapping[Labels, Labels]) -> Snapshot:
        """Return the snapshot with what the engine says of alerts; `causes` are those of inhibited ones."""
        frames = [self._without_alerts(frame) for frame in snapshot.frames]
        own = self._exposition.frame(engine.reports(), engine.windows, (), causes)
        alerts = self._framer.frame(reading for reading in own.readings if reading.metric in ALERT_SERIES)
        return dataclasses.replace(snapshot, frames=(*frames, alerts))

    def _without_alerts(self, frame: Frame) -> Frame:
        pruned = self._pruned.get(frame.layout)
        if pruned is None:
            series = frame.layout.series
            places = [place for place, s in enumerate(series) if s.metric not in ALERT_SERIES]
            layout = frame.layout if len(places) == len(series) else Layout(tuple(series[place] for place in places))
            pruned = self._pruned[frame.layout] = (layout, picker(places))
        layout, pick = pruned
        return frame if layout is frame.layout else Frame(layout, pick(frame.values))
