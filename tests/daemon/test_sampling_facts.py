"""What the sampling loop says of its worker, its ticks and a pause, and what it passes on, with a clock of its own."""

import os
from collections.abc import Iterable
from dataclasses import replace

import pytest

from agent.backends.protocol import BackendSample
from agent.daemon import sampling
from agent.daemon.pausing import PauseAnswer
from agent.model import Instant, Lane, Outcome, Reason, Snapshot
from agent.sampler.schedule import Settings
from agent.worker.worker_messages import Message, Refusal
from tests.daemon.standin import LoopRig, QuickBackend


class Worker:
    """A worker as the loop sees it. It answers nothing but what a test lays out for it."""

    running, awaited, held, descriptor = True, False, False, None
    ended: Refusal | None = None
    refusal: Refusal | None = None
    pid: int | None = os.getpid()
    restarts, garbage = 0, 0

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.steps: list[float] = []
        self.moves: list[str] = []

    @property
    def opening(self) -> bool:
        return False

    def ping(self, now: float) -> None:
        pass

    def step(self, now: float) -> None:
        self.steps.append(now)

    def ask(self, lanes: Iterable[Lane], now: float) -> bool:
        return False

    def receive(self, now: float) -> list[Message]:
        said, self.said = self.said, []
        return said

    def hold(self, now: float) -> None:
        self.moves.append(f"hold {now:.0f}")
        self.held = True

    def release(self, now: float) -> None:
        self.moves.append(f"release {now:.0f}")
        self.held = False

    def stop(self, wait: object) -> None:
        self.moves.append("stop")

    def abandon(self) -> None:
        self.moves.append("abandon")


class Pause:
    def __init__(self) -> None:
        self.until: float | None = None
        self.told: list[PauseAnswer] = []

    @property
    def current(self) -> tuple[float, str] | None:
        return None if self.until is None else (self.until, "somebody has released the driver")

    def confirm(self, done: PauseAnswer) -> None:
        self.told.append(done)


class Quick(QuickBackend):
    lanes = frozenset({Lane.FAST, Lane.SLOW})

    def __init__(self) -> None:
        self.reads: list[Lane] = []
        self.closed = False

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        self.reads.append(lane)
        return BackendSample()

    def close(self) -> None:
        self.closed = True


class Rig(LoopRig):
    """A loop whose clock moves by a second with each `tick`."""

    def __init__(self, worker: Worker | None = None, pause: Pause | None = None, *backends: Quick) -> None:
        self.now = 100.0
        self.step = 1e-6
        """Seconds that pass whenever the clock is read."""
        self.wall = 1e9
        super().__init__(self.clock, Settings(), backends, worker, pause=pause)

    def clock(self) -> Instant:
        self.now += self.step
        return Instant(self.now, self.wall + self.now)

    def tick(self) -> Snapshot:
        self.loop.tick()
        self.now = float(int(self.now) + 1)
        return self.latest

    def page(self, *names: str) -> dict[str, float]:
        """The values of these series on a page after one more tick, by the rest of their names."""
        rows = {each.metric.name.removeprefix("coldplate_"): each.value for each in self.tick().readings}
        return {name: rows[name] for name in names if name in rows}


def test_a_worker_is_up_down_or_nothing_where_the_driver_is_absent_or_released() -> None:
    worker = Worker()
    worker.restarts = 2
    rig, up, absent = Rig(worker), ("worker_up", "worker_restarts_total"), Refusal(True, "no driver")
    assert rig.page(*up) == {"worker_up": 1, "worker_restarts_total": 2}
    worker.running = False
    assert rig.page(*up) == {"worker_up": 0, "worker_restarts_total": 2}
    worker.refusal = replace(absent, absent=False)
    assert rig.page(*up) == {"worker_up": 0, "worker_restarts_total": 2}
    worker.refusal = absent
    assert rig.page(*up) == {}
    worker.refusal, worker.held = None, True
    assert rig.page(*up) == {}
    assert Rig().page(*up) == {}


def test_ticks_those_that_were_missed_and_the_garbage_of_workers_are_counted() -> None:
    worker = Worker()
    rig, names = Rig(worker), ("ticks_total", "ticks_missed_total", "readings_rejected_total")
    rig.tick()
    rig.now += 3
    assert rig.page(*names) == {"ticks_total": 2, "ticks_missed_total": 3}
    worker.garbage = 7
    assert rig.page("readings_rejected_total") == {"readings_rejected_total": 7}


def test_a_standstill_is_logged_once_with_its_length(caplog: pytest.LogCaptureFixture) -> None:
    """Of a stopped process by the monotonic clock, of a suspended machine by the wall clock, which alone moves then."""
    rig = Rig()
    for seconds in (0, 1, 8):  # late, and no more than on a busy node
        rig.now += seconds
        rig.tick()
    assert caplog.records == []
    rig.now += 30
    for _ in range(3):
        rig.tick()
    (stopped,) = caplog.records
    assert stopped.levelname == "WARNING" and "stood still" in stopped.getMessage() and "30 s" in stopped.getMessage()
    caplog.clear()
    for seconds in (3600, -3600, 5):
        rig.wall += seconds
        for _ in range(3):
            rig.tick()
    (suspended,) = caplog.records
    assert "suspended" in suspended.getMessage() and "3600 s" in suspended.getMessage()


