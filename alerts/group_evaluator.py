"""Evaluates the rules of a group, in order, at a given time, and keeps their state.

Each rule sees what the rules before it have written. A rule that fails affects only itself: its alerts and
series stay unchanged, and the failure is reported. Samples and stale markers are written exactly as in Prometheus.

A rule that takes too long is stopped, and then paused for many times as long as it took. If the rules of a group take
too long together, the rest of them fail this time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Union

from agent.model import Alert, GroupReport, Labels, Phase, RuleHealth, RuleReport
from alerts.lifecycle import AlertRecord
from alerts.limits import DEADLINE_SECONDS, GROUP_SECONDS, LONGEST_REST_SECONDS, REST
from alerts.promql import EvaluationError
from alerts.promql.budget import Budget, SampleLedger
from alerts.promql.storage import AnyStore, OutOfOrderError
from alerts.rule_evaluator import (
    AlertingRuleEvaluator,
    Explain,
    RecordingRuleEvaluator,
    RuleError,
    TemplateContext,
    Written,
)
from alerts.rulefile import AlertingRule, Identity, RuleGroup

log = logging.getLogger("coldplate.rules")

_Work = Union[RecordingRuleEvaluator, AlertingRuleEvaluator]
_ALONE = TemplateContext()
_LONGEST_ERROR = 1000
"""Most characters of an error: that of a query may quote label sets."""


_NO_TIME = f"not evaluated: the rules before it in its group took {GROUP_SECONDS:g} s; make them cheaper or split it"


class Failure(NamedTuple):
    """A rule that could not be evaluated, and why."""

    group: str
    rule: str
    error: str


class GroupOutcome(NamedTuple):
    """The outcome of a group's evaluation: alerts whose phase changed, names of its rules, and the time they took."""

    transitions: tuple[Alert, ...]
    failures: tuple[Failure, ...]
    rules: tuple[str, ...]
    seconds: float


