"""The kinds of receivers that are reached over HTTP: a file in `alerts/notify/` with a constant RECEIVER is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agent.lib.discovery import modules_in
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Instant
from alerts import notify
from alerts.notify.delivery import HttpReceiver


class ReceiverKind(Protocol):
    """The type of RECEIVER: a class of receivers. `name` is the key below `notify` with their addresses."""

    @property
    def name(self) -> str: ...

    def __call__(
        self, target: HttpTarget, clock: Callable[[], Instant], external_url: str, *, threads: Threads
    ) -> HttpReceiver:
        """A receiver; `external_url` is the address of coldplate's own pages. Raises ValueError."""
        ...


def _discover() -> tuple[ReceiverKind, ...]:
    modules = modules_in(notify.__name__, notify.__path__)
    return tuple(module.RECEIVER for module in modules if hasattr(module, "RECEIVER"))


RECEIVERS = _discover()
