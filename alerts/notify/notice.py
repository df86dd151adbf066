"""What is passed to a receiver: an alert, and until when it may be assumed to fire. Formats nothing but times."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from agent.model import Alert


class Notice(NamedTuple):
    """An alert on its way; its labels include the external ones. `valid_until` is in wall seconds."""

    alert: Alert
    valid_until: float


def rfc3339(wall: float) -> str:
    """A time in UTC with milliseconds, the finest part that Prometheus's own times have."""
    moment = datetime.fromtimestamp(round(wall * 1000) / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def texts(alert: Alert) -> dict[str, dict[str, str]]:
    """Labels and annotations for JSON. An empty label counts as missing, for Alertmanager, too."""
    return {
        "labels": {name: value for name, value in alert.labels if value},
        "annotations": {name: str(value) for name, value in alert.annotations.items()},
    }
