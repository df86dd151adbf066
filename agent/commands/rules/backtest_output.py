"""What `coldplate rules backtest` prints: a timeline of alerts as a table, or all of it as one JSON document."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agent.lib.wording import counted, one_line
from agent.recording.report.observation import Judgement, unjudged_texts
from agent.recording.report.report_document import coverage_document
from alerts.backtest.play import AlertSpan, NodePlay
from alerts.backtest.span_differences import SpanDifference
from alerts.durations import show
from alerts.engine import Ruleset

_UNSHOWN = ("alertname", "instance", "job")
"""Labels that the table leaves out: they are shown elsewhere, or the same for all."""
_LABEL = 200
"""Characters of a label's value, and of an error, that are shown."""
_WIDTH = 100
"""Columns of a sentence."""
_ROW = "{:<{width}}  {:<{width}}  {:<{width}}  {:>9}  {}"


class Backtest(NamedTuple):
    """All that is printed. `differences` and how many alerts are the same; None without another version."""

    nodes: Sequence[NodePlay]
    spans: Sequence[AlertSpan]
    differences: tuple[Sequence[SpanDifference], int] | None
    rules: Ruleset
    problems: Sequence[str]
    with_pending: bool
    judgement: Judgement


def write_text(backtest: Backtest) -> None:
    """Print the nodes, the timeline, rules that failed, and the differences."""
    clock = _Times(backtest.nodes)
    count = sum(file.rule_count for file in backtest.rules.files)
    for node in backtest.nodes:
        print(f"{one_line(node.node)}: {node.snapshots} snapshots, {clock.range(node)}, {counted(count, 'rule')}")
        for before, after in node.pauses:
            print(
                f"  nothing recorded from {clock.time(before)} to {clock.time(after)}: alerts start inactive after it"
            )
    visible = [span for span in backtest.spans if span.fired or backtest.with_pending]
    several = len(backtest.nodes) > 1
    _write_spans(sorted(visible, key=lambda span: span.active_at), clock, several)
    _write_unjudged(backtest.judgement)
    hidden = len(backtest.spans) - len(visible)
    if hidden:
        print(f"\n{hidden} pending that never fired; list with --pending")
    for failure in (failure for node in backtest.nodes for failure in node.plays[0].failures()):
        error = one_line(failure.error, _LABEL)
        times = f"{failure.count} times, first at {clock.time(failure.first_at)}"
        print(f"\nrule {failure.rule} of {failure.group} failed ({times}): {error}")
    if backtest.differences is not None:
        _write_differences(*backtest.differences, clock, several)


def _write_spans(spans: Sequence[AlertSpan], clock: _Times, several: bool) -> None:
    if not spans:
        print("\nno alert fires")
        return
    print()
    print(_ROW.format("PENDING", "FIRING", "UNTIL", "FOR", "ALERT", width=clock.width))
    for span in spans:
        fired = "-" if span.fired_at is None else clock.time(span.fired_at)
        ended = "the end" if span.ended_at is None else clock.time(span.ended_at)
        cause = f", an effect of {span.inhibited_by}" if span.inhibited_by else ""
        text = f"{_alert_text(span, several)} = {span.value:.6g}{cause}"
        row = (clock.time(span.active_at), fired, ended, _length(span, clock))
        print(_ROW.format(*row, text, width=clock.width))


def _write_unjudged(judgement: Judgement) -> None:
    """Print which alerts could not be judged: no alert is no proof of health."""
    texts = list(unjudged_texts(judgement))
    if texts:
        print(f"\nof {counted(len(judgement.rules), 'alert rule')}:")
    for text in texts:
        print(textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))


def _length(span: AlertSpan, clock: _Times) -> str:
    """Return for how long it fired, or was pending if it never did."""
    begin = span.active_at if span.fired_at is None else span.fired_at
    return _seconds((clock.ends[span.node] if span.ended_at is None else span.ended_at) - begin)


def _write_differences(differences: Sequence[SpanDifference], same: int, clock: _Times, several: bool) -> None:
    print(f"\nagainst the other version: {same} alerts fire in the same way, {len(differences)} do not")
    for difference in differences:
        span = difference.new or difference.old
        assert span is not None
        print(f"  {clock.time(difference.at)}  {_alert_text(span, several)}: {'; '.join(_changes(difference, clock))}")


