"""The agent's own metrics besides sampling: build, configuration, threads, state files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from agent import __version__
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.daemon.reloading import LastReload
from agent.lib.statefiles import FileState
from agent.lib.threads import ThreadState
from agent.model import Frame, Instant

if TYPE_CHECKING:
    from exporters.protection.web_watch import WebReload


class SelfMetrics:
    """Makes their frame.

    `scenario` names the scenario of synthetic devices; `threads` and `files` give the state of these, `web` how the web
    configuration was last read, and `refused` whom it kept out, by the reason.
    """

    def __init__(
        self,
        scenario: str | None,
        last: LastReload,
        threads: Callable[[], Iterable[ThreadState]] = tuple,
        files: Callable[[], Iterable[FileState]] = tuple,
        web: Callable[[], WebReload | None] = lambda: None,
        refused: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._scenario = scenario
        self._last = last
        self._threads = threads
        self._files = files
        self._web = web
        self._refused = refused
        self._own = OwnSeries()

    def frame(self, _now: Instant) -> Frame:
        """The metrics as they are now."""
        return self._own.frame(self._readings())

    def _readings(self) -> Iterator[OwnReading]:
        build = (("version", __version__), ("python", platform.python_version()))
        yield OwnReading("coldplate_build_info", 1, build)
        if self._scenario is not None:
            yield OwnReading("coldplate_synthetic_info", 1, (("scenario", self._scenario),))
        yield OwnReading("coldplate_config_last_reload_successful", int(self._last.good))
        yield OwnReading("coldplate_config_last_reload_success_timestamp_seconds", self._last.at)
        web = self._web()
        if web is not None:
            yield OwnReading("coldplate_web_config_last_reload_successful", int(web.good))
            yield OwnReading("coldplate_web_config_last_reload_success_timestamp_seconds", web.at)
            if web.expires is not None:
                yield OwnReading("coldplate_web_certificate_expiry_timestamp_seconds", web.expires)
        for reason, count in self._refused().items():
            yield OwnReading("coldplate_web_refusals_total", count, (("reason", reason),))
        for thread in self._threads():
            labels = (("thread", thread.name),)
            yield OwnReading("coldplate_thread_up", int(thread.up), labels)
            yield OwnReading("coldplate_thread_restarts_total", thread.restarts, labels)
        for file in self._files():
            labels = (("file", file.name),)
            yield OwnReading("coldplate_state_write_successful", int(file.good), labels)
            yield OwnReading("coldplate_state_write_failures_total", file.failures, labels)
            if file.written is not None:
                yield OwnReading("coldplate_state_last_write_success_timestamp_seconds", file.written, labels)
