"""The agent's own vital signs as readings: its threads, and the files that it must be able to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.catalogue import BY_NAME
from agent.lib.statefiles import FileState
from agent.lib.threads import ThreadState
from agent.model import Labels, Node, Reading, Series


class Vitals:
    """Makes the readings; each series is made once."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, Labels], Series] = {}

    def readings(self, threads: Iterable[ThreadState], files: Iterable[FileState]) -> tuple[Reading, ...]:
        """As they are now."""
        return (*self._threads(threads), *self._files(files))

    def _threads(self, states: Iterable[ThreadState]) -> Iterator[Reading]:
        for state in states:
            labels = (("thread", state.name),)
            yield self._reading("coldplate_thread_up", int(state.up), labels)
            yield self._reading("coldplate_thread_restarts_total", state.restarts, labels)

    def _files(self, states: Iterable[FileState]) -> Iterator[Reading]:
        for state in states:
            labels = (("file", state.name),)
            yield self._reading("coldplate_state_write_successful", int(state.good), labels)
            yield self._reading("coldplate_state_write_failures_total", state.failures, labels)

    def _reading(self, name: str, value: float, labels: Labels) -> Reading:
        series = self._series.get((name, labels))
        if series is None:
            series = self._series[name, labels] = Series(BY_NAME[name], Node(), labels)
        return Reading(series, value)
