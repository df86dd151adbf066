"""The part of the page at `/` about alerts, the worst first.

It shows a bounded number of alerts, each with a bounded text: a runaway rule must not make a page
that no browser can open. The whole list is at `/api/v1/alerts`.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import nsmallest

from msgspec import Struct, field

from agent.health.conditions import ConditionCounts, DeviceConditions, is_active, order_of, phase_text, worst_severity
from agent.health.evaluated_rules import next_evaluation, why_unjudged
from agent.lib.wording import age
from agent.model import Alert, GroupReport, RuleHealth
from exporters.headlines import tone_of
from exporters.markup import (
    ABSENT,
    SEVERITY_TONES,
    TABLE_END,
    Tone,
    badge,
    cell,
    cut,
    escape,
    row,
    snake,
    span,
    table_head,
)

MAX_ROWS = 50

_NOT_WHERE = frozenset({"alertname", "severity", "instance", "job"})
"""Labels that do not say where on this node: they have a column, or are the same for all."""
_ELSEWHERE = re.compile(r"(?i:https?)://")
_OF_AN_AGENT = re.compile(r"(?i:(https?))://([^/]+)/runbooks/(.*)", re.DOTALL)
_HEADS = ("Severity", "Alert", "Where", "Since", "Summary", "Runbook")


class Overview(Struct):
    """What the page shows of all rules: counts, and as many conditions as there is room for, the worst first.

    `unjudged` says why the absence of conditions proves nothing; empty if the rules are up to date.
    """

    counts: ConditionCounts = field(default_factory=ConditionCounts)
    rules: int = 0
    failed: int = 0
    unjudged: str = ""
    worst: list[Alert] = field(default_factory=list)
    of_device: DeviceConditions = field(default_factory=DeviceConditions)


def overview_of(groups: Sequence[GroupReport], now: float | None) -> Overview:
    """Return the overview at `now`, in wall seconds, or None before the first sample.

    A runaway rule may have ten thousand alerts.
    """
    due = next_evaluation(groups) if now is not None else None
    reason = why_unjudged(bool(groups), due, now or 0.0)
    overview = Overview(unjudged=reason, of_device=DeviceConditions(is_judged=not reason))
    active = list(_active(groups, overview))
    overview.worst = nsmallest(MAX_ROWS, active, key=order_of)
    for condition in active:
        overview.of_device.add(condition)
    return overview


def _active(groups: Iterable[GroupReport], overview: Overview) -> Iterator[Alert]:
    """Yield the alerts that are pending or firing, counted on the way."""
    for group in groups:
        for rule in group.rules:
            overview.rules += 1
            overview.failed += rule.health is RuleHealth.FAILED
            for alert in filter(is_active, rule.alerts):
                overview.counts.add(alert)
                yield alert


def link(alert: Alert, served: Container[str]) -> str:
    """Return the alert's name, linked to its runbook if it has one; `served` as for `runbook`."""
    address = runbook(alert, served)
    name = cut(alert.rule)
    return name if address is None else f'<a href="{escape(address)}">{name}</a>'


def runbook(alert: Alert, served: Container[str]) -> str | None:
    """Return the address of the runbook: the rule's, if it is complete, else that of this agent's own page.

    `served` are the alerts for which it has such a page. The pack's rules give the address of an agent, this one or the
    first one of the rack, by a name that the viewer of the page may not be able to resolve.
    """
    address = alert.annotations.get("runbook_url", "")
    agent = _OF_AN_AGENT.fullmatch(address)
    names_the_rule = agent is not None and agent[3] == alert.rule
    is_own = agent is not None and agent[2] == dict(alert.labels).get("instance")
    # Another host is an agent by http; by https it may be a site's own server.
    here = agent is not None and names_the_rule and (is_own or agent[1].lower() == "http")
    if address and alert.rule in served and (here or not _ELSEWHERE.match(address)):
        return f"/runbooks/{alert.rule}"
    if names_the_rule and is_own:
        return None
    return address if _ELSEWHERE.match(address) else None


def tile(overview: Overview) -> str:
    """Return how many alerts there are, for the summary."""
    worst = worst_severity(overview.worst)
    text = "not known" if overview.unjudged and not overview.counts.total else overview.counts.text
    return span(Tone.CALM if worst is None else SEVERITY_TONES[worst], text)


def section(overview: Overview, now: float | None, served: Container[str]) -> str:
    """Return the alerts at `now`, in wall seconds, or None before the first sample; `served` as for `runbook`."""
    if overview.worst:
        rows = (_row(alert, now, served) for alert in overview.worst)
        parts = [table_head("Alerts", _HEADS, "cards alerts"), *rows, TABLE_END]
    elif overview.unjudged:
        parts = [f"<h2>Alerts</h2>\n<p>Not known: {overview.unjudged}.</p>\n"]
    else:
        rules = _count(overview.rules, "is", "are")
        parts = [f"<h2>Alerts</h2>\n<p>No alert is pending or firing. {rules} evaluated.</p>\n"]
    more = overview.counts.total - MAX_ROWS
    if more > 0:
        parts.append(f"<p>and {more} more, at {_path('/api/v1/alerts')}</p>\n")
    if overview.failed > 0:
        text = f"{_count(overview.failed, 'has', 'have')} failed at the last evaluation"
        parts.append(f"<p>{span(Tone.BAD, text)}: {_path('/api/v1/rules')} says why.</p>\n")
    return "".join(parts)


def _row(alert: Alert, now: float | None, served: Container[str]) -> str:
    tone = tone_of(alert)
    labels = dict(alert.labels)
    severity = cut(labels.get("severity", ""))
    hidden = _NOT_WHERE | {"uuid"} if "gpu" in labels else _NOT_WHERE  # the table of GPUs has the uuid
    where = ", ".join(f"{name} {value}" for name, value in alert.labels if name not in hidden)
    cause = f"<div>effect of {cut(alert.inhibited_by)}</div>" if alert.inhibited_by else ""
    address = runbook(alert, served)
    to_runbook = ABSENT if address is None else f'<a href="{escape(address)}">what to do</a>'
    cells = (
        cell("Severity", f"{badge(tone, phase_text(alert, now))} {severity}", "first"),
        cell("Alert", f"<b>{cut(alert.rule)}</b>{cause}"),
        cell("Where", snake(where), "where"),
        cell("Since", ABSENT if now is None else age(now - alert.active_at), "since"),
        cell("Summary", _summary(alert), "wide"),
        cell("Runbook", to_runbook),
    )
    return row(tone, "".join(cells))


def _summary(alert: Alert) -> str:
    """Return the summary, and folded below it description, what else changed when it began, and the command."""
    texts = alert.annotations
    parts = [f"<div>{cut(texts[name])}</div>" for name in ("description", "changes") if texts.get(name)]
    if command := texts.get("command"):
        parts.append(f"<div><code>{cut(command)}</code></div>")
    details = f"<details><summary>details</summary>{''.join(parts)}</details>" if parts else ""
    return cut(texts.get("summary", "")) + details


def _count(number: int, one: str, many: str) -> str:
    return f"1 rule {one}" if number == 1 else f"{number} rules {many}"


def _path(path: str) -> str:
    return f'<a href="{path}">{path}</a>'
