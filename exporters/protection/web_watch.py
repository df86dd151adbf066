"""Notices that the web configuration, a certificate or a key has changed, and has the new one enforced.

Certificates are renewed by programs that know nothing of the agent: so the files are looked at every second, through
all symbolic links, which is how Kubernetes swaps them. A change is taken once it has been still for a second: a
certificate and its key are two files. What cannot be used is said once, and the former terms stay in force.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from exporters.protection.web_file import WebFileError
from exporters.protection.web_gate import Stamps, WebGate, WebTerms, load_terms, stamps_of

log = logging.getLogger("coldplate.web")

PERIOD_SECONDS = 1.0
RETRY_PERIODS = 15
"""Periods after which files that could not be used are tried again although they look the same."""
MOST_SESSIONS = 256
"""Sessions of TLS 1.2 that OpenSSL may keep: clients that want no tickets would have it keep twenty thousand."""


@dataclass(slots=True)
class WebReload:
    """How the file was last read; `at` is when that last succeeded, and `expires` when the certificate will not do any
    more, in Unix seconds."""

    at: float
    expires: float | None = None
    good: bool = True


class _Seen(NamedTuple):
    stamps: Stamps
    settled: bool


class WebWatch:
    """Reads the file at `path` and whatever it names. `wall` gives Unix seconds; `changed` is called after a change.

    Raises WebFileError if the file cannot be used at first.
    """

    def __init__(
        self,
        path: Path,
        make_gate: Callable[[WebTerms], WebGate],
        wall: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.changed = changed
        self._wall = wall
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: KeptThread | None = None
        self._once = LogOnce(log)
        self._periods = 0
        terms = load_terms(path)
        self.gate = make_gate(terms)
        self.last = WebReload(wall(), terms.expires)
        self._seen = _Seen(terms.stamps, True)

    def start(self, threads: Threads) -> None:
        """Begin to look at the files."""
        self._thread = threads.begin("web-config", self._run)

    def stop(self, seconds: float) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def load(self) -> WebTerms:
        """Return the terms as the files are now, not enforced yet; log and note a failure. Raises WebFileError."""
        try:
            return load_terms(self.path)
        except WebFileError as error:
            self.last.good = False
            text = "web configuration not reloaded, keeping the current one: %s"
            self._once.problem("load", text, error, what=str(error), level=logging.ERROR)
            raise

    def enforce(self, terms: WebTerms) -> None:
        """Have these terms enforced from now on."""
        with self._lock:
            self._once.over("load")
            self._seen = _Seen(terms.stamps, True)
            self.last = WebReload(self._wall(), terms.expires)
            self.gate.enforce(terms)
        self.changed()

    def look(self) -> None:
        """Look at the files once: notice a change, or take one that has been noticed before."""
        tls = self.gate.terms.file.tls
        now = stamps_of(self.path, *(() if tls is None else tls.files))
        if now != self._seen.stamps:
            self._seen = _Seen(now, False)
            return
        self._periods += 1
        retried = not self.last.good and self._periods >= RETRY_PERIODS
        if not self._seen.settled or retried:
            self._seen, self._periods = _Seen(now, True), 0
            self._take()
        elif self._has_kept_sessions():
            self._forget_sessions()

    def _take(self) -> None:
        try:
            terms = self.load()
        except WebFileError:
            return
        self.enforce(terms)
        log.info("web configuration reloaded")

    def _has_kept_sessions(self) -> bool:
        context = self.gate.terms.context
        return context is not None and context.session_stats()["number"] > MOST_SESSIONS

    def _forget_sessions(self) -> None:
        with suppress(WebFileError):  # then once they can be used again
            self.gate.renew(load_terms(self.path))

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_SECONDS):
            self.look()
