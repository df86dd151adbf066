"""The rule engine's own series: alerts, evaluations, windows, notifications. They become part of the next snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.catalogue import BY_NAME
from agent.model import Alert, GroupReport, Labels, Node, Reading, Series
from alerts.notify.receiver import Receiver
from alerts.windows import Windows


class Exposition:
    """Makes the readings; a series is made once, and forgotten when it is no longer shown.

    `target` are the labels that a scrape adds: it would only rename an alert's own labels of those names.
    """

    def __init__(self, target: Labels) -> None:
        self._target = frozenset(target)
        self._shown: dict[tuple[str, Labels], Series] = {}
        self._shown_before: dict[tuple[str, Labels], Series] = {}
        self._evaluated: dict[str, list[float]] = {}

    def announce(self, groups: Iterable[str]) -> None:
        """Show the counters of these groups, from 0 on, and forget those of others.

        A counter that appears with its first failure would hide it.
        """
        self._evaluated = {name: self._evaluated.get(name, [0.0, 0.0, 0.0, 0.0]) for name in groups}

    def count(self, group: str, rules: int, failed: int, seconds: float, missed: int = 0) -> None:
        """Count one evaluation of a group, or of a part of it, and the `missed` points of its grid before it."""
        totals = self._evaluated.setdefault(group, [0.0, 0.0, 0.0, 0.0])
        totals[0] += rules
        totals[1] += failed
        totals[2] += seconds
        totals[3] += missed

    def readings(
        self, reports: Iterable[GroupReport], windows: Windows, receivers: Sequence[Receiver]
    ) -> tuple[Reading, ...]:
        """All of the engine's series as they are now."""
        self._shown_before, self._shown = self._shown, {}
        return (
            *self._alerts(reports),
            *self._groups(),
            self._reading("coldplate_rule_window_series", len(windows)),
            self._reading("coldplate_rule_window_bytes", windows.bytes),
            self._reading("coldplate_rule_window_dropped_total", windows.dropped),
            *self._notifications(receivers),
        )

    def _alerts(self, reports: Iterable[GroupReport]) -> Iterator[Reading]:
        for report in reports:
            for rule in report.rules:
                for alert in rule.alerts:
                    yield self._reading("coldplate_alert", 1, self._labels(alert))

    def _labels(self, alert: Alert) -> Labels:
        """The name and the state first, then what the alert is about."""
        rest = tuple(pair for pair in alert.labels if pair[0] not in ("alertname", "alertstate"))
        state = (("alertname", alert.rule), ("alertstate", alert.phase.value))
        return (*state, *(pair for pair in rest if pair not in self._target))

    def _groups(self) -> Iterator[Reading]:
        for group, (rules, failed, seconds, missed) in self._evaluated.items():
            labels = (("rule_group", group),)
            yield self._reading("coldplate_rule_evaluations_total", rules, labels)
            yield self._reading("coldplate_rule_evaluation_failures_total", failed, labels)
            yield self._reading("coldplate_rule_evaluation_seconds_total", seconds, labels)
            yield self._reading("coldplate_rule_group_iterations_missed_total", missed, labels)

    def _notifications(self, receivers: Sequence[Receiver]) -> Iterator[Reading]:
        for receiver in receivers:
            labels = (("notifier", receiver.name), *((("url", receiver.url),) if receiver.url else ()))
            counts = receiver.counts
            yield self._reading("coldplate_notifications_total", counts.sent, labels)
            yield self._reading("coldplate_notifications_dropped_total", counts.dropped, labels)
            yield self._reading("coldplate_notification_failures_total", counts.failed, labels)
            yield self._reading("coldplate_notifications_queued", receiver.queued, labels)

    def _reading(self, name: str, value: float, labels: Labels = ()) -> Reading:
        key = (name, labels)
        series = self._shown_before.get(key)
        if series is None:
            series = Series(BY_NAME[name], Node(), labels)
        self._shown[key] = series
        return Reading(series, value)
