"""One rule at work: evaluates its query at a given time, and keeps what it must remember until the next time.

What a rule writes is Prometheus's: the result under the recorded name, or `ALERTS` and `ALERTS_FOR_STATE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agent.model import Alert, Labels, Phase, RuleHealth, Transition
from alerts.adhoc import AdHocQueries
from alerts.lifecycle import Condition, Holds, Record, Silence, step
from alerts.promql import EvaluationError, PromqlError, Query, Sample, Scalar
from alerts.promql.labels import drop_name, set_labels
from alerts.promql.storage import Source
from alerts.rulefile import AlertingRule, RecordingRule, Rule, RuleGroup, Templates
from alerts.template import Element, RenderError, Root

ALERTS = "ALERTS"
ALERTS_FOR_STATE = "ALERTS_FOR_STATE"


class Store(Source, Protocol):
    """Where samples come from, and where rules write theirs."""

    def append(self, labels: Labels, at: float, value: float) -> None: ...

    def mark_stale(self, labels: Labels, at: float) -> None: ...


class Surroundings(NamedTuple):
    """What templates know beside the alert."""

    external_labels: Mapping[str, str] = {}
    external_url: str = ""


class RuleError(Exception):
    """A rule's result cannot be used."""


Written = list[tuple[Labels, float]]


class Work:
    """What is kept of any rule: how it went the last time, and the series that it wrote then."""

    def __init__(self) -> None:
        self.health = RuleHealth.UNKNOWN
        self.error = ""
        self.failures = 0
        self.evaluated_at: float | None = None
        self.duration = 0.0
        self.written: dict[Labels, None] = {}


def _told(rule: Rule) -> tuple[str, bool, str, Labels, Labels, float, float]:
    """What a report says of a rule whatever happens: the first fields of `RuleReport`."""
    query = rule.expression.strip()
    if isinstance(rule, RecordingRule):
        return rule.name, False, query, rule.labels, (), 0.0, 0.0
    annotations = tuple((name, template.source) for name, template in rule.annotations)
    return rule.name, True, query, rule.identity[1], annotations, rule.terms.hold, rule.terms.keep


def work_of(rule: Rule, group: RuleGroup, surroundings: Surroundings) -> Recording | Alerting:
    """A rule's work, begun anew."""
    if isinstance(rule, RecordingRule):
        return Recording(rule, group.limit)
    return Alerting(rule, group.limit, surroundings)


def _vector(query: Query, store: Store, stamp: float) -> Sequence[Sample]:
    """A query's result as samples: a scalar is one without labels."""
    result = query.evaluate(store, stamp)
    if isinstance(result, list):
        return result
    if isinstance(result, Scalar):
        return [Sample((), stamp, result.value)]
    raise RuleError("rule result is not a vector or scalar")


class Recording(Work):
    """A recording rule at work."""

    def __init__(self, rule: RecordingRule, limit: int) -> None:
        super().__init__()
        self.rule = rule
        self.told = _told(rule)
        self._limit = limit
        self._changes = (*rule.labels, ("__name__", rule.name))

    def evaluate(self, store: Store, at: float, stamp: float, transitions: list[Transition]) -> Written:
        del at, transitions  # a recording rule has no alerts
        found = _vector(self.rule.query, store, stamp)
        written = [(set_labels(sample.labels, self._changes), sample.value) for sample in found]
        if len({labels for labels, _ in written}) < len(written):
            raise RuleError("vector contains metrics with the same labelset after applying rule labels")
        if 0 < self._limit < len(written):
            raise RuleError(f"exceeded limit of {self._limit} with {len(written)} series")
        return written


class Alerting(Work):
    """An alerting rule at work.

    `patience` gives the time until which an alert that was restored is not ended by silence: some source may not have
    answered yet.
    """

    def __init__(self, rule: AlertingRule, limit: int, surroundings: Surroundings) -> None:
        super().__init__()
        self.rule = rule
        self.told = _told(rule)
        self.records: dict[Labels, Record] = {}
        self.patience: dict[Labels, float] = {}
        self._limit = limit
        self._surroundings = surroundings

    def evaluate(self, store: Store, at: float, stamp: float, transitions: list[Transition]) -> Written:
        holding = self._holding(store, stamp)
        if self.patience:
            self.patience = {labels: until for labels, until in self.patience.items() if at < until}
        found: list[Transition] = []
        records: dict[Labels, Record] = {}
        for labels in {**self.records, **holding}:
            silence = Silence.FAILED if labels in self.patience else Silence.CLEAR
            condition: Condition = holding.get(labels, silence)
            record, transition = step(self.records.get(labels), condition, at, self.rule.terms)
            if record is not None:
                records[labels] = record
            if transition is not None:
                found.append(transition)
        active = [record.alert for record in records.values() if record.alert.phase is not Phase.RESOLVED]
        if 0 < self._limit < len(active):
            self.records = {}
            raise RuleError(f"exceeded limit of {self._limit} with {len(active)} alerts")
        self.records = records
        transitions.extend(found)
        return list(_series(active))

    @property
    def active(self) -> tuple[Alert, ...]:
        """The alerts that are pending or firing."""
        return tuple(record.alert for record in self.records.values() if record.alert.phase is not Phase.RESOLVED)

    def _holding(self, store: Store, stamp: float) -> dict[Labels, Holds]:
        """The elements of the query's result, by the identity of their alerts."""
        holding: dict[Labels, Holds] = {}
        asked = _Asker(store, stamp)
        for sample in _vector(self.rule.query, store, stamp):
            root = Root(dict(sample.labels), sample.value, *self._surroundings)
            own = [*_expanded(self.rule.labels, root, asked), ("alertname", self.rule.name)]
            labels = set_labels(drop_name(sample.labels), own)
            if labels in holding:
                raise RuleError("vector contains metrics with the same labelset after applying alert labels")
            holding[labels] = Holds(labels, sample.value, dict(_expanded(self.rule.annotations, root, asked)))
        return holding


def _series(alerts: Iterable[Alert]) -> Iterable[tuple[Labels, float]]:
    """The series that tell of alerts that are pending or firing."""
    for alert in alerts:
        yield set_labels(alert.labels, (("__name__", ALERTS), ("alertstate", alert.phase.value))), 1.0
        yield set_labels(alert.labels, (("__name__", ALERTS_FOR_STATE),)), float(int(alert.active_at))


def _expanded(templates: Templates, root: Root, asked: _Asker) -> Iterable[tuple[str, str]]:
    """Templates rendered for one alert; one that cannot be rendered says so in its place, as Prometheus does."""
    for name, template in templates:
        try:
            yield name, template.render(root, asked)
        except RenderError as error:
            yield name, f"<error expanding template: {error}>"


_AD_HOC = AdHocQueries()


class _Asker:
    """Answers the `query` of templates, at the time of the evaluation."""

    def __init__(self, store: Store, stamp: float) -> None:
        self._store = store
        self._stamp = stamp

    def __call__(self, text: str) -> Sequence[Element]:
        try:
            found = _vector(_AD_HOC.compiled(text), self._store, self._stamp)
        except (EvaluationError, PromqlError, RuleError) as error:
            raise RenderError(f"error calling query: {error}") from error
        return [Element(dict(sample.labels), sample.value) for sample in found]
