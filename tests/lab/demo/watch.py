"""Compares the alerts that an Alertmanager holds with what was announced, and words each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.lab.demo.announcements import Announcement

INHIBITION_GRACE_SECONDS = 30.0
"""How long an alert may be there before its cause is: the shipped `group_wait`, so that no person would see it."""


class Watch:
    """Holds which announcements came, and which alerts were shown. Seconds are since the start of the simulation."""

    def __init__(self, announced: Sequence[Announcement]) -> None:
        self.announced = announced
        self.came: set[Announcement] = set()
        self.missed: set[Announcement] = set()
        self._first_seen: dict[str, float] = {}
        self._shown: set[str] = set()

    def lines(self, alerts: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[str]:
        """Yield a line for each alert of Alertmanager's API that is new, and for each announcement that failed."""
        names = {each["fingerprint"]: each["labels"]["alertname"] for each in alerts}
        for alert in alerts:
            key = f"{alert['fingerprint']} {alert['startsAt']}"
            first = self._first_seen.setdefault(key, seconds)
            if key not in self._shown and (line := self._line(alert, names, first, seconds)) is not None:
                self._shown.add(key)
                yield from filter(None, [line])
        for each in self.announced:
            if each not in self.came | self.missed and seconds > each.at + each.effect.within_seconds:
                self.missed.add(each)
                what = f"{each.effect.alert} on {each.place} DID NOT COME"
                yield f"minute {minute(seconds)}: {what}, announced for minute {each.minute}"

    def _line(self, alert: Mapping[str, Any], names: Mapping[str, str], first: float, seconds: float) -> str | None:
        """Return the words of an alert, "" if it needs none, None as long as it may be inhibited soon."""
        labels, when = alert["labels"], f"minute {minute(first)}: {alert['labels']['alertname']}"
        for each in self.announced:
            if each not in self.came and each.matches(labels, first):
                self.came.add(each)
                return f"{when} on {each.place}, as announced: {alert['annotations']['summary']}"
            if each in self.came and each.is_about(labels):
                return ""  # another severity of what came
            if each.at <= first <= each.at + each.effect.within_seconds and each.may_bring(labels):
                return f"{when} on {where(labels)}, with {each.effect.alert}: {alert['annotations']['summary']}"
        if causes := sorted({names.get(each, "an alert") for each in alert["status"]["inhibitedBy"]}):
            return f"{when} on {where(labels)}, not sent because of {', '.join(causes)}"
        if seconds - first < INHIBITION_GRACE_SECONDS:
            return None
        return f"{when} on {where(labels)}, NOT ANNOUNCED: {alert['annotations'].get('summary', '')}"


def minute(seconds: float) -> int:
    return int(seconds // 60)


def where(labels: Mapping[str, str]) -> str:
    """Return the node, rack or job of an alert."""
    found = next((name for name in ("instance", "rack", "job_id") if name in labels), "")
    return labels[found] if found == "instance" else f"{found.removesuffix('_id')} {labels.get(found, '')}".strip()
