"""The sampling loop: who is waited for, and what its heartbeat says."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from agent.backends.protocol import BackendSample, ChannelError, LaneSample
from agent.catalogue import BY_NAME
from agent.daemon import sampling
from agent.daemon.sampling import LATE_SECONDS
from agent.model import EMPTY_FRAME, Frame, Gpu, GpuIdentity, Instant, Lane, Layout, Reason, Series, Snapshot, Xid
from agent.sampler.schedule import Settings
from agent.worker.worker_messages import Hello, Message
from tests.daemon.standin import LoopRig, QuickBackend
from tests.daemon.test_sampling_facts import Quick, Worker
from tests.waiting import wait_until


def clock() -> Instant:
    return Instant(time.monotonic(), time.time())


class Rig(LoopRig):
    def __init__(self, settings: Settings, *backends: Any, clock: Callable[[], Instant] = clock, **more: Any) -> None:
        super().__init__(clock, settings, backends, **more)

    def values(self, name: str, label: str = "gpu") -> dict[str, float]:
        """Those of a series, by a label."""
        rows = [each for each in self.latest.readings if each.metric.name == f"coldplate_{name}"]
        return {dict(each.series.all_labels)[label]: each.value for each in rows}


@pytest.fixture(autouse=True)
def swift_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wakes the loop here: it looks at the test's clock once a beat."""
    monkeypatch.setattr(sampling, "HEARTBEAT_SECONDS", 0.02)


class Sick(Quick):
    """A backend that hangs in its slow lane from the first read on, until it is cured."""

    name = "sick"

    def __init__(self) -> None:
        super().__init__()
        self.cured = threading.Event()

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        if lane is Lane.SLOW:
            self.cured.wait(60)
        return BackendSample()


def test_a_backend_that_hangs_from_the_start_is_down_and_the_others_are_up() -> None:
    sick, well = Sick(), Quick()
    rig = Rig(Settings(fast=0.05, slow=0.2, deadline=0.3), sick, well)
    loop = rig.loop

    def are_up(**wanted: float) -> bool:
        loop.tick()
        missing = any(each.metric.name == "coldplate_metric_missing" for each in rig.latest.readings)
        return not missing and rig.values("backend_up", "backend") == wanted

    wait_until(lambda: are_up(sick=0, quick=1))
    sick.cured.set()
    wait_until(lambda: are_up(sick=1, quick=1))
    reads = [each.series.all_labels for each in rig.latest if each.metric.name == "coldplate_backend_reads_total"]
    assert {tuple(value for _, value in labels) for labels in reads} == {("sick", "ok"), ("quick", "ok")}
    loop.stop()
    loop.close(time.sleep)


def test_the_heartbeat_stops_when_the_loop_is_stuck() -> None:
    free, asked = threading.Event(), threading.Event()
    free.set()

    class Stubborn:
        def frame(self, _now: Instant) -> Frame:
            if not free.is_set():
                asked.set()
                free.wait(10)
            return EMPTY_FRAME

    engine = Rig(Settings(fast=0.1), providers={"standing still": Stubborn()}).loop
    loop = threading.Thread(target=engine.run)
    loop.start()
    wait_until(lambda: engine.heartbeat > 0)
    free.clear()
    assert asked.wait(10)
    stuck = engine.heartbeat
    time.sleep(0.3)  # three ticks
    assert engine.heartbeat == stuck
    free.set()
    wait_until(lambda: engine.heartbeat > stuck)
    engine.stop()
    loop.join(5)
    engine.close(time.sleep)


class ScriptedWorker(Worker):
    """One whose GPU fails or answers as the test says."""

    def __init__(self, gpus: int = 1) -> None:
        """Of more GPUs than one the others never answer."""
        super().__init__()
        self.lost = False
        self.events: list[Xid] = []
        self.asked: list[set[Lane]] = []
        identities = [GpuIdentity(Gpu(f"{n}", f"GPU-{n}"), f"0000:{n}b:00.0", "S", "H100") for n in range(gpus)]
        self._messages: list[Message] = [Hello("nvml", tuple((each.gpu.uuid, each) for each in identities))]

    def ask(self, lanes: Iterable[Lane], now: float) -> bool:
        self.asked.append(set(lanes))
        for lane in self.asked[-1]:
            if self.lost:
                self._messages.append(ChannelError("GPU-0", lane, now, Reason.LOST, "fell off the bus"))
            else:
                self._messages.append(LaneSample("GPU-0", lane, now, 0.001, 1, EMPTY_FRAME, ()))
        return True

    def receive(self, now: float) -> list[Message]:
        messages, self._messages = self._messages, []
        if self.events:
            messages.append(tuple(self.events))
            self.events = []
        return messages


class Frozen:
    """A clock that the test sets; each look at it takes a millisecond, as waiting takes time, too."""

    def __init__(self) -> None:
        self.mono = 100.0

    def __call__(self) -> Instant:
        self.mono += 0.001
        return Instant(self.mono, 1e9 + self.mono)


def test_a_gpu_that_is_back_is_read_in_every_lane_at_once() -> None:
    """What is read every minute would be missing for as long, although the GPU is well. Tick 7 hears of the answer."""
    worker, frozen = ScriptedWorker(), Frozen()
    engine = Rig(Settings(), worker=worker, clock=frozen).loop
    for tick in range(10):
        worker.lost = 3 <= tick < 6
        frozen.mono = 100.0 + tick
        engine.tick()
    engine.close(lambda _: None)
    everything = {Lane.FAST, Lane.SLOW, Lane.COLD}
    assert [each == everything for each in worker.asked] == [tick in (0, 8) for tick in range(10)]


