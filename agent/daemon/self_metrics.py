"""The agent's own metrics besides sampling: build, configuration, threads, state files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from agent import __version__
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnLayout
from agent.daemon.reloading import LastReload
from agent.lib.statefiles import FileState
from agent.lib.threads import ThreadState
from agent.model import Frame, Instant, Labels, Node, Series
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
        self._layout = OwnLayout()

    def frame(self, _now: Instant) -> Frame:
        """The metrics as they are now."""
        threads, files = tuple(self._threads()), tuple(self._files())
        web = self._web()
        shape = (
            web is not None and web.expires is None,
            *(state.name for state in threads),
            None,
            *((state.name, state.written is None) for state in files),
        )
        return self._layout.frame(shape, lambda: self._series(threads, files), self._values(threads, files))

    def _series(self, threads: Iterable[ThreadState], files: Iterable[FileState]) -> Iterator[Series]:
        build = (("version", __version__), ("python", platform.python_version()))
        yield _series("coldplate_build_info", build)
        if self._scenario is not None:
            yield _series("coldplate_synthetic_info", (("scenario", self._scenario),))
        yield _series("coldplate_config_last_reload_successful")
        yield _series("coldplate_config_last_reload_success_timestamp_seconds")
        if self._web() is not None:
            yield _series("coldplate_web_config_last_reload_successful")
            yield _series("coldplate_web_config_last_reload_success_timestamp_seconds")
        yield from self._web_series()
        for thread in threads:
            labels = (("thread", thread.name),)
            yield _series("coldplate_thread_up", labels)
            yield _series("coldplate_thread_restarts_total", labels)
        for file in files:
            labels = (("file", file.name),)
            yield _series("coldplate_state_write_successful", labels)
            yield _series("coldplate_state_write_failures_total", labels)
            if file.written is not None:
                yield _series("coldplate_state_last_write_success_timestamp_seconds", labels)

    def _web_series(self) -> Iterator[Series]:
        web = self._web()
        if web is not None and web.expires is not None:
            yield _series("coldplate_web_certificate_expiry_timestamp_seconds")
        for reason in self._refused():
            yield _series("coldplate_web_refusals_total", (("reason", reason),))

    def _values(self, threads: Iterable[ThreadState], files: Iterable[FileState]) -> Iterator[float]:
        """Those of `_series`, in the same order."""
        yield 1
        if self._scenario is not None:
            yield 1
        yield from (int(self._last.good), self._last.at)
        web = self._web()
        if web is not None:
            yield from (int(web.good), web.at)
            if web.expires is not None:
                yield web.expires
        yield from self._refused().values()
        for thread in threads:
            yield from (int(thread.up), thread.restarts)
        for file in files:
            yield from (int(file.good), file.failures)
            if file.written is not None:
                yield file.written


def _series(name: str, labels: Labels = ()) -> Series:
    return Series(BY_NAME[name], Node(), labels)
