"""Alerts to a webhook, in Alertmanager's own format, so that existing consumers of it can receive them.

There is no grouping: a post contains what has changed since the last. Nothing is repeated, so a firing alert
has no end and is never too old to send.
"""

import json
from collections.abc import Mapping, Sequence

from agent.model import Alert, Labels, Phase
from alerts.notify.delivery import HttpReceiver
from alerts.notify.receiver import Notice, rfc3339, texts

NO_TIME = "0001-01-01T00:00:00Z"
"""Go's zero time, which Alertmanager sends as the end of a firing alert."""

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def fingerprint(labels: Labels) -> str:
    """Return the alert's identity as Alertmanager writes it: FNV-1a over names and values, each ended by 0xff."""
    state = _FNV_OFFSET
    for name, value in sorted(pair for pair in labels if pair[1]):
        for byte in b"%b\xff%b\xff" % (name.encode("utf-8", "replace"), value.encode("utf-8", "replace")):
            state = (state ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"


class Webhook(HttpReceiver):
    """One webhook."""

    name = "webhook"
    repeats = False
    expires = False

    def encode(self, notices: Sequence[Notice]) -> bytes:
        alerts = [notice.alert for notice in notices]
        documents = [texts(alert) for alert in alerts]
        message = {
            "receiver": "coldplate",
            "status": "firing" if any(alert.phase is Phase.FIRING for alert in alerts) else "resolved",
            "alerts": [self._alert(alert) for alert in alerts],
            "groupLabels": {},
            "commonLabels": _common([document["labels"] for document in documents]),
            "commonAnnotations": _common([document["annotations"] for document in documents]),
            "externalURL": self.external_url,
            "version": "4",
            "groupKey": "{}:{}",
            "truncatedAlerts": 0,
        }
        return json.dumps(message).encode("ascii")

    def _alert(self, alert: Alert) -> dict[str, object]:
        if alert.fired_at is None:
            raise ValueError("an alert that has not fired")
        return {
            "status": alert.phase.value,
            **texts(alert),
            "startsAt": rfc3339(alert.fired_at),
            "endsAt": NO_TIME if alert.resolved_at is None else rfc3339(alert.resolved_at),
            "generatorURL": self.external_url,
            "fingerprint": fingerprint(alert.labels),
        }


def _common(mappings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the pairs that all have in common."""
    first, *rest = mappings
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in rest)}
