"""Alerts as spans of time: from pending over firing to the end, collected from one evaluation to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agent.model import Alert, Labels, Phase, Transition


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """One alert from its beginning to its end. Times are wall seconds.

    `fired_at` is None where it never came to that, and `ended_at` where the alert was still there at the end.
    `value` and `annotations` are those at the moment of firing, or else of its beginning.
    """

    node: str
    alert: str
    labels: Labels
    active_at: float
    fired_at: float | None
    ended_at: float | None
    value: float
    annotations: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def fired(self) -> bool:
        return self.fired_at is not None


class SpanCollector:
    """Follows the alerts of one node. Alerts are told apart by their group and their labels."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._done: list[AlertSpan] = []
        self._open: dict[str, dict[Labels, AlertSpan]] = {}

    def follow(
        self, group: str, at: float, transitions: Iterable[Transition], alerts: Callable[[], Iterable[Alert]]
    ) -> None:
        """Take in an evaluation of a group: what changed, and the alerts that there are now."""
        spans = self._open.setdefault(group, {})
        if spans:
            self._end_pending(spans, at, alerts())
        for change in transitions:
            alert = change.alert
            if alert.phase is Phase.RESOLVED:
                span = spans.pop(alert.labels, None)
                if span is not None:
                    self._done.append(replace(span, ended_at=alert.resolved_at))
            else:
                spans[alert.labels] = self._span(alert)

    def spans(self) -> list[AlertSpan]:
        """Those that ended and those that are still there, in the order of their beginnings."""
        found = [*self._done, *(span for spans in self._open.values() for span in spans.values())]
        return sorted(found, key=attrgetter("active_at", "alert", "labels"))

    def _end_pending(self, spans: dict[Labels, AlertSpan], at: float, alerts: Iterable[Alert]) -> None:
        """End those that were pending and are gone: no transition tells of it, since nobody was told of them."""
        here = {alert.labels for alert in alerts}
        for labels in [labels for labels, span in spans.items() if not span.fired and labels not in here]:
            self._done.append(replace(spans.pop(labels), ended_at=at))

    def _span(self, alert: Alert) -> AlertSpan:
        return AlertSpan(
            self._node,
            alert.rule,
            alert.labels,
            alert.active_at,
            alert.fired_at,
            None,
            alert.value,
            tuple(alert.annotations.items()),
        )
