"""Alerts to one Alertmanager, over its API v2, as Prometheus sends them: each instance gets every alert."""

import json
from collections.abc import Sequence
from math import floor

from agent.lib.http_target import split_url
from alerts.notify.delivery import HttpReceiver
from alerts.notify.receiver import Notice, rfc3339, texts

PATH = "/api/v2/alerts"


class Alertmanager(HttpReceiver):
    """One instance. `external_url` is also the alerts' generatorURL."""

    name = "alertmanager"
    path = PATH
    repeats = True
    expires = True

    def check(self) -> None:
        if self.target.path.endswith(("/api/v1/alerts", PATH)):
            raise ValueError(f"url {self.target.shown!r}: give Alertmanager's base URL, without /api/...")
        if self.external_url:
            split_url(self.external_url)  # Alertmanager rejects each alert whose generatorURL is not one

    def encode(self, notices: Sequence[Notice]) -> bytes:
        now = floor((self._clock().wall + self._server_clock.ahead) * 1000) / 1000
        return json.dumps([self._alert(notice, now) for notice in notices]).encode("ascii")

    def _alert(self, notice: Notice, now: float) -> dict[str, object]:
        """Return an alert as the API expects it, at second `now` of Alertmanager's clock.

        If the clock was set back, the end may be in the future. Alertmanager would not take that for an end: it would
        keep the later `endsAt` that it got while the alert fired.
        """
        alert = notice.alert
        if alert.fired_at is None:
            raise ValueError("an alert that has not fired")
        starts, ends = alert.fired_at, notice.valid_until
        if alert.resolved_at is not None:
            ends = min(alert.resolved_at, now)
            starts = min(starts, ends)
        document: dict[str, object] = {**texts(alert), "startsAt": rfc3339(starts), "endsAt": rfc3339(ends)}
        if self.external_url:
            document["generatorURL"] = self.external_url
        return document
