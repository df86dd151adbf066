"""The rule engine: ingests snapshots, evaluates the due groups, and keeps alerts across reloads.

A round corresponds to a scrape in Prometheus. Time is an argument. The engine's time axis follows the monotonic
clock: when the wall clock is set, the whole past is shifted, so that neither `for` nor windows are affected.

The shipped groups come first in a round, so that slow rules of a site do not delay them. A round that takes long
leaves groups of the site to the next one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor
from pathlib import PurePath
from typing import NamedTuple

from msgspec import Struct, field

from agent.catalogue import BY_NAME
from agent.model import Alert, Frame, GroupReport, Instant, Labels, Layout, Node, Phase, Reading, Series, Snapshot
from alerts import alert_state
from alerts.alert_state import Archive
from alerts.group_evaluator import GroupEvaluator, GroupOutcome
from alerts.lifecycle import AlertRecord
from alerts.limits import ROUND_SECONDS
from alerts.packs import shipped_files
from alerts.promql.budget import SampleLedger
from alerts.rule_evaluator import Explain, TemplateContext
from alerts.rulefile import Identity, RuleFile, RuleGroup
from alerts.windows import Needs, Windows
from alerts.windows.store import CAPACITY

log = logging.getLogger("coldplate.rules")

INTERVAL_SECONDS = 1.0
CLOCK_STEP_SECONDS = 0.5
"""Seconds by which the wall clock may stray from the monotonic one before it counts as having been set."""
SETTLING_SECONDS = 30.0
"""Seconds after a start in which silence does not end a restored alert: some source may not have answered yet."""
SAMPLE_AGE = Layout((Series(BY_NAME["coldplate_sample_age_seconds"], Node()),))


class Ruleset(Struct, frozen=True):
    """The rules to evaluate; groups without an interval of their own are evaluated every `interval` seconds."""

    files: tuple[RuleFile, ...] = ()
    interval: float = INTERVAL_SECONDS
    context: TemplateContext = field(default_factory=TemplateContext)
    capacity: int = CAPACITY

    @property
    def groups(self) -> tuple[RuleGroup, ...]:
        return tuple(group for file in self.files for group in file.groups)


def shipped() -> frozenset[str]:
    """Return the names of the rule files whose rules are never refused for those of a site."""
    return frozenset(map(str, shipped_files()))


class Evaluation(NamedTuple):
    """One evaluation of one group at a wall second.

    `interval` is that of the group; `missed` is the number of points of its time grid that were skipped just before.
    """

    key: str
    group: GroupEvaluator
    at: float
    interval: float
    outcome: GroupOutcome
    missed: int


class _Slot:
    """A group and its place on the time grid."""

    def __init__(self, key: str, group: GroupEvaluator, interval: float, first: float, *, shipped: bool) -> None:
        self.key = key
        self.is_shipped = shipped
        self.group = group
        self.interval = interval
        self.due = first
        self.report = group.report(interval)
        self._is_served = False

    def place(self, now: float) -> tuple[float, int]:
        """Return the point of the grid that is served now, and how many were skipped: they are not made up for."""
        passed = max(floor((now - self.due) / self.interval), 0)
        served = self.due + self.interval * passed
        self.due = served + self.interval
        missed = passed if self._is_served else 0  # no group can be late before the first snapshot
        self._is_served = True
        return served, missed


class _RemovedGroup(NamedTuple):
    """Series of a removed group: another group may take them over until `due`, in monotonic seconds."""

    due: float
    since: float
    series: tuple[Labels, ...]


class RuleEngine:
    """Groups of rules, and the windows that they are evaluated on.

    `target` are the labels that a scrape would add to every series; `timer` measures how long rules take; `halted` says
    whether the round should end after the current rule; `explain` what else changed around an alert that fires.
    """

    def __init__(
        self,
        rules: Ruleset,
        target: Labels,
        now: Instant,
        timer: Callable[[], float] = lambda: 0.0,
        *,
        halted: Callable[[], bool] = lambda: False,
        explain: Explain | None = None,
    ) -> None:
        self._timer = timer
        self._explain = explain
        self._halted = halted
        self._offset = now.wall - now.mono
        self._rules = rules
        self.windows = Windows(Needs(rules.groups, shipped()), target, rules.interval, rules.capacity)
        self._removed: list[_RemovedGroup] = []
        self._stepped = 0.0
        self._slots: list[_Slot] = self._lay_out(now)

    @property
    def interval(self) -> float:
        """Seconds between two rounds."""
        return self._rules.interval

    def round(self, snapshot: Snapshot, now: Instant, foreign: Iterable[Reading] = ()) -> list[Evaluation]:
        """Take in the state of the node, and evaluate what is due, as far as there is time.

        `foreign` are the current readings of other nodes, with the labels that a scrape would add to them.
        """
        at = self._time(now)
        if self._slots:
            age = Frame(SAMPLE_AGE, (max(now.mono - snapshot.at.mono, 0.0),))
            self.windows.ingest_round((*snapshot.frames, age), at, foreign)
        self._expire_removed(now.mono, at)
        due_slots = [slot for slot in self._slots if slot.due <= now.mono]
        due_slots.sort(key=lambda slot: (not slot.is_shipped, slot.due))
        end = self._timer() + ROUND_SECONDS
        evaluations: list[Evaluation] = []
        for slot in due_slots:
            if self._halted():
                break
            evaluations.append(self._evaluate(slot, now))
            if not slot.is_shipped and self._timer() > end:
                break
        return evaluations

    def _evaluate(self, slot: _Slot, now: Instant) -> Evaluation:
        # Durations are counted on the grid: rounds are not exactly on time, and `for` must not be missed by a fraction.
        place, missed = slot.place(now.mono)
        grid = place + self._offset
        outcome = slot.group.evaluate(self.windows, grid, self.time(now), self._halted)
        slot.report = slot.group.report(slot.interval)
        return Evaluation(slot.key, slot.group, grid, slot.interval, outcome, missed)

    def reload(self, rules: Ruleset, now: Instant) -> list[str]:
        """Evaluate other rules from now on; returns the keys of the groups that ended.

        History and alerts of rules that stay are kept.
        """
        at = self._time(now)
        before = {slot.key: slot for slot in self._slots}
        interval, self._rules = self.interval, rules
        self.windows.rewire(Needs(rules.groups, shipped()), rules.interval, rules.capacity)
        slots = self._lay_out(now)
        for slot in slots:
            old = before.pop(slot.key, None)
            if old is not None:
                slot.group.adopt(old.group)
                slot.report = slot.group.report(slot.interval)
                if slot.interval == old.interval and self.interval == interval:  # however often reloads happen
                    slot.due = old.due
        for ended in before.values():
            self._removed.append(_RemovedGroup(now.mono + 2 * ended.interval, at, tuple(ended.group.written())))
        self._slots = slots  # in one step, for other threads that read reports
        return list(before)

    def _expire_removed(self, now: float, at: float) -> None:
        """End the series of removed groups, as Prometheus does two of their intervals after a reload."""
        for group in [g for g in self._removed if g.due <= now]:
            self._removed.remove(group)
            for labels in group.series:
                self.windows.expire(labels, group.since, at)

    def restore(self, saved: alert_state.Saved, now: Instant) -> list[Alert]:
        """Take over the alerts of an earlier run; returns those that fired and that no rule owns any more."""
        at = self._time(now)
        down = at - saved.at
        change = alert_state.after_downtime if down >= 0 else alert_state.shifted
        for slot in self._slots:
            rules = saved.records.get(slot.key, {})
            slot.group.restore(
                {key: {labels: change(record, down) for labels, record in kept.items()} for key, kept in rules.items()},
                at + SETTLING_SECONDS - self.interval / 2,  # as far back as the groups' points of the grid
            )
            slot.report = slot.group.report(slot.interval)
        owned = {(key, identity, record.alert.labels) for key, identity, record in self.remembered()}
        return [
            record.alert
            for key, identity, record in saved.all()
            if record.alert.phase is Phase.FIRING and (key, identity, record.alert.labels) not in owned
        ]

    def restore_windows(self, archive: Archive, now: Instant) -> None:
        """Take over the windows of an earlier run, before the first round."""
        self.windows.restore(archive.series, min(self._time(now) - archive.at, 0.0))
        written = [series.labels for series in archive.series if not series.live]
        for slot in self._slots:
            slot.group.inherit(written)

    def remembered(self) -> Iterator[tuple[str, Identity, AlertRecord]]:
        """Yield all that must survive a restart: group, rule, and the record of an alert."""
        for slot in self._slots:
            for identity, record in slot.group.remembered:
                yield slot.key, identity, record

    def time(self, now: Instant) -> float:
        """Return the wall second of a moment on the engine's time axis."""
        return now.mono + self._offset

    def reports(self) -> tuple[GroupReport, ...]:
        """Return the state of groups and rules at their last evaluation. For any thread."""
        return tuple(slot.report for slot in self._slots)

    def groups(self) -> Sequence[tuple[str, GroupEvaluator]]:
        """Return the groups by their keys."""
        return [(slot.key, slot.group) for slot in self._slots]

    def take_step(self) -> float:
        """Return the seconds by which the clock was set since the last call."""
        step, self._stepped = self._stepped, 0.0
        return step

    def _lay_out(self, now: Instant) -> list[_Slot]:
        """Let groups with the same interval take turns, so that no round has to evaluate everything.

        Their points on the grid are half a round before the expected rounds: a round that is off by less serves the
        same points, and none of them is in the future, where an end would not count as one yet.
        """
        intervals = [max(group.interval or self.interval, self.interval) for group in self._rules.groups]
        turns: Counter[float] = Counter()
        keys: Counter[str] = Counter()
        slots = []
        ledger, builtin = SampleLedger(), shipped()
        for group, interval in zip(self._rules.groups, intervals, strict=True):
            turn = interval * turns[interval] / intervals.count(interval)
            first = now.mono + turn // self.interval * self.interval - self.interval / 2
            turns[interval] += 1
            # File and group, as Prometheus names groups, but without the folder: an upgrade may change it.
            key = f"{PurePath(group.file).name};{group.name}"
            keys[key] += 1
            unique = key if keys[key] == 1 else f"{key}#{keys[key]}"
            evaluator = GroupEvaluator(group, self._rules.context, self._timer, ledger, self._explain)
            slots.append(_Slot(unique, evaluator, interval, first, shipped=group.file in builtin))
        return slots

    def _time(self, now: Instant) -> float:
        """Return the time of a moment, after moving the past along if the wall clock was set."""
        step = now.wall - now.mono - self._offset
        if abs(step) > CLOCK_STEP_SECONDS:
            log.warning("the clock was set by %+.1f s: adjusting windows and alerts", step)
            self._offset += step
            self._stepped += step
            self._removed = [group._replace(since=group.since + step) for group in self._removed]
            self.windows.shift(step)
            for slot in self._slots:
                slot.group.shift(step, lambda record: alert_state.shifted(record, step))
        return self.time(now)
