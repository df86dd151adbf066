"""Evaluates rules over the snapshots of one node as its daemon does, in the time of the snapshots.

What tells of alerts in the snapshots comes from the rules that the daemon had; for rules that look at it, it is
replaced by what the played rules say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agent.catalogue import BY_NAME
from agent.lib.picking import picker
from agent.model import Frame, Framer, Labels, Layout, Reading, Snapshot
from alerts.backtest.alert_spans import AlertSpan, SpanCollector
from alerts.backtest.recorded_rounds import RecordedRounds, Round
from alerts.engine import RuleEngine, Ruleset
from alerts.exposition import Exposition
from alerts.promql.labels import make_labels
from alerts.windows import Needs

ALERTS_TOLD = BY_NAME["coldplate_alert"]


@dataclass(frozen=True, slots=True)
class RuleFailures:
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
        self._reads_alerts = Needs(rules.groups).history_of(make_labels({}, ALERTS_TOLD.name)) is not None
        self._told = _ToldAlerts(target)

    def take(self, one: Round) -> None:
        """Play a round."""
        if self._engine is None:
            self._engine = RuleEngine(self._rules, self._target, one.now)
        snapshot = self._told.replaced(one.snapshot, self._engine) if self._reads_alerts else one.snapshot
        for done in self._engine.round(snapshot, one.now):
            outcome = done.outcome
            self._collector.follow(done.key, done.at, outcome.transitions, done.group.alerts)
            for failure in outcome.failures:
                self._note(failure.group, failure.rule, done.at, failure.error)

    def begin_anew(self) -> None:
        """Forget what was: the alerts that there are, and the past that rules look at. Spans are kept."""
        self._earlier += self._collector.spans()
        self._engine, self._collector = None, SpanCollector(self._node)

    def spans(self) -> list[AlertSpan]:
        """The alerts so far, in the order of their beginnings."""
        return [*self._earlier, *self._collector.spans()]

    def failures(self) -> list[RuleFailures]:
        """The rules that failed, in the order in which they first did."""
        return list(self._failures.values())

    def _note(self, group: str, rule: str, at: float, error: str) -> None:
        known = self._failures.get((group, rule))
        made = RuleFailures(self._node, group, rule, 0, at, error) if known is None else known
        self._failures[group, rule] = replace(made, count=made.count + 1)


class NodePlay:
    """Versions of the rules, all of one interval, on the snapshots of one node, which come every `period` seconds."""

    def __init__(self, node: str, plays: Sequence[RulePlay], interval: float, period: float) -> None:
        self.node = node
        self.plays = plays
        self.snapshots = 0
        self.pauses: list[tuple[float, float]] = []
        """Where alerts began anew: the wall seconds of the snapshots before and behind."""
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


class _ToldAlerts:
    """Puts the series of the played alerts in the place of those that were recorded."""

    def __init__(self, target: Labels) -> None:
        self._exposition = Exposition(target)
        self._framer = Framer()
        self._pruned: dict[Layout, tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]] = {}

    def replaced(self, snapshot: Snapshot, engine: RuleEngine) -> Snapshot:
        """The snapshot with what the engine says of alerts."""
        frames = [self._without(frame) for frame in snapshot.frames]
        own = self._framer.frame(self._readings(engine))
        return replace(snapshot, frames=(*frames, own))

    def _readings(self, engine: RuleEngine) -> Iterator[Reading]:
        all_own = self._exposition.readings(engine.reports(), engine.windows, ())
        return (each for each in all_own if each.metric is ALERTS_TOLD)

    def _without(self, frame: Frame) -> Frame:
        known = self._pruned.get(frame.layout)
        if known is None:
            series = frame.layout.series
            kept = [place for place, each in enumerate(series) if each.metric is not ALERTS_TOLD]
            layout = frame.layout if len(kept) == len(series) else Layout(tuple(series[place] for place in kept))
            known = self._pruned[frame.layout] = (layout, picker(kept))
        layout, pick = known
        return frame if layout is frame.layout else Frame(layout, pick(frame.values))