def _changes(difference: SpanDifference, clock: _Times) -> Iterable[str]:
    if difference.old is None or difference.new is None:
        span = difference.new or difference.old
        assert span is not None
        condition = "only with these rules" if difference.new is not None else "only with the other version"
        yield f"{condition}, for {_length(span, clock)}"
        return
    if difference.start_shift:
        yield f"fires {_shift(difference.start_shift)}"
    if difference.end_changes:
        yield (
            "does not end"
            if difference.new.ended_at is None
            else f"ends at {clock.time(difference.new.ended_at)}, did not end"
        )
    elif difference.end_shift:
        yield f"ends {_shift(difference.end_shift)}"
    if difference.labels_change:
        was = [pair for pair in difference.old.labels if pair not in difference.new.labels]
        yield f"had {_format_labels(was)}" if was else "has more labels"


def _shift(seconds: float) -> str:
    return f"{_seconds(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _seconds(seconds: float) -> str:
    return show(round(max(seconds, 0.0), 0 if seconds >= 10 else 1))


def _alert_text(span: AlertSpan, several: bool) -> str:
    """Return the alert with the labels that distinguish it from others."""
    pairs = [pair for pair in span.labels if pair[0] not in _UNSHOWN]
    node = f"{one_line(span.node)} " if several else ""
    return f"{node}{span.alert}{_format_labels(pairs)}"


def _format_labels(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{one_line(value, _LABEL)}"' for name, value in pairs) + "}"


class _Times:
    """Wall seconds as a table has them: with the date where there are several days."""

    def __init__(self, nodes: Sequence[NodePlay]) -> None:
        self.ends = {node.node: node.last for node in nodes}
        days = {int(wall // 86400) for node in nodes for wall in (node.first, node.last) if wall is not None}
        self._format = "%H:%M:%S" if len(days) <= 1 else "%m-%d %H:%M:%S"
        self.width = len(self.time(0.0))

    def time(self, wall: float) -> str:
        return time.strftime(self._format, time.gmtime(wall))

    def range(self, node: NodePlay) -> str:
        """Return when a node was recorded, with the whole date."""
        begin, end = (time.gmtime(wall) for wall in (node.first or 0.0, node.last))
        last = "%H:%M:%S" if begin[:3] == end[:3] else "%Y-%m-%d %H:%M:%S"
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', begin)} to {time.strftime(last, end)} UTC"


def write_json(backtest: Backtest) -> None:
    """Print everything; times are wall seconds, null where not reached."""
    document: dict[str, Any] = {
        "nodes": [
            {"node": node.node, "snapshots": node.snapshots, "first": node.first, "last": node.last,
             "pauses": node.pauses}
            for node in backtest.nodes
        ],
        "alerts": [_alert(span) for span in backtest.spans],
        "failures": [
            {"node": failure.node, "group": failure.group, "rule": failure.rule, "count": failure.count,
             "first_at": failure.first_at, "error": failure.error}
            for node in backtest.nodes for failure in node.plays[0].failures()
        ],
        "rules": coverage_document(backtest.judgement),
        "problems": list(backtest.problems),
    }  # fmt: skip
    if backtest.differences is not None:
        differences, same = backtest.differences
        document["against"] = {"same": same, "differences": [_difference(difference) for difference in differences]}
    json.dump(document, sys.stdout, indent=1)
    print()


def _alert(span: AlertSpan) -> dict[str, Any]:
    return {
        "node": span.node, "alert": span.alert, "labels": dict(span.labels), "active_at": span.active_at,
        "fired_at": span.fired_at, "ended_at": span.ended_at, "value": span.value if abs(span.value) < 1e308 else
        str(span.value), "annotations": dict(span.annotations), "inhibited_by": span.inhibited_by or None,
    }  # fmt: skip


def _difference(difference: SpanDifference) -> dict[str, Any]:
    return {
        "with_these_rules": None if difference.new is None else _alert(difference.new),
        "with_the_other_version": None if difference.old is None else _alert(difference.old),
        "fires_later_seconds": difference.start_shift,
        "ends_later_seconds": difference.end_shift,
    }
