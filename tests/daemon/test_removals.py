"""A GPU that somebody unbinds: the driver is released when the kernel log says that it waits, and for how long."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from agent.backends.kmsg import KmsgBackend
from agent.daemon.pausing import PauseRequest, PauseWatch, read_answer, write_request
from agent.daemon.removals import GPUS, QUIET_SECONDS, RELEASE_SECONDS, SHORTEST_SECONDS, GpuRemovals
from agent.lib.threads import Threads
from agent.model import Instant
from tests.daemon.test_sampling_facts import Rig as Loop
from tests.daemon.test_sampling_facts import Worker
from tests.kmsg.conftest import FakeLog

SLOT, OTHER = "0000:1b:00.0", "0000:43:00.0"
LINE = "NVRM: Attempting to remove device {} with non-zero usage count!"
EPOCH = 1e9


class Rig:
    """A watch over the GPUs of a procfs, with clocks that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = Instant(1000.0, EPOCH)
        self.gpus = folder / GPUS
        for slot in (SLOT, OTHER):
            (self.gpus / slot).mkdir(parents=True)
        self.removals = GpuRemovals(folder, lambda: self.now)
        self.watch = PauseWatch(None, "boot", lambda: self.now, Threads(), self.removals)

    def until(self, later: float = 0.0) -> float | None:
        self.now = Instant(self.now.mono + later, self.now.wall + later)
        return self.watch.until

    def remove(self, slot: str) -> None:
        (self.gpus / slot).rmdir()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_it_ends_when_the_gpu_has_left_the_driver_but_not_at_once(rig: Rig) -> None:
    assert rig.until() is None
    rig.watch.make_way(SLOT)
    assert rig.until() == EPOCH + RELEASE_SECONDS
    rig.remove(SLOT)
    assert rig.until(SHORTEST_SECONDS - 1) == EPOCH + RELEASE_SECONDS
    assert rig.until(1.0) is None


def test_a_gpu_that_others_keep_open_costs_a_minute_and_no_more(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.watch.make_way(SLOT)
    assert rig.until(RELEASE_SECONDS - 1) is not None
    assert rig.until(1.0) is None
    for _ in range(3):
        rig.watch.make_way(SLOT)
        assert rig.until(1.0) is None
    warned = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert all(SLOT in text for text in warned)
    rig.until(QUIET_SECONDS)
    rig.watch.make_way(SLOT)
    assert rig.until() is not None


def test_each_of_several_gpus_has_its_own_minute(rig: Rig) -> None:
    rig.watch.make_way(SLOT)
    rig.until(40.0)
    rig.watch.make_way(OTHER)
    assert rig.until(40.0) == EPOCH + 40 + RELEASE_SECONDS
    assert rig.until(20.0) is None


def test_where_procfs_does_not_show_the_gpu_its_absence_says_nothing(rig: Rig) -> None:
    rig.remove(SLOT)
    rig.watch.make_way(SLOT)
    assert rig.until(RELEASE_SECONDS - 1) is not None
    assert rig.until(1.0) is None


def test_a_pause_on_request_comes_first_and_only_it_is_answered(rig: Rig, tmp_path: Path) -> None:
    rig.watch._folder = tmp_path
    rig.watch.make_way(SLOT)
    current = rig.watch.current
    assert current is not None
    assert SLOT in current[1]
    write_request(tmp_path, PauseRequest(EPOCH + 600, "boot"))
    rig.watch.look()
    assert rig.watch.current == (EPOCH + 600, "coldplate pause has released the driver")
    assert read_answer(tmp_path) is None


def test_a_line_of_the_kernel_log_has_the_worker_release_the_driver_and_take_it_up_again(tmp_path: Path) -> None:
    gpu = tmp_path / GPUS / SLOT
    gpu.mkdir(parents=True)
    log, worker = FakeLog(), Worker()
    clock = [Instant(0.0, 0.0)]
    watch = PauseWatch(None, "boot", lambda: clock[0], Threads(), GpuRemovals(tmp_path, lambda: clock[0]))
    loop = Loop(worker, watch, KmsgBackend(opener=lambda path: log, removal=watch.make_way))  # type: ignore[arg-type]
    paused = "devices_paused_until_timestamp_seconds"

    def page() -> dict[str, float]:
        time.sleep(0.01)  # for the thread that reads the log
        clock[0] = Instant(loop.now, EPOCH + loop.now)
        return loop.page(paused)

    assert page() == {}
    log.write(LINE.format(SLOT))
    released = [page() for _ in range(4)]
    assert released[-1][paused] == pytest.approx(EPOCH + 103 + RELEASE_SECONDS, abs=3)
    assert [each.split()[0] for each in worker.moves] == ["hold"]
    (report,) = [each for each in loop.tick().reports if each.backend == "nvml"]
    assert SLOT in report.detail
    gpu.rmdir()
    loop.now += SHORTEST_SECONDS
    assert page() == {}
    assert [each.split()[0] for each in worker.moves] == ["hold", "release"]
