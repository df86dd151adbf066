"""Whether this node is monitored at all: what `/-/ready` answers, with a line for each part that has stopped.

Load balancers and deployments act on it, so it is about the agent and not about the node: a GPU that is lost, hardware
that is absent and a source that reports an error are data. A part that has stopped gives none: no fresh sample, no
device at all, rules that are not evaluated, a source whose thread ended or hangs, and state that is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.daemon.hub import Hub
from agent.lib.statefiles import FileState
from agent.model import Instant, Lane, Outcome
from agent.sampler.sampler import Sampler

HUNG_SECONDS = 15.0
"""Seconds for which a source's read may be in flight; a slow file or sensor is no reason to move anything."""
UNWRITTEN_SECONDS = 60.0
"""Seconds for which state may wait for the disk: a moment without room is none, either."""


@dataclass(frozen=True, slots=True)
class Signs:
    """How the parts show that they work; each is called in the server's thread and returns at once.

    `threads` gives what is wrong with a thread, by its name; `rules` why rounds of rules fail, empty if they do not.
    """

    threads: Callable[[], Mapping[str, str]] = dict
    rules: Callable[[], str] = str
    files: Callable[[], Iterable[FileState]] = tuple


class Readiness:
    """Checks the last snapshot, with the sampler's patience, and the signs of life of the parts."""

    def __init__(self, hub: Hub, sampler: Sampler, clock: Callable[[], Instant], signs: Signs | None = None) -> None:
        self._hub = hub
        self._sampler = sampler
        self._clock = clock
        self._signs = signs or Signs()

    def __call__(self) -> tuple[bool, str]:
        """Whether nothing has stopped, and a line for each part that has, or one about the last sample."""
        snapshot = self._hub.latest
        if snapshot is None:
            return False, "no sample yet"
        now = self._clock().mono
        age = now - snapshot.at.mono
        stopped = [*self._sampling(age), *self._backends(now), *self._rules(), *self._state()]
        return not stopped, "\n".join(stopped) or f"the last sample is {max(age, 0.0):.1f} s old"

    def _sampling(self, age: float) -> Iterator[str]:
        if age > self._sampler.settings.patience(Lane.FAST):
            yield f"the last sample is {age:.1f} s old"
            return
        snapshot = self._hub.latest
        for report in () if snapshot is None else snapshot.reports:
            if report.backend == self._sampler.devices and report.outcome is Outcome.FAILED:
                yield f"the devices cannot be read: {report.detail}"

    def _backends(self, now: float) -> Iterator[str]:
        hung = {name: now - since for name, since in self._sampler.unanswered.items() if now - since > HUNG_SECONDS}
        for name, seconds in hung.items():
            yield f"backend {name} has not answered for {seconds:.0f} s"
        for thread, trouble in self._signs.threads().items():
            name = thread.removeprefix("backend-")
            if name != thread and name not in hung:
                yield f"backend {name}: its thread {trouble}"

    def _rules(self) -> Iterator[str]:
        trouble = self._signs.threads().get("rules")
        if trouble:
            yield f"rules are not evaluated: their thread {trouble}"
        elif failing := self._signs.rules():
            yield f"rules are not evaluated: {failing}"

    def _state(self) -> Iterator[str]:
        trouble = self._signs.threads().get("state")
        if trouble:
            yield f"state is not written: its thread {trouble}"
        for file in self._signs.files():
            if not file.good and file.waiting > UNWRITTEN_SECONDS:
                yield f"state is not written: {file.name} for {file.waiting:.0f} s"
