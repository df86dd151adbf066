"""The part of the page at `/` about alerts: what is wrong on this node now, the worst first.

It shows a bounded number of alerts, each with a bounded text: a rule that goes wild must not make a page
that no browser opens. The whole list is at `/api/v1/alerts`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.model import Alert, GroupReport, Phase, RuleHealth
from exporters.markup import escape, table

MAX_ROWS = 50
MAX_TEXT = 400
"""Characters of a cell."""

_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1}
_SEVERITIES = {"critical": 0, "warning": 1, "info": 2}  # a word that is not known may be anything: in the middle
_NOT_WHERE = frozenset({"alertname", "severity", "instance", "job"})
"""Labels that do not tell where on this node: they have a column, or are the same for all."""


def tile(groups: tuple[GroupReport, ...]) -> str:
    """How many alerts there are, for the summary."""
    phases = [alert.phase for alert in _active(groups)]
    counts = [(phases.count(phase), phase.value) for phase in _ORDER]
    text = ", ".join(f"{count} {word}" for count, word in counts if count > 0) or "none"
    return f'<span class="bad">{text}</span>' if Phase.FIRING in phases else text


def section(groups: tuple[GroupReport, ...], now: float | None) -> str:
    """The alerts at a moment in wall seconds, which is None before the first sample."""
    found = sorted(_active(groups), key=_rank)
    rules = [rule for group in groups for rule in group.rules]
    if found:
        heads = "".join(f"<th>{head}</th>" for head in ("State", "Severity", "Alert", "Where", "Since", "Summary"))
        parts = [table("Alerts", heads, "".join(_row(alert, now) for alert in found[:MAX_ROWS]))]
    else:
        parts = [
            f"<h2>Alerts</h2>\n<p>No alert is pending or firing. {_count(len(rules), 'is', 'are')} evaluated.</p>\n"
        ]
    if len(found) > MAX_ROWS:
        parts.append(f"<p>and {len(found) - MAX_ROWS} more, at {_link('/api/v1/alerts')}</p>\n")
    failed = sum(rule.health is RuleHealth.FAILED for rule in rules)
    if failed > 0:
        text = f"{_count(failed, 'has', 'have')} failed at the last evaluation"
        parts.append(f'<p><span class="bad">{text}</span>: {_link("/api/v1/rules")} says why.</p>\n')
    return "".join(parts)


def _active(groups: Iterable[GroupReport]) -> list[Alert]:
    alerts = (alert for group in groups for rule in group.rules for alert in rule.alerts)
    return [alert for alert in alerts if alert.phase in _ORDER]


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
