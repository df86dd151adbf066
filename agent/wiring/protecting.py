"""What protects the pages, by the web configuration file that the configuration names."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.places import with_places
from agent.config.schema import Config, ConfigError
from agent.lib.threads import CLOSING_SECONDS, Threads
from exporters.protection.passwords import PasswordChecks

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebGate, WebTerms
    from exporters.protection.web_watch import WebReload, WebWatch


class Protection:
    """Watches the file and checks passwords by it; does nothing where the configuration names no file.

    `wall` gives Unix seconds. Raises ConfigError for a file that cannot be used.
    """

    def __init__(self, config: Config, wall: Callable[[], float], threads: Threads | None = None) -> None:
        self._threads = threads or Threads()
        self.passwords = PasswordChecks(time.monotonic)
        self.watch: WebWatch | None = None
        if config.web.config_file is None:
            return
        from exporters.protection.web_file import WebFileError  # only where the configuration names a web file
        from exporters.protection.web_gate import WebGate
        from exporters.protection.web_watch import WebWatch

        def make_gate(terms: WebTerms) -> WebGate:
            return WebGate(terms, self.passwords, time.monotonic)

        try:
            self.watch = WebWatch(Path(config.web.config_file), make_gate, wall)
        except WebFileError as error:
            raise ConfigError(f"web.config_file: {error}") from error

    def start(self) -> None:
        """Begin to watch the file and to check passwords."""
        if self.watch is not None:
            self.watch.start(self._threads)
            self.passwords.start(self._threads)

    def stop(self) -> None:
        """End both."""
        if self.watch is not None:
            self.watch.stop(CLOSING_SECONDS)
            self.passwords.stop(CLOSING_SECONDS)

    @property
    def is_encrypted(self) -> bool:
        """Return True if the pages are served by HTTPS."""
        return self.watch is not None and self.watch.gate.terms.context is not None

    def last(self) -> WebReload | None:
        """How the file was last read; None if there is none."""
        return None if self.watch is None else self.watch.last

    def refused(self) -> Mapping[str, int]:
        """Clients and requests that were refused since the start, by the reason; nothing if there is no file."""
        return {} if self.watch is None else self.watch.gate.refused

    def load(self) -> WebTerms | None:
        """The terms as the files are now. Raises ConfigError."""
        if self.watch is None:
            return None
        from exporters.protection.web_file import WebFileError

        try:
            return self.watch.load()
        except WebFileError as error:
            raise ConfigError(f"web.config_file: {error}") from error

    def enforce(self, terms: WebTerms | None) -> None:
        """Have these terms enforced, unless there are none."""
        if self.watch is not None and terms is not None:
            self.watch.enforce(terms)


@with_places
def protect(config: Config, wall: Callable[[], float], threads: Threads) -> Protection:
    """Make the protection that the configuration asks for. Raises ConfigError with file and line."""
    return Protection(config, wall, threads)


@with_places
def load_terms(_config: Config, protection: Protection) -> WebTerms | None:
    """Load the terms for a configuration that was just read. Raises ConfigError with file and line."""
    return protection.load()
