"""Whoever is told by an Alertmanager: a webhook that keeps each notification, with the receiver it was meant for."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Notification(NamedTuple):
    """One message, about one or more alerts."""

    receiver: str
    group: dict[str, str]
    alerts: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        """The names of its alerts."""
        return sorted({each["labels"]["alertname"] for each in self.alerts})


class Inbox(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface, between `with` and its end."""

    def __init__(self) -> None:
        self.told: list[Notification] = []
        super().__init__(("127.0.0.1", 0), _Taking)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1})

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Inbox:  # noqa: PYI034 Python 3.10 has no Self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Inbox)
        self.server.told.append(Notification(body["receiver"], body["groupLabels"], body["alerts"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
