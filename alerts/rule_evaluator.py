"""One rule: evaluates its query at a given time, and keeps its state until the next evaluation.

A rule writes what Prometheus writes: the result under the recorded name, or `ALERTS` and `ALERTS_FOR_STATE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from agent.model import Alert, Labels, Phase, RuleHealth
from alerts.changes import ANNOTATION as CHANGES
from alerts.lifecycle import AlertRecord, Holds, step
from alerts.limits import (
    ALWAYS_KEPT,
    CHARACTERS_PER_SAMPLE,
    LONGEST_QUERY,
    MOST_KEPT,
    SAMPLES_PER_ALERT,
    SAMPLES_PER_ELEMENT,
    SAMPLES_PER_LABEL_SET,
)
from alerts.promql import EvaluationError, PromqlError, Query, Sample, Scalar, compile_query
from alerts.promql.budget import Budget, SampleLedger
from alerts.promql.labels import LimitError, drop_name, refuse_large, set_labels
from alerts.promql.storage import AnyStore
from alerts.rulefile import AlertingRule, RecordingRule, Rule, RuleGroup, Templates
from alerts.template import Element, RenderError, Root

ALERTS = "ALERTS"
ALERTS_FOR_STATE = "ALERTS_FOR_STATE"


MAX_TEMPLATE_QUERIES = 32
"""Most queries of templates that stay compiled from one rendering to the next: each may take 3 MiB."""
_STEP = 16
"""Units of work of an alert, beside its templates."""
_SERIES = 2 * SAMPLES_PER_LABEL_SET
"""Samples that a recorded series counts for: its label set, and the entry that finds it."""
_ELEMENT = 8
"""Samples that an element counts for in templates, where its labels are a mapping."""


class TemplateContext(NamedTuple):
    """The variables of templates beside the alert."""

    external_labels: Mapping[str, str] = {}
    external_url: str = ""


Explain = Callable[[Alert, float], str]
"""What else changed around an alert that fires now, in wall seconds; see `alerts.changes`."""


class RuleError(Exception):
    """A rule's result cannot be used."""


Written = list[tuple[Labels, float]]