class WarmingWorker(ScriptedWorker):
    """One whose GPU draws as many watts as it was read times."""

    _layout = Layout((Series(BY_NAME["coldplate_gpu_power_watts"], Gpu("0", "GPU-0")),))

    def receive(self, now: float) -> list[Message]:
        frame = Frame(self._layout, (len(self.asked),))
        return [
            each._replace(frame=frame) if isinstance(each, LaneSample) and each.lane is Lane.FAST else each
            for each in super().receive(now)
        ]


def test_readings_are_new_at_each_tick_and_computed_values_once_a_second() -> None:
    worker, frozen = WarmingWorker(), Frozen()
    rig = Rig(Settings(fast=0.1), worker=worker, clock=frozen)
    read: list[float] = []
    computed: list[float] = []
    for tick in range(24):
        worker.lost = tick == 23
        frozen.mono = 100.0 + 0.1 * tick
        rig.loop.tick()
        read += rig.values("gpu_power_watts").values()
        computed += [each.value for each in rig.latest if each.metric.name == "coldplate_ticks_total"]
        assert rig.values("gpu_up") == {"0": float(not worker.lost)}
    rig.loop.close(lambda _: None)
    assert read == list(range(1, 24))
    assert computed == [1] * 10 + [11] * 10 + [21] * 3 + [24]


def test_a_glance_ends_once_all_have_answered_and_a_hang_ages_nothing_else() -> None:
    settings = Settings(fast=0.05, slow=1.0, deadline=0.1)
    for worker, seconds, up in ((ScriptedWorker(), 60.0, [1.0]), (ScriptedWorker(2), 0.6, [1.0, 0.0])):
        rig = Rig(settings, worker=worker)
        rig.loop.glance(clock().mono + seconds)
        assert list(rig.values("gpu_up").values()) == up
        assert (len(worker.asked) == 1) == (len(up) == 1)
        rig.loop.close(lambda _: None)


class LateWorker(ScriptedWorker):
    """A worker whose driver opens only after it was said to hang: its hello comes when it was looked for often."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self._messages = self._messages, []
        self.looked = 0

    @property
    def opening(self) -> bool:
        self.looked += 1
        if self.looked > 5:
            self._messages += self.kept
            self.kept = []
        return bool(self.kept)


def test_a_glance_waits_for_a_driver_that_opens_late_as_long_as_it_may() -> None:
    rig = Rig(Settings(fast=0.05, slow=1.0, deadline=0.1), worker=LateWorker())
    rig.loop.glance(clock().mono + 60.0)
    assert rig.values("gpu_up") == {"0": 1.0}
    rig.loop.close(lambda _: None)


class Failing:
    def __init__(self) -> None:
        self.asked = 0

    def frame(self, _now: Instant) -> Frame:
        self.asked += 1
        raise ZeroDivisionError


def test_a_provider_or_follower_that_fails_affects_only_itself(caplog) -> None:
    failing, frozen = Failing(), Frozen()
    rig = Rig(Settings(), clock=frozen, providers={"telling lies": failing})
    seen: list[int] = []

    def stumble(_snapshot: Snapshot) -> None:
        raise KeyError

    rig.hub.follow("stumbling", stumble)
    rig.hub.follow("looking", lambda snapshot: seen.append(snapshot.sequence))
    for second in range(3):
        frozen.mono = 100.0 + second
        rig.loop.tick()
    rig.loop.close(lambda _: None)
    assert (failing.asked, seen) == (3, [1, 2, 3])
    assert [each.getMessage() for each in caplog.records] == ["telling lies failed", "stumbling failed"]


class Hanging(QuickBackend):
    """A backend whose reads take 0.3 s of the test's clock each; one of them hangs."""

    def __init__(self, hang_at: int) -> None:
        self.now = 100.0
        self.release = threading.Event()
        self._hang_at = hang_at
        self._reads = 0

    def clock(self) -> Instant:
        self.now += 0.06
        return Instant(self.now, 1e9 + self.now)

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        self._reads += 1
        if self._reads == self._hang_at:
            self.release.wait(60)
        else:
            self.now += 0.3
        return BackendSample()


@pytest.mark.parametrize(
    ("hang_at", "waited"), [(1, 0.8), (2, 0.0)], ids=["the first read", "one that was slow before"]
)
def test_a_tick_waits_for_most_of_its_period_and_not_for_what_was_slow_before(hang_at: int, waited: float) -> None:
    backend = Hanging(hang_at)
    rig = Rig(Settings(fast=1.0), backend, clock=backend.clock)
    for _ in range(hang_at):
        began = backend.now
        rig.loop.tick()
    took = rig.latest.at.mono - began
    backend.release.set()
    rig.loop.close(lambda _: None)
    assert waited <= took < waited + 0.5


def test_an_xid_is_neither_of_the_future_nor_of_long_ago() -> None:
    worker, seconds = ScriptedWorker(), [100.0]
    rig = Rig(Settings(fast=1.0), worker=worker, clock=lambda: Instant(seconds[0], 1e9))
    worker.events = [Xid("GPU-0", code, wall, "nvml") for code, wall in [(79, 2e9), (48, 5.0), (13, 1e9 - 1)]]
    rig.loop.tick()
    found = rig.values("gpu_xid_last_timestamp_seconds", "xid")
    assert found == {"79": 1e9, "48": 1e9 - LATE_SECONDS, "13": 1e9 - 1}
    noted: list[float] = []
    rig.loop.sampler.late = lambda late, now: noted.append(late)  # type: ignore[method-assign,assignment]
    seconds[0] = 108.0
    rig.loop.tick()
    assert noted == [7.0]
    rig.loop.close(lambda _: None)
