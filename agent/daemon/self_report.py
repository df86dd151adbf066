"""What the agent reports of itself: build, configuration, threads and state files as metrics, and whether it is ready.

Load balancers and deployments act on `/-/ready`, so it is about the agent and not about the node: a GPU that is lost
and a source that reports an error are data. A part of the agent that has stopped gives none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from agent import __version__
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.daemon.hub import Hub
from agent.daemon.reloading import LastReload
from agent.lib.state_files import FileState
from agent.lib.threads import ThreadState
from agent.model import EMPTY_FRAME, Frame, Instant, Lane, Outcome
from agent.sampler.sampler import Sampler

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebReload


class SelfMetrics(Struct):
    """Makes their frame.

    `scenario` names the scenario of synthetic devices; `threads` and `files` give the state of these, `web` how the web
    configuration was last read, and `refused` whom it kept out, by the reason.
    """

    scenario: str | None
    last: LastReload
    threads: Callable[[], Iterable[ThreadState]] = tuple
    files: Callable[[], Iterable[FileState]] = tuple
    web: Callable[[], WebReload | None] = lambda: None
    refused: Callable[[], Mapping[str, int]] = dict
    own: OwnSeries = field(default_factory=OwnSeries)
    state: tuple[object, ...] = ()
    """What `shown` shows."""
    shown: Frame = EMPTY_FRAME

    def frame(self, _now: Instant) -> Frame:
        """Return the metrics as they are now: the same frame until one of them changes, which is seldom."""
        web, refused = self.web(), dict(self.refused())
        reloads = self.last.good, self.last.at, web and (web.good, web.at, web.expires)
        state = (reloads, refused, tuple(self.threads()), tuple(self.files()))
        if state != self.state:
            self.state = state
            self.shown = self.own.frame(self._readings(web, refused))
        return self.shown

    def _readings(self, web: WebReload | None, refused: Mapping[str, int]) -> Iterator[OwnReading]:
        build = (("version", __version__), ("python", ".".join(map(str, sys.version_info[:3]))))
        yield OwnReading("coldplate_build_info", 1, build)
        if self.scenario is not None:
            yield OwnReading("coldplate_synthetic_info", 1, (("scenario", self.scenario),))
        yield OwnReading("coldplate_config_last_reload_successful", int(self.last.good))
        yield OwnReading("coldplate_config_last_reload_success_timestamp_seconds", self.last.at)
        if web is not None:
            yield OwnReading("coldplate_web_config_last_reload_successful", int(web.good))
            yield OwnReading("coldplate_web_config_last_reload_success_timestamp_seconds", web.at)
            if web.expires is not None:
                yield OwnReading("coldplate_web_certificate_expiry_timestamp_seconds", web.expires)
        for reason, count in refused.items():
            yield OwnReading("coldplate_web_requests_rejected_total", count, (("reason", reason),))
        for thread in self.threads():
            labels = (("thread", thread.name),)
            yield OwnReading("coldplate_thread_up", int(thread.up), labels)
            yield OwnReading("coldplate_thread_restarts_total", thread.restarts, labels)
        for file in self.files():
            labels = (("file", file.name),)
            yield OwnReading("coldplate_state_write_successful", int(file.good), labels)
            yield OwnReading("coldplate_state_write_failures_total", file.failures, labels)
            if file.written is not None:
                yield OwnReading("coldplate_state_last_write_success_timestamp_seconds", file.written, labels)


HUNG_SECONDS = 15.0
"""Seconds for which a source's read may be in flight; a slow file or sensor is not reported as hung."""
UNWRITTEN_SECONDS = 60.0
"""Seconds for which state may wait for the disk; a disk that is full for a moment is not reported."""


class Readiness(Struct):
    """Checks the age of the last snapshot, by the limit of the sampler, and that the parts work.

    `threads` gives what is wrong with a thread, by its name; `rules` why rounds of rules fail, empty if they do not.
    Each is called in the server's thread and returns at once.
    """

    hub: Hub
    sampler: Sampler
    clock: Callable[[], Instant]
    threads: Callable[[], Mapping[str, str]] = dict
    rules: Callable[[], str] = str
    files: Callable[[], Iterable[FileState]] = tuple

    def __call__(self) -> tuple[bool, str]:
        """Return whether nothing has stopped, and a line for each part that has, or one about the last sample."""
        snapshot = self.hub.latest
        if snapshot is None:
            return False, "no sample yet"
        now = self.clock().mono
        age = now - snapshot.at.mono
        stopped = [*self._sampling(age), *self._backends(now), *self._rules(), *self._state()]
        return not stopped, "\n".join(stopped) or f"the last sample is {max(age, 0.0):.1f} s old"

    def _sampling(self, age: float) -> Iterator[str]:
        if age > self.sampler.settings.stale_after(Lane.FAST):
            yield f"the last sample is {age:.1f} s old"
            return
        snapshot = self.hub.latest
        for report in () if snapshot is None else snapshot.reports:
            if report.backend == self.sampler.devices and report.outcome is Outcome.FAILED:
                yield f"the devices cannot be read: {report.detail}"

    def _backends(self, now: float) -> Iterator[str]:
        unanswered = self.sampler.health.unanswered
        hung = {name: now - since for name, since in unanswered.items() if now - since > HUNG_SECONDS}
        for name, seconds in hung.items():
            yield f"backend {name} has not answered for {seconds:.0f} s"
        for thread, trouble in self.threads().items():
            name = thread.removeprefix("backend-")
            if name != thread and name not in hung:
                yield f"backend {name}: its thread {trouble}"

    def _rules(self) -> Iterator[str]:
        trouble = self.threads().get("rules")
        if trouble:
            yield f"rules are not evaluated: their thread {trouble}"
        elif failing := self.rules():
            yield f"rules are not evaluated: {failing}"

    def _state(self) -> Iterator[str]:
        trouble = self.threads().get("state")
        if trouble:
            yield f"state is not written: its thread {trouble}"
        for file in self.files():
            if not file.good and file.waiting > UNWRITTEN_SECONDS:
                yield f"state is not written: {file.name} for {file.waiting:.0f} s"