class RuleEvaluator:
    """The common part of rules: the outcome of the last evaluation, and the series written by it.

    `ledger` counts what all rules keep.
    """

    __slots__ = (
        "_kept", "_ledger", "barren_in", "duration", "error", "evaluated_at", "health", "inherited", "kept_until",
        "records", "rests_until", "written",
    )  # fmt: skip

    def __init__(self, ledger: SampleLedger) -> None:
        self._ledger = ledger
        self.barren_in: object = None
        """The version of the store in which the last evaluation found that the rule reads no series, if it did."""
        self._kept = 0
        """Samples in the ledger for this rule."""
        self.health = RuleHealth.UNKNOWN
        self.error = ""
        self.evaluated_at: float | None = None
        self.duration = 0.0
        self.written: dict[Labels, None] = {}
        self.inherited: tuple[Labels, ...] = ()
        """Series that were written before a restart; the next evaluation ends those that no rule writes."""
        self.records: dict[Labels, AlertRecord] = {}
        """The rule's alerts; none of a recording rule."""
        self.kept_until: dict[Labels, float] = {}
        """The time until which silence does not end a restored alert; some source may not have answered yet."""
        self.rests_until = -math.inf
        """The end of the rule's pause, in wall seconds, if it took too long."""

    def adopt(self, before: RuleEvaluator) -> None:
        """Take over the outcome of an earlier version of the rule. A paused one is tried at once: it may be fixed."""
        self.health, self.error = before.health, before.error
        self.evaluated_at, self.duration, self.written = before.evaluated_at, before.duration, before.written
        self.inherited = before.inherited

    @property
    def active(self) -> tuple[Alert, ...]:
        """The alerts that are pending or firing."""
        return tuple(record.alert for record in self.records.values() if record.alert.phase is not Phase.RESOLVED)

    @property
    def is_idle(self) -> bool:
        """Return True if the rule has written nothing that an evaluation without a result would have to end."""
        return not (self.written or self.inherited or self._kept)

    def reserve(self, samples: int) -> bool:
        """Keep this many samples from now on; False, and no change, if that is too much for all rules together.

        Keeping little, or no more than before, is always allowed.
        """
        more = samples - self._kept
        is_little = more <= 0 or samples <= ALWAYS_KEPT
        if not is_little and (samples > MOST_KEPT // 2 or self._ledger.kept + more > MOST_KEPT):
            return False
        self._count_kept(samples)
        return True

    def _count_kept(self, samples: int) -> None:
        self._ledger.kept += samples - self._kept
        self._kept = samples


def _constant_report(rule: Rule) -> tuple[str, bool, str, Labels, Labels, float, float]:
    """Return the constant part of a rule's report: the first fields of `RuleReport`."""
    query = rule.expression.strip()
    if isinstance(rule, RecordingRule):
        return rule.name, False, query, rule.labels, (), 0.0, 0.0
    annotations = tuple((name, template.source) for name, template in rule.annotations)
    return rule.name, True, query, rule.identity[1], annotations, rule.terms.hold, rule.terms.keep_firing


def _vector(query: Query, store: AnyStore, stamp: float, budget: Budget) -> Sequence[Sample]:
    """Return a query's result as samples: a scalar is one without labels."""
    result = query.evaluate(store, stamp, budget)
    return [Sample((), result.value)] if isinstance(result, Scalar) else result


class RecordingRuleEvaluator(RuleEvaluator):
    """Evaluates a recording rule."""

    __slots__ = ("_changes", "_limit", "constant_report", "rule")

    def __init__(self, rule: RecordingRule, limit: int, ledger: SampleLedger) -> None:
        super().__init__(ledger)
        self.rule = rule
        self.constant_report = _constant_report(rule)
        self._limit = limit
        self._changes = (*rule.labels, ("__name__", rule.name))

    def adopt(self, before: RuleEvaluator) -> None:
        super().adopt(before)
        self._count_kept(_SERIES * len(self.written))

    def evaluate(self, store: AnyStore, at: float, stamp: float, transitions: list[Alert], budget: Budget) -> Written:
        """Return what the rule writes. Raises EvaluationError and RuleError; then nothing has changed."""
        del at, transitions  # a recording rule has no alerts
        samples = _vector(self.rule.query, store, stamp, budget)
        if not samples and not self._kept:
            return []
        budget.hold((SAMPLES_PER_LABEL_SET + SAMPLES_PER_ELEMENT) * len(samples))
        written = [(set_labels(sample.labels, self._changes), sample.value) for sample in budget.iterate(samples)]
        if len({labels for labels, _ in written}) < len(written):
            raise RuleError("vector contains metrics with the same labelset after applying rule labels")
        if 0 < self._limit < len(written):
            raise RuleError(f"exceeded limit of {self._limit} with {len(written)} series")
        if not self.reserve(_SERIES * len(written)):
            raise RuleError(
                f"writes {len(written)} series: more than the limit on series and alerts of all rules together"
            )
        return written


class AlertingRuleEvaluator(RuleEvaluator):
    """Evaluates an alerting rule.

    An alert that fires gets one more annotation, what `explain` says of it at that moment, and keeps it.
    """

    __slots__ = ("_context", "_explain", "_limit", "_query_offset", "constant_report", "rule")

    def __init__(
        self,
        rule: AlertingRule,
        group: RuleGroup,
        context: TemplateContext,
        ledger: SampleLedger,
        explain: Explain | None = None,
    ) -> None:
        super().__init__(ledger)
        self._query_offset = group.query_offset
        has_own = any(name == CHANGES for name, _ in rule.annotations)
        self._explain = None if has_own else explain
        self.rule = rule
        self.constant_report = _constant_report(rule)
        self._limit = group.limit
        self._context = context

    def evaluate(self, store: AnyStore, at: float, stamp: float, transitions: list[Alert], budget: Budget) -> Written:
        """Return what the rule writes of its alerts.

        Raises EvaluationError and RuleError; the alerts are then as before.
        """
        holding = self._holding(store, stamp, budget)
        if not holding and not self.records:  # as most rules are, most of the time
            return []
        if self.kept_until:
            self.kept_until = {labels: until for labels, until in self.kept_until.items() if at < until}
        changed: list[Alert] = []
        records: dict[Labels, AlertRecord] = {}
        for labels in budget.iterate([*{**self.records, **holding}], _STEP):
            before, condition = self.records.get(labels), holding.get(labels)
            is_kept = condition is None and labels in self.kept_until
            record = before if is_kept else step(before, condition, at, self.rule.terms)
            if record is not None:
                records[labels] = record = self._explained(record, before, at)
                if before is None or record.alert.phase is not before.alert.phase:
                    changed.append(record.alert)
        active = [record.alert for record in records.values() if record.alert.phase is not Phase.RESOLVED]
        if 0 < self._limit < len(active):
            self.resume({})
            raise RuleError(f"exceeded limit of {self._limit} with {len(active)} alerts")
        self.records = self._kept_of(records, changed)
        transitions.extend(changed)
        return list(_series(active))

    def _explained(self, record: AlertRecord, before: AlertRecord | None, at: float) -> AlertRecord:
        """Return the record of an alert that fires with what else changed when it began to fire."""
        alert = record.alert
        if self._explain is None or alert.phase is not Phase.FIRING or CHANGES in alert.annotations:
            return record
        earlier = (
            None if before is None or before.alert.phase is not Phase.FIRING else before.alert.annotations.get(CHANGES)
        )
        text = self._explain(alert, at) if earlier is None else earlier
        return structs.replace(record, alert=replace(alert, annotations={**alert.annotations, CHANGES: text}))

    def _kept_of(self, records: dict[Labels, AlertRecord], changed: Sequence[Alert]) -> dict[Labels, AlertRecord]:
        """Return the records for which there is room; an alert that ended before this evaluation is left out."""
        if self.reserve(sum(map(_weight, records.values()))):
            return records
        ended = {alert.labels for alert in changed}
        needed = {
            labels: record
            for labels, record in records.items()
            if record.alert.phase is not Phase.RESOLVED or labels in ended
        }
        if self.reserve(sum(map(_weight, needed.values()))):
            return needed
        raise RuleError(f"has {len(needed)} alerts: more than the limit on alerts and series of all rules together")

    def resume(self, records: dict[Labels, AlertRecord]) -> None:
        """Replace the records by those of an earlier run, or of an earlier version of the rule."""
        self.records = records
        self._count_kept(sum(map(_weight, records.values())))

    def adopt(self, before: RuleEvaluator) -> None:
        super().adopt(before)
        if isinstance(before, AlertingRuleEvaluator):
            self.resume(before.records)
            self.kept_until = before.kept_until

    def _holding(self, store: AnyStore, stamp: float, budget: Budget) -> dict[Labels, Holds]:
        """Return the elements of the query's result, by the identity of their alerts."""
        samples = _vector(self.rule.query, store, stamp, budget)
        if not samples:
            return {}
        at = stamp + self._query_offset  # the offset does not apply to templates
        template_queries = _TemplateQueries(store, at, budget)
        holding: dict[Labels, Holds] = {}
        for sample in samples:
            budget.spend(_STEP)
            holds = self._holds(sample, template_queries)
            if holds.labels in holding:
                raise RuleError("vector contains metrics with the same labelset after applying alert labels")
            budget.hold(SAMPLES_PER_ALERT // 2 + _characters(holds.labels, holds.annotations) // CHARACTERS_PER_SAMPLE)
            holding[holds.labels] = holds
        return holding

    def _holds(self, sample: Sample, template_queries: _TemplateQueries) -> Holds:
        root = Root(dict(sample.labels), sample.value, *self._context)
        own = [*_expanded(self.rule.labels, root, template_queries), ("alertname", self.rule.name)]
        labels = refuse_large(set_labels(drop_name(sample.labels), own))
        return Holds(labels, sample.value, dict(_expanded(self.rule.annotations, root, template_queries)))


def _characters(labels: Labels, annotations: Mapping[str, str]) -> int:
    return sum(len(value) for _, value in labels) + sum(map(len, annotations.values()))


def _weight(record: AlertRecord) -> int:
    """Return the number of samples that a remembered alert counts for."""
    return SAMPLES_PER_ALERT + _characters(record.alert.labels, record.alert.annotations) // CHARACTERS_PER_SAMPLE


def _series(alerts: Iterable[Alert]) -> Iterable[tuple[Labels, float]]:
    """Yield the series about alerts that are pending or firing."""
    for alert in alerts:
        yield set_labels(alert.labels, (("__name__", ALERTS), ("alertstate", alert.phase.value))), 1.0
        yield set_labels(alert.labels, (("__name__", ALERTS_FOR_STATE),)), float(int(alert.active_at))


def _expanded(templates: Templates, root: Root, queries: _TemplateQueries) -> Iterable[tuple[str, str]]:
    """Yield the templates rendered for one alert; an error becomes the text, as in Prometheus."""
    for name, template in templates:
        before = queries.budget.held
        try:
            text = template.render(root, queries, queries.budget, queries.stamp)
        except RenderError as error:
            text = f"<error expanding template: {error}>"
        queries.budget.held = before  # its results are released
        yield name, text


@lru_cache(maxsize=MAX_TEMPLATE_QUERIES)
def _compiled(text: str) -> Query:
    return compile_query(text, lasting=False)  # the next evaluation may have other texts


class _TemplateQueries:
    """Evaluates the `query` of templates, at the time of the evaluation and from its budget."""

    def __init__(self, store: AnyStore, stamp: float, budget: Budget) -> None:
        self.budget = budget
        self.stamp = stamp
        self._store = store

    def __call__(self, text: str) -> Sequence[Element]:
        if len(text) > LONGEST_QUERY:
            raise RenderError(f"its text has {len(text)} characters; the limit is {LONGEST_QUERY}")
        try:
            self.budget.spend(len(text))  # for parsing
            samples = _vector(_compiled(text), self._store, self.stamp, self.budget)
        except LimitError:
            raise
        except (EvaluationError, PromqlError) as error:
            raise RenderError(str(error)) from error
        self.budget.hold(_ELEMENT * len(samples))
        return [Element(dict(sample.labels), sample.value) for sample in self.budget.iterate(samples)]
