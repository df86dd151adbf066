"""Evaluates the rules of a group, in order, at a given time, and keeps what they must remember.

Each rule sees what the rules before it wrote. A rule that fails costs itself: its alerts stay as they are,
its series too, and the failure is told. Samples and stale markers are written exactly as Prometheus does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from agent.model import Alert, Labels, Phase, Transition
from alerts.lifecycle import Condition, Holds, Record, Silence, step
from alerts.promql import EvaluationError, PromqlError, Query, Sample, Scalar, compile_query
from alerts.promql.labels import drop_name, set_labels
from alerts.promql.storage import OutOfOrderError, Source
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


_ALONE = Surroundings()


class Failure(NamedTuple):
    """A rule that could not be evaluated, and why."""

    group: str
    rule: str
    error: str


class Outcome(NamedTuple):
    """What one evaluation of a group brought about."""

    transitions: tuple[Transition, ...]
    failures: tuple[Failure, ...]


class RuleError(Exception):
    """A rule's result cannot be used."""


Written = list[tuple[Labels, float]]


class Group:
    """A group at work. `failures` counts failed evaluations by rule, in the order of the rules."""

    def __init__(self, rules: RuleGroup, surroundings: Surroundings = _ALONE) -> None:
        self.name = rules.name
        self.rules = rules
        self.failures = [0] * len(rules.rules)
        self._states: list[_Recording | _Alerting] = [_state_of(rule, rules, surroundings) for rule in rules.rules]
        self._written: list[dict[Labels, None]] = [{} for _ in rules.rules]

    def evaluate(self, store: Store, at: float) -> Outcome:
        """Evaluates every rule at a time in wall seconds; writes their samples to the store."""
        stamp = at - self.rules.query_offset
        transitions: list[Transition] = []
        failures: list[Failure] = []
        for position, state in enumerate(self._states):
            try:
                written = state.evaluate(store, at, stamp, transitions)
                self._write(store, position, written, stamp)
            except (EvaluationError, RuleError) as error:
                self.failures[position] += 1
                failures.append(Failure(self.name, state.rule.name, str(error)))
        return Outcome(tuple(transitions), tuple(failures))

    def _write(self, store: Store, position: int, written: Written, stamp: float) -> None:
        refused = ""
        returned: dict[Labels, None] = {}
        for labels, value in written:
            try:
                store.append(labels, stamp, value)
                returned[labels] = None
            except OutOfOrderError as error:
                refused = str(error)
        for labels in self._written[position]:
            if labels not in returned:
                store.mark_stale(labels, stamp)
        self._written[position] = returned
        if refused:
            raise RuleError(refused)

    def alerts(self) -> list[Alert]:
        """The alerts that are pending, firing, or resolved a short while ago, rule by rule."""
        return [record.alert for records in self.records() for record in records.values()]

    def firing(self) -> list[Alert]:
        """The alerts that fire."""
        return [alert for alert in self.alerts() if alert.phase is Phase.FIRING]

    def records(self) -> list[Mapping[Labels, Record]]:
        """What is remembered of alerts, one mapping for each alerting rule."""
        return [state.records for state in self._states if isinstance(state, _Alerting)]


def _state_of(rule: Rule, group: RuleGroup, surroundings: Surroundings) -> _Recording | _Alerting:
    if isinstance(rule, RecordingRule):
        return _Recording(rule, group.limit)
    return _Alerting(rule, group.limit, surroundings)


def _vector(query: Query, store: Store, stamp: float) -> Sequence[Sample]:
    """A query's result as samples: a scalar is one without labels."""
    result = query.evaluate(store, stamp)
    if isinstance(result, list):
        return result
    if isinstance(result, Scalar):
        return [Sample((), stamp, result.value)]
    raise RuleError("rule result is not a vector or scalar")


class _Recording:
    def __init__(self, rule: RecordingRule, limit: int) -> None:
        self.rule = rule
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


class _Alerting:
    def __init__(self, rule: AlertingRule, limit: int, surroundings: Surroundings) -> None:
        self.rule = rule
        self.records: dict[Labels, Record] = {}
        self._limit = limit
        self._surroundings = surroundings

    def evaluate(self, store: Store, at: float, stamp: float, transitions: list[Transition]) -> Written:
        holding = self._holding(store, stamp)
        found: list[Transition] = []
        records: dict[Labels, Record] = {}
        for labels in {**self.records, **holding}:
            condition: Condition = holding.get(labels, Silence.CLEAR)
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


@lru_cache(maxsize=256)
def _compiled(text: str) -> Query:
    """The text of a template's query is often made of labels, so it is known at the evaluation only."""
    return compile_query(text)


class _Asker:
    """Answers the `query` of templates, at the time of the evaluation."""

    def __init__(self, store: Store, stamp: float) -> None:
        self._store = store
        self._stamp = stamp

    def __call__(self, text: str) -> Sequence[Element]:
        try:
            found = _vector(_compiled(text), self._store, self._stamp)
        except (EvaluationError, PromqlError, RuleError) as error:
            raise RenderError(f"error calling query: {error}") from error
        return [Element(dict(sample.labels), sample.value) for sample in found]
