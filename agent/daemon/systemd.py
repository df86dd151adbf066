"""Messages to systemd (sd_notify): ready, reloading, status, watchdog. Does nothing if systemd did not request them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to the socket that `NOTIFY_SOCKET` names, if any."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._heartbeat: int | None = None

    def alive(self, heartbeat: int, status: str) -> None:
        """Feed the watchdog if `heartbeat` has changed since the last call: a loop that is stuck must be noticed."""
        if heartbeat != self._heartbeat:
            self._heartbeat = heartbeat
            self.send(WATCHDOG=1, STATUS=status)

    def send(self, **facts: object) -> None:
        """Send assignments, such as READY=1. A socket that is gone is no reason to stop."""
        if not self._address:
            return
        # An address that begins with @ is in the abstract namespace, whose first byte is zero (sd_notify(3)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(f"{name}={value}" for name, value in facts.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | os.O_CLOEXEC) as speaker:
            speaker.sendto(message.encode(), address)
