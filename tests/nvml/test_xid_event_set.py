"""XID events: taken as they come, and waited for again whatever a lost GPU does to the wait."""

import threading

import pytest

from agent.backends.nvml.driver import CallThreads
from agent.backends.nvml.xid_event_set import XidEventSet
from agent.model import Xid
from tests.nvml.fake_driver import LOST, UNSUPPORTED, FakeDriver, h100


class Watched:
    """A watch over two GPUs; waiting is recorded, not done."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.paused: list[float] = []
        self.watch = XidEventSet(driver, lambda: 1234.5, self.paused.append, CallThreads())
        self.watch.open()
        for gpu in driver.gpus:
            self.watch.watch(f"handle of {gpu.uuid}", gpu.uuid)
        self.watch.wait_for_registrations(5.0)


@pytest.fixture
def watched() -> Watched:
    return Watched(FakeDriver(h100(0), h100(1)))


ONE, TWO = "GPU-00000000", "GPU-00000001"


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], []),
        ([(TWO, 8, 79)], [(TWO, 79)]),
        ([(ONE, 8, 94), (TWO, 8, 94), (ONE, 8, 94)], [(ONE, 94), (TWO, 94), (ONE, 94)]),
        ([(ONE, 0x8000, 1), ("elsewhere", 8, 13), (ONE, 8, 31)], [(ONE, 31)]),
    ],
    ids=["none", "one", "a burst, in one go", "those of other kinds are skipped"],
)
def test_each_event_says_which_gpu_and_when_and_only_the_first_is_waited_for(watched, events, told):
    watched.driver.events = [(f"handle of {uuid}", kind, code) for uuid, kind, code in events]
    assert watched.watch.wait(1.5) == tuple(Xid(uuid, code, 1234.5, "nvml") for uuid, code in told)
    assert watched.driver.waits == [1500, *[0] * len(events)]
    assert watched.paused == []


def test_after_an_error_the_wait_backs_off_and_the_set_is_rebuilt_without_the_gpu(watched):
    watched.driver.events = [("handle of GPU-00000000", 8, 79), LOST]
    assert [event.code for event in watched.watch.wait(1.0)] == [79]
    watched.driver.events = [LOST]
    watched.driver.gpus[0].calls["nvmlDeviceRegisterEvents"] = LOST
    assert watched.watch.wait(1.0) == ()
    assert watched.paused[-1] == 1.0
    assert watched.driver.log.count("nvmlEventSetFree") == watched.driver.log.count("nvmlEventSetCreate") - 1
    watched.driver.events = [("handle of GPU-00000001", 8, 48)]
    assert [event.code for event in watched.watch.wait(1.0)] == [48]


@pytest.mark.parametrize("answer", [0x17, UNSUPPORTED, None])
def test_without_a_set_or_a_gpu_with_events_the_time_is_waited_out(answer):
    driver = FakeDriver(h100(calls={"nvmlDeviceGetSupportedEventTypes": answer} if answer else {}))
    if answer is None:
        driver.system["nvmlEventSetCreate"] = UNSUPPORTED
    watched = Watched(driver)
    assert "nvmlDeviceRegisterEvents" not in watched.driver.log
    assert watched.watch.wait(3.0) == ()
    assert watched.paused == [3.0]


def test_the_source_registers_every_gpu_when_it_opens_and_frees_the_set_once(opened):
    bench = opened(h100(0), h100(1))
    bench.driver.events = [("handle of GPU-00000001", 8, 63)]
    assert [event.device for event in bench.source.events(0.01)] == ["GPU-00000001"]
    bench.source.close()
    bench.source.close()
    assert bench.driver.log.count("nvmlEventSetFree") == 1
    assert list(bench.source.events(0.01)) == []


def test_closing_ends_a_back_off_at_once(opened):
    bench = opened(h100())
    bench.driver.events = [LOST]
    thread = threading.Thread(target=bench.source.events, args=(60.0,))
    thread.start()
    bench.source.close()
    thread.join(5.0)
    assert not thread.is_alive()


def test_a_set_that_a_gpu_is_being_registered_with_is_not_freed(watched):
    """The source may close while a GPU hangs in its registration: the library would write into freed memory."""
    reached, go_on = threading.Event(), threading.Event()

    def hang(name: str) -> None:
        if name == "nvmlDeviceRegisterEvents":
            reached.set()
            go_on.wait(5.0)

    gpu = watched.driver.gpus[0]
    gpu.hook = hang
    thread = threading.Thread(target=watched.watch.watch, args=(f"handle of {gpu.uuid}", gpu.uuid))
    thread.start()
    assert reached.wait(5.0)
    watched.watch.close()
    assert "nvmlEventSetFree" not in watched.driver.log
    go_on.set()
    thread.join(5.0)
    before = len(watched.driver.log)
    watched.watch.watch(f"handle of {gpu.uuid}", gpu.uuid)
    assert watched.driver.log[before:] == []