class GroupEvaluator:
    """Evaluates one group. `timer` gives seconds, to measure the time of rules; `ledger` counts what all rules keep.

    `explain` says what else changed around an alert that fires.
    """

    def __init__(
        self,
        rules: RuleGroup,
        context: TemplateContext = _ALONE,
        timer: Callable[[], float] = lambda: 0.0,
        ledger: SampleLedger | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.name = rules.name
        self.rules = rules
        self.evaluated_at: float | None = None
        self.duration = 0.0
        self._timer = timer
        self._ledger = SampleLedger() if ledger is None else ledger
        self._works: list[_Work] = [
            AlertingRuleEvaluator(rule, rules, context, self._ledger, explain)
            if isinstance(rule, AlertingRule)
            else RecordingRuleEvaluator(rule, rules.limit, self._ledger)
            for rule in rules.rules
        ]
        self._orphans: dict[Labels, None] = {}
        """Series written by rules that are no longer in the group."""
        self._barren: object = None
        """The version of the store in which no rule of the group reads a series."""

    def evaluate(
        self, store: AnyStore, at: float, now: float | None = None, halted: Callable[[], bool] = lambda: False
    ) -> GroupOutcome:
        """Evaluate every rule at a time in wall seconds, and write their samples to the store.

        With `now`, queries and samples have that time, and only durations are counted by `at`. If `halted` says so
        after a rule, the others keep their state.
        """
        if self._barren is not None and self._barren is store.version and not store.refused:
            return self._pass_over(at)
        stamp = (at if now is None else now) - self.rules.query_offset
        transitions: list[Alert] = []
        failures: list[Failure] = []
        began = self._timer()
        evaluated = 0
        for work in self._works:
            evaluated += 1
            error = self._work(work, store, at, stamp, transitions=transitions, spent=self._timer() - began)
            if error:
                failures.append(Failure(self.name, work.rule.name, error))
            if halted():
                break
        self._end(store, self._orphans, stamp)
        self._orphans = {}
        self.duration, self.evaluated_at = self._timer() - began, at
        version = store.version
        is_barren = evaluated == len(self._works) and all(work.barren_in is version for work in self._works)
        self._barren = version if is_barren else None
        rules = tuple(work.rule.name for work in self._works[:evaluated])
        return GroupOutcome(tuple(transitions), tuple(failures), rules, self.duration)

    def _pass_over(self, at: float) -> GroupOutcome:
        """Count an evaluation of rules that read no series: many groups are for hardware that a node lacks."""
        self.duration, self.evaluated_at = 0.0, at
        for work in self._works:
            work.duration, work.evaluated_at = 0.0, at
        return GroupOutcome((), (), tuple(work.rule.name for work in self._works), 0.0)

    @property
    def remembered(self) -> Iterator[tuple[Identity, AlertRecord]]:
        """All that must survive a restart."""
        return ((work.rule.identity, r) for work in self._works if work.records for r in work.records.values())

    def _work(
        self, work: _Work, store: AnyStore, at: float, stamp: float, *, transitions: list[Alert], spent: float
    ) -> str:
        """Evaluate one rule, `spent` seconds after the first of the group; returns what went wrong, if anything."""
        if at < work.rests_until:
            return work.error
        if spent > GROUP_SECONDS:
            work.health, work.error = RuleHealth.FAILED, _NO_TIME
            return work.error
        before = self._timer()
        error = store.refused.get(work.rule) or self._attempt(work, store, at, stamp, transitions)
        work.duration, work.evaluated_at = self._timer() - before, at
        if error and work.duration > DEADLINE_SECONDS:
            rest = min(REST * work.duration, LONGEST_REST_SECONDS)
            work.rests_until = at + rest
            error += f"; a rule may take {DEADLINE_SECONDS:g} s, "
            error += "and this one is retried only after a pause many times as long"
        work.health = RuleHealth.FAILED if error else RuleHealth.OK
        work.error = error
        return error

    def _attempt(self, work: _Work, store: AnyStore, at: float, stamp: float, transitions: list[Alert]) -> str:
        work.barren_in = None
        budget = Budget(self._timer, self._ledger)
        try:
            if work.is_idle and work.rule.query.is_barren(store, budget):
                work.barren_in = store.version
                return ""
            _write(work, store, work.evaluate(store, at, stamp, transitions, budget), stamp)
            if work.inherited:
                written = set(self.written())
                self._end(store, (labels for labels in work.inherited if labels not in written), stamp)
                work.inherited = ()
        except (EvaluationError, RuleError) as error:
            return _shortened(str(error))
        except Exception as error:
            # A defect in this code. It must not affect the other rules, and counts like any failure.
            if work.health is not RuleHealth.FAILED:
                log.exception("rule %s of group %s: internal error", work.rule.name, self.name)
            return _shortened(f"internal error: {type(error).__name__}: {error}")
        return ""

    def adopt(self, before: GroupEvaluator) -> None:
        """Take over the state of an earlier version of the group, for each rule with the same name and labels."""
        by_identity: dict[Identity, list[_Work]] = {}
        for work in before._works:
            by_identity.setdefault(work.rule.identity, []).append(work)
        self.evaluated_at, self.duration = before.evaluated_at, before.duration
        for mine in self._works:
            if same := by_identity.get(mine.rule.identity):
                mine.adopt(same.pop(0))
        self._orphans = dict(before._orphans)
        for removed in by_identity.values():
            for work in removed:
                self._orphans.update(work.written)

    def inherit(self, series: Iterable[Labels]) -> None:
        """Take over restored series of the windows, so that those which the rules no longer write end.

        Otherwise they would be visible as long as an instant selector looks back. If several rules write under one
        name, the last of them ends such a series, when it is known what the others write.
        """
        last = {(isinstance(work, AlertingRuleEvaluator), work.rule.name): work for work in self._works}
        for labels in series:
            pairs = dict(labels)
            name = pairs.get("__name__", "")
            alert = name in ("ALERTS", "ALERTS_FOR_STATE")
            work = last.get((alert, pairs.get("alertname", "") if alert else name))
            if work is not None:
                work.inherited += (labels,)

    def written(self) -> Iterator[Labels]:
        """Yield the series that the group has written and not ended."""
        for work in self._works:
            yield from work.written
        yield from self._orphans

    def _end(self, store: AnyStore, series: Iterable[Labels], stamp: float) -> None:
        for labels in series:
            store.mark_stale(labels, stamp)

    def restore(self, saved: Mapping[Identity, Mapping[Labels, AlertRecord]], until: float) -> None:
        """Take over the records from before a restart; silence does not end any of them before `until`."""
        for work in self._works:
            records = saved.get(work.rule.identity)
            if records and isinstance(work, AlertingRuleEvaluator):
                work.resume(dict(records))
                work.kept_until = dict.fromkeys(records, until)

    def shift(self, seconds: float, move: Callable[[AlertRecord], AlertRecord]) -> None:
        """Adjust to a clock that was set by `seconds`; `move` changes the times of a record."""
        for work in self._works:
            work.rests_until += seconds
            work.records = {labels: move(record) for labels, record in work.records.items()}
            work.kept_until = {labels: until + seconds for labels, until in work.kept_until.items()}

    def alerts(self) -> list[Alert]:
        """Return the alerts that are pending, firing, or were resolved a short while ago, rule by rule."""
        return [record.alert for work in self._works if work.records for record in work.records.values()]

    def alerts_by_certainty(self) -> tuple[list[Alert], list[Alert]]:
        """Return the alerts, and separately those of rules that failed, whose state is not known now."""
        certain: list[Alert] = []
        unknown: list[Alert] = []
        for work in self._works:
            alerts = unknown if work.health is RuleHealth.FAILED else certain
            alerts.extend(record.alert for record in work.records.values())
        return certain, unknown

    def firing(self) -> list[Alert]:
        """Return the alerts that fire."""
        return [alert for alert in self.alerts() if alert.phase is Phase.FIRING]

    def report(self, interval: float) -> GroupReport:
        """Return the state of the group and its rules; `interval` is the group's."""
        rules = tuple(_report(work) for work in self._works)
        return GroupReport(
            self.name, self.rules.file, interval, self.rules.limit, self.evaluated_at, self.duration, rules
        )


def _write(work: _Work, store: AnyStore, written: Written, stamp: float) -> None:
    refused = ""
    returned: dict[Labels, None] = {}
    for labels, value in written:
        try:
            store.append(labels, stamp, value)
            returned[labels] = None
        except OutOfOrderError as error:
            refused = str(error)
    for labels in work.written:
        if labels not in returned:
            store.mark_stale(labels, stamp)
    work.written = returned
    if refused:
        raise RuleError(refused)


def _shortened(error: str) -> str:
    return error if len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]}..."


def _report(work: _Work) -> RuleReport:
    return RuleReport(*work.constant_report, work.health, work.error, work.evaluated_at, work.duration, work.active)
