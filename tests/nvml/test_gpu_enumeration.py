"""Who was not there at the opening is asked again: one call in flight each, and nobody else is disturbed."""

import threading
from typing import Any

import pytest

from agent.backends.nvml.gpu_enumeration import RECOUNT_SECONDS, RETRY_SECONDS
from agent.backends.protocol import SourceError
from agent.model import Instant, Lane, Reason
from tests.nvml.conftest import Bench, value
from tests.nvml.fake_driver import DENIED, LOST, MISMATCH, TIMEOUT, UNKNOWN, UNLOADED, FakeGpu, a100, h100
from tests.waiting import wait_until

IDENTITY = "nvmlDeviceGetUUID"


def hanging(number: int) -> tuple[FakeGpu, threading.Event, list[str]]:
    """A GPU that answers nothing until it is released, and what it was asked."""
    gpu, release, asked = h100(number), threading.Event(), []

    def hook(name: str) -> None:
        asked.append(name)
        release.wait(20)

    gpu.hook = hook
    return gpu, release, asked


def test_a_silent_gpu_joins_as_soon_as_it_answers_and_is_asked_once_meanwhile():
    silent, release, asked = hanging(1)
    node = Bench(h100(0), silent, h100(2))
    assert node.open() == ["GPU-00000000", "GPU-00000002"]
    for _ in range(20):
        assert node.there(after=RETRY_SECONDS + 1) == ["GPU-00000000", "GPU-00000002"]
    assert asked == [IDENTITY]
    (missing,) = node.roster().unidentified
    assert (missing.index, missing.reason) == ("1", Reason.TIMEOUT)
    release.set()
    wait_until(lambda: len(node.there()) == 3)
    assert node.there() == ["GPU-00000000", "GPU-00000002", "GPU-00000001"]  # those who were there keep their places
    roster = node.roster()
    assert roster.unidentified == ()
    assert value(roster.channels[2].read(Lane.FAST, Instant(node.at, 1e9)), "coldplate_gpu_power_watts") == 412.345
    node.source.close()


def test_with_all_gpus_silent_the_source_is_open_and_each_joins_when_it_answers():
    gpus = [hanging(number) for number in range(3)]
    node = Bench(*(gpu for gpu, _, _ in gpus))
    assert node.open() == []
    assert [each.index for each in node.roster().unidentified] == ["0", "1", "2"]
    for place in (1, 0, 2):
        gpus[place][1].set()
        wait_until(lambda place=place: f"GPU-0000000{place}" in node.there())
    assert node.there() == ["GPU-00000001", "GPU-00000000", "GPU-00000002"]


HANDLE, NAME = "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName"


@pytest.mark.parametrize(
    ("call", "answer", "reason"),
    [
        (HANDLE, LOST, Reason.LOST),
        (HANDLE, DENIED, Reason.DENIED),
        (HANDLE, TIMEOUT, Reason.TIMEOUT),
        (HANDLE, UNKNOWN, Reason.MALFORMED),
        (NAME, LOST, Reason.LOST),
        (NAME, ValueError("no bus id"), Reason.MALFORMED),
        (NAME, UnicodeDecodeError("utf-8", b"\xff", 0, 1, "start"), Reason.MALFORMED),
    ],
)
def test_an_unidentified_gpu_has_the_reason_and_is_retried_after_a_pause(call, answer, reason):
    """Also one of which half is known, and one about which the binding stumbles."""
    node = Bench(h100(0), a100(1))

    def give() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    if call == HANDLE:
        node.driver.handles[1] = answer
    else:
        node.driver.gpus[1].calls[call] = give
    assert node.open() == ["GPU-00000000"]
    (missing,) = node.roster().unidentified
    assert missing.reason is reason
    assert missing.detail.startswith(type(answer).__name__ if isinstance(answer, Exception) else f"{call}: ")
    count = node.driver.log.count(HANDLE)
    for _ in range(5):
        node.roster(after=RETRY_SECONDS / 10)
    assert node.driver.log.count(HANDLE) == count
    node.driver.handles.clear()
    node.driver.gpus[1] = a100(1)
    node.roster(after=RETRY_SECONDS)
    wait_until(lambda: node.there() == ["GPU-00000000", "GPU-00000001"])
    assert node.roster().channels[1].identity.model == "NVIDIA A100-SXM4-80GB"


