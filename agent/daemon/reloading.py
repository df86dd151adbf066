"""Reloads the configuration, in a thread of its own, and sends the agent's state to systemd (sd_notify).

Each request gets the result of a reload that started after it. A failed reload keeps the current configuration.
"""

import contextlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from agent.config.schema import ConfigError
from agent.lib.threads import CLOSING_SECONDS, KeptThread, Threads
from agent.model import Instant


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


log = logging.getLogger("coldplate")

Callback = Callable[[bool, str], None]
"""Called with the result of a reload: whether it succeeded, and a text."""


class WebFileRejectedError(ConfigError):
    """A reload failed because of the web configuration or its files alone."""


class LastReload(Struct):
    """The result of the last reload; `at` is when the configuration was last read successfully, in Unix seconds.

    `awaits_web_file`: it failed because of the web configuration alone.
    """

    at: float
    good: bool = True
    message: str = ""
    awaits_web_file: bool = False


class Reloader(Struct):
    """Runs the reloads that are requested, one at a time, in its own thread; `last` is the result of the last one.

    `reread` reads the file, applies it, and returns the keys that need a restart; or it raises and changes nothing.
    """

    reread: Callable[[], Sequence[str]]
    last: LastReload
    clock: Callable[[], Instant]
    notifier: Notifier
    threads: Threads
    callbacks: deque[Callback] = field(default_factory=deque)
    requested: threading.Event = field(default_factory=threading.Event)
    stopping: bool = False
    thread: KeptThread | None = None

    def start(self) -> None:
        self.thread = self.threads.begin("reload", self._run_requests)

    def ask(self, callback: Callback | None = None) -> None:
        """Request a reload, after which `callback` is called. For any thread; returns at once."""
        if callback is not None:
            self.callbacks.append(callback)
        self.requested.set()

    def web_file_accepted(self) -> None:
        """Repeat a reload that failed because of the web configuration alone. For any thread; returns at once.

        The agent reads that file again by itself, so the operator need not request the reload again.
        """
        if self.last.awaits_web_file:
            log.info("web configuration repaired: repeating the reload that it prevented")
            self.ask()

    def stop(self, timeout: float = CLOSING_SECONDS) -> None:
        """Start no other reload, and wait up to `timeout` seconds for the one under way."""
        self.stopping = True
        self.requested.set()
        if self.thread is not None:
            self.thread.join(timeout)
        self._answer(list(self.callbacks), False, "the agent is stopping")

    def _run_requests(self) -> None:
        while True:
            self.requested.wait()
            self.requested.clear()
            if self.stopping:
                return
            self._reload()

    def _reload(self) -> None:
        callbacks = [self.callbacks.popleft() for _ in range(len(self.callbacks))]
        good, text = False, "the reload failed; see coldplate's log"
        self.notifier.send(RELOADING=1, MONOTONIC_USEC=int(self.clock().mono * 1e6))
        try:
            self._attempt()
            good, text = self.last.good, self.last.message
        finally:
            self.notifier.send(READY=1)
            self._answer(callbacks, good, text)

    def _attempt(self) -> None:
        try:
            waiting = self.reread()
        except Exception as error:  # even after a defect in our code the running configuration stays in force
            is_config_error = isinstance(error, ConfigError)
            self.last.good, self.last.message = False, str(error)
            self.last.awaits_web_file = isinstance(error, WebFileRejectedError)
            kept = "configuration not reloaded, keeping the current one: %s"
            log.error(kept, error, exc_info=None if is_config_error else error)
        else:
            rest = f"; these changes need a restart: {', '.join(waiting)}" if waiting else ""
            self.last.good, self.last.message, self.last.at = True, f"configuration reloaded{rest}", self.clock().wall
            self.last.awaits_web_file = False
            log.log(logging.WARNING if waiting else logging.INFO, self.last.message)

    @staticmethod
    def _answer(callbacks: list[Callback], good: bool, text: str) -> None:
        for callback in callbacks:
            callback(good, text)
