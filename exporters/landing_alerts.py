"""The part of the page at `/` about alerts: what is wrong on this node now, the worst first.

It shows a bounded number of alerts, each with a bounded text: a rule that goes wild must not make a page
that no browser opens. The whole list is at `/api/v1/alerts`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice

from agent.model import Alert, GroupReport, Phase, RuleHealth
from exporters.markup import escape, table

MAX_ROWS = 50
MAX_TEXT = 400
"""Characters of a cell."""

_ENOUGH = 1000
"""Alerts that are looked at without a break: about a millisecond."""

_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1}
_SEVERITIES = {"critical": 0, "warning": 1, "info": 2}  # a word that is not known may be anything: in the middle
_NOT_WHERE = frozenset({"alertname", "severity", "instance", "job"})
"""Labels that do not tell where on this node: they have a column, or are the same for all."""


@dataclass(slots=True)
class Overview:
    """What the page shows of all rules: counts, and no more alerts than have room."""

    firing: int = 0
    pending: int = 0
    rules: int = 0
    failed: int = 0
    worst: list[Alert] = field(default_factory=list)

    @property
    def alerts(self) -> int:
        return self.firing + self.pending


def look_at(groups: Iterable[GroupReport]) -> Generator[str, None, Overview]:
    """The overview. What it yields is empty, and comes often: a rule gone wild may have ten thousand alerts."""
    overview = Overview()
    active = _active(groups, overview)
    while some := list(islice(active, _ENOUGH)):
        overview.worst = nsmallest(MAX_ROWS, overview.worst + some, key=_rank)
        yield ""
    return overview


def _active(groups: Iterable[GroupReport], overview: Overview) -> Iterator[Alert]:
    """The alerts that are pending or firing, counted on the way."""
    for group in groups:
        for rule in group.rules:
            overview.rules += 1
            overview.failed += rule.health is RuleHealth.FAILED
            for alert in rule.alerts:
                if alert.phase in _ORDER:
                    overview.firing += alert.phase is Phase.FIRING
                    overview.pending += alert.phase is Phase.PENDING
                    yield alert


def tile(overview: Overview) -> str:
    """How many alerts there are, for the summary."""
    counts = [(overview.firing, Phase.FIRING), (overview.pending, Phase.PENDING)]
    text = ", ".join(f"{count} {phase.value}" for count, phase in counts if count > 0) or "none"
    return f'<span class="bad">{text}</span>' if overview.firing > 0 else text


def section(overview: Overview, now: float | None) -> str:
    """The alerts at a moment in wall seconds, which is None before the first sample."""
    if overview.worst:
        heads = "".join(f"<th>{head}</th>" for head in ("State", "Severity", "Alert", "Where", "Since", "Summary"))
        parts = [table("Alerts", heads, "".join(_row(alert, now) for alert in overview.worst))]
    else:
        parts = [
            f"<h2>Alerts</h2>\n<p>No alert is pending or firing. {_count(overview.rules, 'is', 'are')} evaluated.</p>\n"
        ]
    if overview.alerts > MAX_ROWS:
        parts.append(f"<p>and {overview.alerts - MAX_ROWS} more, at {_link('/api/v1/alerts')}</p>\n")
    if overview.failed > 0:
        text = f"{_count(overview.failed, 'has', 'have')} failed at the last evaluation"
        parts.append(f'<p><span class="bad">{text}</span>: {_link("/api/v1/rules")} says why.</p>\n')
    return "".join(parts)


def _rank(alert: Alert) -> tuple[object, ...]:
    """Firing before pending, then the worst, then what began first: it may have caused the rest."""
    severity = dict(alert.labels).get("severity", "")
    return _ORDER[alert.phase], _SEVERITIES.get(severity, 1), alert.active_at, alert.rule, alert.labels


def _row(alert: Alert, now: float | None) -> str:
    state = alert.phase.value
    where = ", ".join(f'{name}="{value}"' for name, value in alert.labels if name not in _NOT_WHERE)
    cells = (
        ("", f'<span class="bad">{state}</span>' if alert.phase is Phase.FIRING else state),
        ("", _text(dict(alert.labels).get("severity", ""))),
        ("", _text(alert.rule)),
        (' class="where"', _text(where)),
        (' class="since"', "–" if now is None else _age(now - alert.active_at)),
        ("", _text(alert.annotations.get("summary", ""))),
    )
    return "<tr>" + "".join(f"<td{attribute}>{cell}</td>" for attribute, cell in cells) + "</tr>\n"


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    return escape(text) or "–"


def _age(seconds: float) -> str:
    """A span in the two units that matter; never below zero, where the wall clock was set back."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 0:
        return f"{days} d {hours} h"
    if hours > 0:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes > 0 else f"{rest} s"


def _count(number: int, one: str, many: str) -> str:
    return f"1 rule {one}" if number == 1 else f"{number} rules {many}"


def _link(path: str) -> str:
    return f'<a href="{path}">{path}</a>'
