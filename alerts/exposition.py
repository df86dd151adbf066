"""The rule engine's own series: alerts, evaluations, windows, notifications. They become part of the next snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType

from agent.catalogue import BY_NAME
from agent.lib.layout_columns import RoundMemo
from agent.model import EMPTY_LAYOUT, Alert, Frame, GroupReport, Labels, Layout, Node, Phase, Series
from alerts.notify.receiver import Receiver
from alerts.windows import Windows

_OF_GROUP = tuple(
    BY_NAME[f"coldplate_rule_{name}"]
    for name in (
        "evaluations_total",
        "evaluation_failures_total",
        "evaluation_seconds_total",
        "group_iterations_missed_total",
    )
)
"""The counters of a group, in the order of its totals."""
_OF_WINDOWS = tuple(
    Series(BY_NAME[f"coldplate_rule_window_{name}"], Node()) for name in ("series", "bytes", "dropped_total")
)
MAX_SUMMARY_LETTERS = 200
"""Letters of a summary in the label of a series; the rest is cut."""


class Exposition:
    """Makes their frame; a series is made once, and forgotten when it is no longer shown.

    `target` are the labels that a scrape adds: it would only rename an alert's own labels of those names.
    """

    def __init__(self, target: Labels) -> None:
        self._target = frozenset(target)
        self._shown = RoundMemo[tuple[str, Labels], Series](lambda key: Series(BY_NAME[key[0]], Node(), key[1]))
        self._summaries: dict[Labels, str] = {}
        """Of each alert that fires, by its labels, as it was when the alert began to fire.

        A summary has figures that change at each evaluation: each would be another series.
        """
        self._evaluated: dict[str, list[float]] = {}
        self._of_groups: tuple[Series, ...] = ()
        """The counters of all groups, in their order."""
        self._layout = EMPTY_LAYOUT

    def announce(self, groups: Iterable[str]) -> None:
        """Show the counters of these groups, from 0 on, and forget those of others.

        A counter that appears with its first failure would hide it.
        """
        self._evaluated = {name: self._evaluated.get(name) or _zeros() for name in groups}
        self._lay_out()

    def count(self, group: str, rules: int, failed: int, seconds: float, missed: int = 0) -> None:
        """Count one evaluation of a group, or of a part of it, and the `missed` points of its grid before it."""
        totals = self._evaluated.get(group)
        if totals is None:
            totals = self._evaluated[group] = _zeros()
            self._lay_out()
        totals[0] += rules
        totals[1] += failed
        totals[2] += seconds
        totals[3] += missed

    def frame(
        self,
        reports: Iterable[GroupReport],
        windows: Windows,
        receivers: Sequence[Receiver],
        causes: Mapping[Labels, Labels] = MappingProxyType({}),
    ) -> Frame:
        """Return all of the engine's series as they are now.

        `causes` has the labels of each inhibited alert, with those of the alert that inhibits it.
        """
        active = [alert for report in reports for rule in report.rules for alert in rule.alerts]
        firing = [alert for alert in active if alert.phase is Phase.FIRING]
        self._summaries = {alert.labels: self._summary(alert) for alert in firing}
        alerts = [("coldplate_alert", self._labels(alert)) for alert in active]
        alerts += [("coldplate_alert_text_info", self._info_labels(alert, causes)) for alert in firing]
        sent = [entry for receiver in receivers for entry in _notifications(receiver)]
        labelled = self._shown.of([*alerts, *(key for key, _ in sent)])
        series = (*labelled[: len(alerts)], *self._of_groups, *_OF_WINDOWS, *labelled[len(alerts) :])
        if series != self._layout.series:
            self._layout = Layout(series)
        counts = chain.from_iterable(self._evaluated.values())
        held = len(windows), windows.bytes, windows.dropped
        return Frame(self._layout, (*repeat(1, len(alerts)), *counts, *held, *(value for _, value in sent)))

    def _labels(self, alert: Alert) -> Labels:
        """Return the name and the state first, then what the alert is about."""
        return (("alertname", alert.rule), ("alertstate", alert.phase.value), *self._subject(alert, "alertstate"))

    def _info_labels(self, alert: Alert, causes: Mapping[Labels, Labels]) -> Labels:
        """Return the name, what inhibits the alert if something does, the summary, and what the alert is about."""
        cause = dict(causes.get(alert.labels, ())).get("alertname", "")
        inhibited = (("inhibited_by", cause),) if cause else ()
        summary = (("summary", self._summaries[alert.labels]),) if self._summaries[alert.labels] else ()
        return (("alertname", alert.rule), *inhibited, *summary, *self._subject(alert, "inhibited_by", "summary"))

    def _subject(self, alert: Alert, *added: str) -> Iterator[tuple[str, str]]:
        """Yield the labels of an alert but for its name, those of the target, and those with names that are added."""
        for pair in alert.labels:
            if pair[0] not in ("alertname", *added) and pair not in self._target:
                yield pair

    def _summary(self, alert: Alert) -> str:
        earlier = self._summaries.get(alert.labels)
        text = alert.annotations.get("summary", "") if earlier is None else earlier
        return text if len(text) <= MAX_SUMMARY_LETTERS else text[: MAX_SUMMARY_LETTERS - 1] + "…"

    def _lay_out(self) -> None:
        node = Node()
        self._of_groups = tuple(
            Series(row, node, (("rule_group", group),)) for group in self._evaluated for row in _OF_GROUP
        )


def _notifications(receiver: Receiver) -> Iterator[tuple[tuple[str, Labels], float]]:
    labels = (("notifier", receiver.name), *((("url", receiver.url),) if receiver.url else ()))
    counts = receiver.counts
    yield ("coldplate_notifications_sent_total", labels), counts.sent
    yield ("coldplate_notifications_dropped_total", labels), counts.dropped
    yield ("coldplate_notifications_errors_total", labels), counts.failed
    yield ("coldplate_notifications_queue_length", labels), receiver.queued


def _zeros() -> list[float]:
    return [0.0] * len(_OF_GROUP)
