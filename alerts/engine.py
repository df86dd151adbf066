"""The rule engine: takes in snapshots, evaluates the groups that are due, and remembers alerts across reloads.

A round is to it what a scrape is to Prometheus. Time is an argument. The engine's time axis follows the monotonic
clock: when the wall clock is set, the whole past moves along, so that neither `for` nor a window notices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor
from pathlib import PurePath
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import GroupReport, Instant, Labels, Node, Reading, Series, Snapshot
from alerts import state
from alerts.group import Group, Outcome, Surroundings
from alerts.lifecycle import Record
from alerts.rulefile import Identity, RuleFile, RuleGroup
from alerts.windows import Needs, Windows
from alerts.windows.archive import Archive
from alerts.windows.store import CAPACITY

log = logging.getLogger("coldplate.rules")

INTERVAL = 1.0
CLOCK_STEP = 0.5
"""Seconds by which the wall clock may stray from the monotonic one before it counts as having been set."""
SETTLING = 30.0
"""Seconds after a start in which a restored alert is not ended by silence: some source may not have answered yet."""
SAMPLE_AGE = Series(BY_NAME["coldplate_sample_age_seconds"], Node())


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What is to be evaluated, and how often: groups without an interval of their own every `interval` seconds."""

    files: tuple[RuleFile, ...] = ()
    interval: float = INTERVAL
    surroundings: Surroundings = field(default_factory=Surroundings)
    capacity: int = CAPACITY

    @property
    def groups(self) -> tuple[RuleGroup, ...]:
        return tuple(group for file in self.files for group in file.groups)


class Evaluation(NamedTuple):
    """One evaluation of one group, at a wall second; `interval` is that which the group runs at."""

    key: str
    group: Group
    at: float
    interval: float
    outcome: Outcome


class _Slot:
    """A group and its place on the time grid."""

    def __init__(self, group: Group, interval: float, first: float) -> None:
        self.group = group
        self.interval = interval
        self.due = first
        self.key = f"{PurePath(group.rules.file).name};{group.name}"
        """File and group, as Prometheus names groups, but without the folder: an upgrade may change it."""
        self.report = group.report(interval)

    def advance(self, now: float) -> None:
        """To the next place on the grid; those that went by are left out, never caught up."""
        self.due += self.interval * max(floor((now - self.due) / self.interval) + 1, 1)


class RuleEngine:
    """Groups of rules, and the windows that they are evaluated on.

    `target` are the labels that a scrape would add to every series; `timer` measures how long rules take.
    """

    def __init__(self, rules: Ruleset, target: Labels, now: Instant, timer: Callable[[], float] = lambda: 0.0) -> None:
        self._timer = timer
        self._offset = now.wall - now.mono
        self._rules = rules
        self.windows = Windows(Needs(rules.groups), target, rules.interval, rules.capacity)
        self._slots: list[_Slot] = []
        self._lay_out(now)

    @property
    def interval(self) -> float:
        """Seconds between two rounds."""
        return self._rules.interval

    def round(self, snapshot: Snapshot | None, now: Instant, foreign: Iterable[Reading] = ()) -> list[Evaluation]:
        """Take in what the node looks like, and evaluate what is due.

        `foreign` are readings of other nodes as they are now, that bring the labels which a scrape would add to them.
        """
        at = self._time(now)
        if snapshot is not None and self._slots:
            age = Reading(SAMPLE_AGE, max(now.mono - snapshot.at.mono, 0.0))
            self.windows.take((*snapshot.readings, age), at, foreign)
        done = []
        for slot in self._slots:
            if slot.due - now.mono <= self.interval / 2:
                slot.advance(now.mono)
                outcome = slot.group.evaluate(self.windows, at)
                slot.report = slot.group.report(slot.interval)
                done.append(Evaluation(slot.key, slot.group, at, slot.interval, outcome))
        return done

    def reload(self, rules: Ruleset, now: Instant) -> list[str]:
        """Evaluate other rules from now on; the keys of the groups that ended.

        History and alerts stay where the rules do.
        """
        before = {slot.key: slot.group for slot in self._slots}
        self._rules = rules
        self.windows.rewire(Needs(rules.groups), rules.interval, rules.capacity)
        self._lay_out(now)
        for slot in self._slots:
            old = before.pop(slot.key, None)
            if old is not None:
                slot.group.adopt(old)
                slot.report = slot.group.report(slot.interval)
        at = self._time(now)
        for ended in before.values():
            ended.retire(self.windows, at)
        return list(before)

    def restore(self, saved: state.Saved, now: Instant) -> int:
        """Take up the alerts of an earlier run; how many. Those of rules that are no longer there are forgotten."""
        at = self._time(now)
        down = at - saved.at
        change = state.after_downtime if down >= 0 else state.shifted
        for slot in self._slots:
            rules = saved.records.get(slot.key, {})
            slot.group.restore(
                {key: {labels: change(record, down) for labels, record in kept.items()} for key, kept in rules.items()},
                at + SETTLING,
            )
            slot.report = slot.group.report(slot.interval)
        return sum(1 for _ in self.remembered())

    def restore_windows(self, archive: Archive, now: Instant) -> None:
        """Take up the windows of an earlier run, before the first round."""
        self.windows.restore(archive.series, min(self._time(now) - archive.at, 0.0))

    def remembered(self) -> Iterator[tuple[str, Identity, Record]]:
        """All that must survive a restart: group, rule, and what is known of an alert."""
        for slot in self._slots:
            for identity, record in slot.group.remembered():
                yield slot.key, identity, record

    def time(self, now: Instant) -> float:
        """The wall second that a moment has on the engine's time axis."""
        return now.mono + self._offset

    def reports(self) -> tuple[GroupReport, ...]:
        """How groups and rules were doing at their last evaluation. For any thread."""
        return tuple(slot.report for slot in self._slots)

    def groups(self) -> Sequence[tuple[str, Group]]:
        """The groups by their keys."""
        return [(slot.key, slot.group) for slot in self._slots]

    def _lay_out(self, now: Instant) -> None:
        """Groups of one interval take turns, so that no round has to evaluate everything."""
        intervals = [group.interval or self.interval for group in self._rules.groups]
        seen: dict[float, int] = {}
        self._slots = []
        for group, interval in zip(self._rules.groups, intervals, strict=True):
            turn = seen.get(interval, 0)
            seen[interval] = turn + 1
            first = now.mono + interval * turn / intervals.count(interval)
            self._slots.append(_Slot(Group(group, self._rules.surroundings, self._timer), interval, first))

    def _time(self, now: Instant) -> float:
        """The time of a moment, after moving the past along if the wall clock was set."""
        step = now.wall - now.mono - self._offset
        if abs(step) > CLOCK_STEP:
            log.warning("the clock was set by %+.1f s: windows and alerts move along", step)
            self._offset += step
            self.windows.shift(step)
            for slot in self._slots:
                slot.group.shift(lambda record: state.shifted(record, step))
        return self.time(now)
