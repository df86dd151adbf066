"""How peers are reached: with or without TLS, and how to log in there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.lib.credentials import LOOPBACK
from agent.lib.http_target import TLS_KEYS, HttpLogin
from agent.rack.targets import Entry, HostEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(HttpLogin):
    """The access as configured. Raises ValueError."""

    tls: bool = False

    def __post_init__(self) -> None:
        HttpLogin.__post_init__(self)
        for key in TLS_KEYS:
            if getattr(self, key) and not self.tls:
                raise ValueError(f"{key} needs https; set scheme: https, or remove {key}")

    def check(self, entries: Iterable[Entry]) -> None:
        """Refuse to send credentials unencrypted over a network. Raises ValueError."""
        if self.tls or not self.is_secret:
            return
        if not all(isinstance(each, HostEntry) and each.host in LOOPBACK for each in entries):
            raise ValueError("would send the credentials in clear text; set scheme: https")
