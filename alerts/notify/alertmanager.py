"""Alerts to one Alertmanager, over its API v2, as Prometheus sends them: each instance gets every alert."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agent.model import Instant
from agent.threads import Threads
from alerts.notify.delivery import HttpReceiver, Pace, jitter
from alerts.notify.notice import Notice, rfc3339, texts
from alerts.notify.target import Target, split_url

PATH = "/api/v2/alerts"


class Alertmanager(HttpReceiver):
    """One instance. `external_url` is where coldplate's own pages are found, the alerts' generatorURL."""

    name = "alertmanager"
    repeats = True
    expires = True
    compares = True

    def __init__(
        self,
        target: Target,
        clock: Callable[[], Instant],
        external_url: str = "",
        pace: Pace | None = None,
        jitter: Callable[[], float] = jitter,
        threads: Threads | None = None,
    ) -> None:
        if target.path.endswith(("/api/v1/alerts", PATH)):
            raise ValueError(f"url {target.shown!r}: want Alertmanager's own address, without /api/...")
        if external_url:
            split_url(external_url)  # Alertmanager refuses each alert whose generatorURL is not one
        super().__init__(target, target.path + PATH, clock, pace, jitter, threads)
        self.external_url = external_url

    def encode(self, notices: Sequence[Notice]) -> bytes:
        return json.dumps([self._alert(notice) for notice in notices]).encode("ascii")

    def _alert(self, notice: Notice) -> dict[str, object]:
        alert = notice.alert
        if alert.fired_at is None:
            raise ValueError("an alert that has not fired")
        document: dict[str, object] = {
            **texts(alert),
            "startsAt": rfc3339(alert.fired_at),
            "endsAt": rfc3339(notice.valid_until if alert.resolved_at is None else alert.resolved_at),
        }
        if self.external_url:
            document["generatorURL"] = self.external_url
        return document
