"""Runs unit tests of rules as promtool does, and describes how results differ from what was expected.

It evaluates every group from time 0 on in steps of the evaluation interval, compares the alerts that fire at the times
of the cases, and evaluates the queries at the end. A query sees samples only up to the last step, as in promtool.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from msgspec import Struct

from agent.model import Labels
from alerts import durations
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import EvaluationError, PromqlError, Scalar, compile_query
from alerts.promql.labels import format_labels
from alerts.promql.storage import AnyStore, Storage
from alerts.rule_evaluator import TemplateContext
from alerts.rulefile import RuleFile
from alerts.template.number_format import shortest
from tests.rule_tests.unit_test_file import AlertCase, Document, ExpectedAlert, QueryCase, Test


def of_alerts(expected: Sequence[ExpectedAlert], got: Sequence[ExpectedAlert]) -> list[str]:
    """Return lines about the alerts that are missing, unexpected, or annotated otherwise."""
    missing = list((Counter(expected) - Counter(got)).elements())
    unexpected = list((Counter(got) - Counter(expected)).elements())
    lines: list[str] = []
    for alert in list(missing):
        twin = next((each for each in unexpected if each.labels == alert.labels), None)
        if twin is not None:
            missing.remove(alert)
            unexpected.remove(twin)
            lines.append(f"  the alert {format_labels(alert.labels)} has different annotations:")
            lines.extend(_of_annotations(dict(alert.annotations), dict(twin.annotations)))
    lines.extend(f"- expected, not firing: {_alert(alert)}" for alert in missing)
    lines.extend(f"+ firing, not expected: {_alert(alert)}" for alert in unexpected)
    if len(expected) > 1:
        right = sum((Counter(expected) & Counter(got)).values())
        lines.append(f"  {right} of {len(expected)} expected alerts match")
    return lines


def _alert(alert: ExpectedAlert) -> str:
    annotations = f" annotations {format_labels(alert.annotations)}" if alert.annotations else ""
    return f"{format_labels(alert.labels)}{annotations}"


def _of_annotations(expected: Mapping[str, str], got: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*expected, *got}):
        if expected.get(name) != got.get(name):
            yield f"  - {name}: {expected[name]!r}" if name in expected else f"  - {name} is not expected"
            yield f"  + {name}: {got[name]!r}" if name in got else f"  + {name} is missing"


def of_samples(expected: Sequence[tuple[Labels, float]], got: Sequence[tuple[Labels, float]]) -> list[str]:
    """Return lines about the samples that are missing, unexpected, or of another value."""
    lines = []
    due, came = dict(expected), dict(got)
    for labels in sorted({*due, *came}):
        name = format_labels(labels)
        if labels not in came:
            lines.append(f"- expected, missing: {name} {shortest(due[labels])}")
        elif labels not in due:
            lines.append(f"+ present, not expected: {name} {shortest(came[labels])}")
        elif due[labels] != came[labels]:
            lines.append(f"  {name}: expected {shortest(due[labels])}, got {_exact(due[labels], came[labels])}")
    return lines or ["  a series is present more than once"]


def _exact(expected: float, got: float) -> str:
    shown = shortest(got)
    if expected != expected and got != got:
        return f"{shown}: NaN is not equal to anything; write the query so that it returns a number"
    return shown


class Failed(Struct, frozen=True):
    """A case that did not hold, or a rule that could not be evaluated. `detail` has lines that say how."""

    file: str
    line: int
    test: str
    what: str
    detail: tuple[str, ...]

    def __str__(self) -> str:
        name = f" test {self.test!r}," if self.test else ""
        lines = [f"    {self.file}:{self.line}:{name} {self.what}", *(f"        {each}" for each in self.detail)]
        return "\n".join(lines)


def run(document: Document, files: Sequence[RuleFile]) -> list[Failed]:
    """Return what does not hold; nothing when all is well."""
    return [failed for test in document.tests for failed in _Run(document, files, test).failures()]


class _Run:
    """One test: its own series, its own groups."""

    def __init__(self, document: Document, files: Sequence[RuleFile], test: Test) -> None:
        self._document = document
        self._test = test
        self._storage = Storage()
        self._given = Given(test, self._storage)
        order = {name: position for position, name in enumerate(document.order)}
        context = TemplateContext(dict(test.external_labels), test.external_url)
        groups = [GroupEvaluator(rules, context) for file in files for rules in file.groups]
        self._groups = sorted(groups, key=lambda group: order.get(group.name, 0))

    def _failed(self, line: int, what: str, detail: Sequence[str]) -> Failed:
        return Failed(self._document.path, line, self._test.name, what, tuple(detail))

    def failures(self) -> Iterator[Failed]:
        cases = sorted(self._test.alerts, key=lambda case: case.at)
        step, end = round(self._document.interval * 1000), round(self._test.end * 1000)
        for now in range(0, end + 1, step):
            broken = list(self._evaluate(now / 1000))
            yield from broken
            if broken:
                return
            while cases and round(cases[0].at * 1000) < now + step:
                yield from self._check_alerts(cases.pop(0))
        for query in self._test.queries:
            yield from self._check_query(query)

    def _evaluate(self, at: float) -> Iterator[Failed]:
        self._given.append_until(at)
        for group in self._groups:
            for failure in group.evaluate(self._storage, at).failures:
                what = f"group: {failure.group}, rule: {failure.rule}, time: {durations.show(at)}"
                yield self._failed(self._test.line, what, [f"err: {failure.error}"])

    def _check_alerts(self, case: AlertCase) -> Iterator[Failed]:
        got = sorted(
            ExpectedAlert(alert.labels, tuple(sorted(alert.annotations.items())))
            for group in self._groups
            for alert in group.firing()
            if alert.rule == case.name
        )
        if got != list(case.expected):
            what = f"alertname: {case.name}, time: {durations.show(case.at)}"
            yield self._failed(case.line, what, of_alerts(case.expected, got))

    def _check_query(self, case: QueryCase) -> Iterator[Failed]:
        what = f"expr: {case.expression!r}, time: {durations.show(case.at)}"
        try:
            query = compile_query(case.expression, default_step=self._document.interval)
            result = query.evaluate(self._storage, case.at)
        except (PromqlError, EvaluationError) as error:
            yield self._failed(case.line, what, [f"err: {error}"])
            return
        got: list[tuple[Labels, float]]
        if isinstance(result, Scalar):
            got = [((), result.value)]
        else:
            got = sorted(((sample.labels, sample.value) for sample in result), key=itemgetter(0))
        expected = sorted(case.expected, key=itemgetter(0))
        # As promtool compares: a NaN equals nothing, not even itself.
        pairs = zip(expected, got, strict=False)
        if len(expected) != len(got) or any(due[0] != came[0] or due[1] != came[1] for due, came in pairs):
            yield self._failed(case.line, what, of_samples(expected, got))


class Given:
    """The input series of a test, written to the storage as time passes."""

    def __init__(self, test: Test, storage: AnyStore) -> None:
        self._storage = storage
        self._series = [(labels, chain.from_iterable(samples)) for labels, samples in test.series]
        self._interval = round(test.interval * 1000)
        self._next = 0

    def append_until(self, at: float) -> None:
        """Append every sample up to a time."""
        following = round(at * 1000) // self._interval + 1
        if following == self._next:
            return  # most evaluations, where samples are further apart
        append, interval = self._storage.append, self._interval
        for labels, samples in self._series:
            for position, value in zip(range(self._next, following), samples):  # noqa: B905 a series may end before
                if value is not None:
                    append(labels, position * interval / 1000, value)
        self._next = following
