"""What the agent shows of itself beside its sampling: build, configuration, threads, state files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator

from agent import __version__
from agent.catalogue.own_series import OwnSeries
from agent.daemon.reloading import LastReload
from agent.lib.statefiles import FileState
from agent.lib.threads import ThreadState
from agent.model import Frame, Framer, Instant, Labels, Node, Reading


class SelfMetrics:
    """Makes the readings.

    `scenario` names what synthetic devices play; `threads` and `files` give how these are doing.
    """

    def __init__(
        self,
        scenario: str | None,
        last: LastReload,
        threads: Callable[[], Iterable[ThreadState]] = tuple,
        files: Callable[[], Iterable[FileState]] = tuple,
    ) -> None:
        self._scenario = scenario
        self._last = last
        self._threads = threads
        self._files = files
        self._own = OwnSeries()
        self._framer = Framer()

    def frame(self, _now: Instant) -> Frame:
        """As they are now."""
        return self._framer.frame(
            (*self._build(), *self._configuration(), *self._thread_states(), *self._file_states())
        )

    def _build(self) -> Iterator[Reading]:
        build = (("version", __version__), ("python", platform.python_version()))
        yield self._reading("coldplate_build_info", 1, build)
        if self._scenario is not None:
            yield self._reading("coldplate_synthetic_info", 1, (("scenario", self._scenario),))

    def _configuration(self) -> Iterator[Reading]:
        yield self._reading("coldplate_config_last_reload_successful", int(self._last.good))
        yield self._reading("coldplate_config_last_reload_success_timestamp_seconds", self._last.at)

    def _thread_states(self) -> Iterator[Reading]:
        for state in self._threads():
            labels = (("thread", state.name),)
            yield self._reading("coldplate_thread_up", int(state.up), labels)
            yield self._reading("coldplate_thread_restarts_total", state.restarts, labels)

    def _file_states(self) -> Iterator[Reading]:
        for state in self._files():
            labels = (("file", state.name),)
            yield self._reading("coldplate_state_write_successful", int(state.good), labels)
            yield self._reading("coldplate_state_write_failures_total", state.failures, labels)

    def _reading(self, name: str, value: float, labels: Labels = ()) -> Reading:
        return self._own.reading(name, Node(), value, labels)