def test_a_tick_that_took_long_is_not_logged_as_a_stopped_process_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The clock shows the same for both, as here for a reader of snapshots that takes 30 s for one of them."""
    rig = Rig()
    seconds = iter([0, 30, 0])

    def read_slowly(_: Snapshot) -> None:
        rig.now += next(seconds)

    rig.hub.follow("reading slowly", read_slowly)
    for _ in range(3):
        rig.tick()
    (record,) = caplog.records
    assert "was stopped" in record.getMessage() and "tick took too long" in record.getMessage()


def reports(snapshot: Snapshot) -> dict[str, tuple[Outcome, str]]:
    return {each.backend: (each.outcome, each.detail) for each in snapshot.reports}


def test_why_the_worker_ended_is_reported_unless_it_was_asked_to() -> None:
    worker = Worker()
    rig = Rig(worker)
    for absent, outcome in ((True, Outcome.ABSENT), (False, Outcome.FAILED)):
        worker.said = [Refusal(absent, "libnvidia-ml.so.1 is not there")]
        assert reports(rig.tick())["nvml"] == (outcome, "libnvidia-ml.so.1 is not there")
    worker.ended = Refusal(False, "the device worker is silent", Reason.TIMEOUT)
    assert reports(rig.tick())["nvml"] == (Outcome.FAILED, "the device worker is silent")
    assert worker.ended is None
    worker.ended, worker.held = Refusal(False, "the device worker was killed"), True
    assert reports(rig.tick())["nvml"] == (Outcome.FAILED, "the device worker is silent")
    assert worker.ended is None


def test_a_pause_holds_the_worker_once_answers_at_each_tick_and_releases_it_once() -> None:
    worker, pause = Worker(), Pause()
    rig = Rig(worker, pause)
    paused = "driver_pause_end_timestamp_seconds"
    assert rig.page(paused) == {}
    assert (worker.moves, pause.told) == ([], [])
    pause.until = 1e9 + 300
    worker.pid = 4711
    assert rig.page(paused) == {paused: 1e9 + 300}
    assert set(pause.told) == {PauseAnswer(1e9 + 300, 4711)}
    worker.pid = None
    assert rig.page(paused) == {paused: 1e9 + 300}
    assert pause.told[-1] == PauseAnswer(1e9 + 300, None)
    answered, pause.until = len(pause.told), None
    assert rig.page(paused) == {}
    assert worker.moves == ["hold 101", "release 103"]
    assert len(pause.told) == answered


def test_the_agents_own_cost_is_read_in_the_slow_lane() -> None:
    worker = Worker()
    rig = Rig(worker)

    def processes() -> list[str]:
        rows = [
            each.series for each in rig.tick().readings if each.metric.name == "coldplate_process_cpu_seconds_total"
        ]
        return [dict(each.all_labels)["process"] for each in rows]

    assert processes() == ["main", "worker"]
    worker.pid = None
    assert processes() == ["main", "worker"]  # not read again before the slow lane is due
    rig.now = 116.0
    assert processes() == ["main"]


def test_other_settings_reach_the_sampler_the_grid_and_who_follows_the_hub() -> None:
    rig = Rig()
    rig.step = 0.05
    assert rig.hub.period == 1.0
    rig.loop.reconfigure(Settings(fast=0.25, slow=2.0))
    rig.loop.once()
    assert rig.hub.period == 0.25
    assert rig.sampler.settings.slow == 2.0
    assert abs(rig.loop.schedule.next_tick - rig.now) <= 0.45
    assert rig.loop.schedule.ticks == 2


def test_once_gives_the_second_of_two_ticks_and_reads_slow_lanes_in_the_first() -> None:
    backend = Quick()
    rig = Rig(None, None, backend)
    rig.step = 0.05
    snapshot = rig.loop.once()
    assert (snapshot.sequence, rig.loop.schedule.ticks) == (2, 2)
    assert (backend.reads.count(Lane.FAST), backend.reads.count(Lane.SLOW)) == (2, 1)
    rig.loop.close(lambda _: None)
    assert backend.closed


class Slow(Quick):
    """A backend with a source that has answered only at its third read."""

    lanes = frozenset({Lane.SLOW})

    def __init__(self, answers: int = 3) -> None:
        super().__init__()
        self._answers = answers

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        super().read(lane, now)
        return BackendSample(awaited=len(self.reads) < self._answers)


def test_once_reads_slow_lanes_until_their_sources_answer_but_not_for_ever(monkeypatch) -> None:
    def once(backend: Slow) -> tuple[int, int]:
        rig = Rig(None, None, backend)
        rig.step = 0.05
        snapshot, reads = rig.loop.once(), len(backend.reads)
        rig.loop.close(lambda _: None)
        return snapshot.sequence, reads

    assert once(Slow())[1] == 3
    monkeypatch.setattr(sampling, "ANSWER_SECONDS", 1.0)
    assert once(Slow(10**9))[0] in (3, 4)


def test_closing_ends_the_worker_and_its_descriptors() -> None:
    worker = Worker()
    before = len(os.listdir("/proc/self/fd"))
    rig = Rig(worker)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    rig.loop.supervisor.abandon()
    rig.loop.close(lambda _: None)
    assert worker.moves == ["abandon", "stop"]
    assert len(os.listdir("/proc/self/fd")) == before
