"""Describes in words how expected and actual results differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agent.model import Labels
from alerts.promql.labels import format_labels
from alerts.template.floats import shortest
from alerts.unittests.unit_test_file import ExpectedAlert


def of_alerts(expected: Sequence[ExpectedAlert], got: Sequence[ExpectedAlert]) -> list[str]:
    """Lines about the alerts that are missing, unexpected, or annotated otherwise."""
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
    """Lines about the samples that are missing, unexpected, or of another value."""
    lines = []
    wanted, came = dict(expected), dict(got)
    for labels in sorted({*wanted, *came}):
        name = format_labels(labels)
        if labels not in came:
            lines.append(f"- expected, missing: {name} {shortest(wanted[labels])}")
        elif labels not in wanted:
            lines.append(f"+ present, not expected: {name} {shortest(came[labels])}")
        elif wanted[labels] != came[labels]:
            lines.append(f"  {name}: expected {shortest(wanted[labels])}, got {_exact(wanted[labels], came[labels])}")
    return lines or ["  a series is present more than once"]


def _exact(expected: float, got: float) -> str:
    shown = shortest(got)
    if expected != expected and got != got:
        return f"{shown}: NaN is not equal to anything; write the query so that it returns a number"
    return shown