def test_the_reason_is_the_newest_one():
    silent, release, _ = hanging(1)
    node = Bench(h100(0), silent)
    node.driver.handles[1] = LOST
    node.open()
    assert node.roster().unidentified[0].reason is Reason.LOST
    del node.driver.handles[1]
    node.roster(after=RETRY_SECONDS)  # asked again, and now it hangs
    wait_until(lambda: node.roster(after=1.0).unidentified[0].reason is Reason.TIMEOUT)
    release.set()
    wait_until(lambda: node.roster().unidentified == ())


def test_two_indexes_that_say_they_are_one_gpu_are_one_channel():
    node = Bench(h100(0), h100(1))
    node.driver.gpus[1].calls[IDENTITY] = "GPU-00000000"
    assert node.open() == ["GPU-00000000"]
    (missing,) = node.roster().unidentified
    assert missing.reason is Reason.MALFORMED
    assert "GPU-00000000" in missing.detail


@pytest.mark.parametrize("code", [UNLOADED, MISMATCH])
def test_a_driver_that_goes_while_a_gpu_is_asked_again_ends_the_source(code):
    node = Bench(h100(0), h100(1))
    node.driver.handles[1] = LOST
    node.open()
    node.driver.handles[1] = code
    with pytest.raises(SourceError):
        wait_until(lambda: node.roster(after=RETRY_SECONDS) is None)


def test_a_gpu_that_leaves_fails_alone_and_a_new_one_is_found_by_reopening():
    node = Bench(h100(0), h100(1))
    node.open()
    node.driver.gpus.pop()
    for _ in range(5):
        node.roster(after=RECOUNT_SECONDS)
    assert len(node.there()) == 2
    node.driver.gpus += [h100(1), h100(2)]
    with pytest.raises(SourceError, match="counts 3 GPUs"):
        wait_until(lambda: node.roster(after=RECOUNT_SECONDS) is None)


def test_a_late_gpu_gets_events_and_a_hanging_one_prevents_shutdown():
    (late, release, _), (silent, never, _) = hanging(1), hanging(2)
    node = Bench(h100(0), late, silent)
    node.open()
    before = node.driver.log.count("nvmlDeviceRegisterEvents")
    release.set()
    wait_until(lambda: node.driver.log.count("nvmlDeviceRegisterEvents") == before + 1)
    node.driver.events = [("handle of GPU-00000001", 8, 79)]
    wait_until(lambda: [each.device for each in node.source.events(0.01)] == ["GPU-00000001"])
    node.source.close()
    assert "nvmlShutdown" not in node.driver.log
    never.set()


def test_a_gpu_that_could_not_be_registered_for_events_is_registered_when_it_is_well():
    node = Bench(h100(0), h100(1))
    node.driver.gpus[1].calls["nvmlDeviceRegisterEvents"] = LOST
    node.open()
    node.source.events(0.01)
    node.driver.gpus[1].calls["nvmlDeviceRegisterEvents"] = None
    before = node.driver.log.count("nvmlDeviceRegisterEvents")
    wait_until(lambda: not node.source.events(0.01) and node.driver.log.count("nvmlDeviceRegisterEvents") > before)


def test_a_gpu_that_hangs_in_its_registration_is_read_and_delays_no_events():
    silent, release, _ = hanging(1)
    only_events = silent.hook
    silent.hook = lambda name: only_events(name) if "Event" in name else None
    node = Bench(h100(0), silent)
    assert node.open() == ["GPU-00000000", "GPU-00000001"]
    node.driver.events = [LOST]
    node.source.events(0.01)  # the set is built anew
    node.driver.events = [("handle of GPU-00000000", 8, 48)]
    wait_until(lambda: [each.code for each in node.source.events(0.01)] == [48])
    release.set()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_system_without_threads_to_give_costs_time_and_nothing_else(monkeypatch, error):
    start = threading.Thread.start
    refused: list[Any] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "identify-1" and len(refused) < 3:
            refused.append(thread.name)
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    node = Bench(h100(0), h100(1))
    assert node.open() == ["GPU-00000000"]
    wait_until(lambda: len(node.there(after=RETRY_SECONDS)) == 2)
