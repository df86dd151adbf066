"""There is one worker, never a second beside one that is not gone, and none that is of no use."""

import logging
import re
import signal
from itertools import pairwise

import pytest

from agent.model import Lane, Reason
from agent.worker.supervisor import (
    FIRST_SILENCE_SECONDS,
    LONGEST_DELAY_SECONDS,
    LONGEST_STUCK_SECONDS,
    MEMORY,
    OPENING_SECONDS,
    REPEAT_LOG_SECONDS,
    SILENCE_SECONDS,
    SOUND_AFTER_SECONDS,
    STUCK_SECONDS,
    TERM_TIMEOUT_SECONDS,
    UNKILLABLE,
    WEDGED_TIMEOUT_SECONDS,
)
from agent.worker.trust import FLOOD_ROOM, SPELL_SECONDS
from agent.worker.worker_messages import MAX_LINE, Hello, Refusal, encode
from tests.worker.fake_process import HELLO, STEP, FakeProcess, Rig


@pytest.fixture
def new() -> Rig:
    """A supervisor that has not started a worker yet."""
    return Rig()


@pytest.fixture
def rig(new: Rig) -> Rig:
    """One whose worker runs."""
    new.open()
    return new


def test_an_idle_worker_is_asked_whether_it_is_there_and_left_alone(rig: Rig) -> None:
    rig.run(600.0)
    assert len(rig.started) == 1
    assert 500 < len(rig.worker.orders) < 700
    assert {words.partition(" ")[2] for words in rig.worker.orders} == {""}


def test_a_worker_that_does_not_answer_is_noticed_ended_and_replaced(rig: Rig) -> None:
    rig.run(5.0)
    rig.worker.answers = False
    rig.worker.mortal = {signal.SIGKILL}
    took = rig.until(lambda: bool(rig.exit_reasons), 10)
    assert took <= 5
    assert (rig.exit_reasons[0][1], rig.exit_reasons[0][2]) == (
        Reason.TIMEOUT,
        f"the device worker has not answered for {SILENCE_SECONDS:.0f} s",
    )
    assert rig.worker.signals == [signal.SIGTERM, signal.SIGCONT]  # a stopped one takes SIGTERM when it goes on
    took += rig.until(lambda: signal.SIGKILL in rig.worker.signals, 10)
    assert took <= SILENCE_SECONDS + 1 + WEDGED_TIMEOUT_SECONDS + 2 * STEP
    took += rig.until(lambda: len(rig.started) == 2, 10)
    assert took < 10
    assert rig.supervisor.restarts == 1


def test_a_worker_that_cannot_be_killed_has_no_second_one_beside_it(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.worker.answers = False
    rig.worker.mortal = set()
    with caplog.at_level(logging.INFO):
        rig.run(3600.0)
    assert len(rig.started) == 1
    assert rig.worker.signals.count(signal.SIGKILL) == 1
    assert "cannot be killed" in rig.exit_reasons[-1][2]
    assert len(caplog.records) == 3  # it does not answer, it is killed, it cannot be killed
    rig.worker.ended = -9
    assert rig.until(lambda: len(rig.started) == 2, 15) <= 11


def test_a_worker_whose_devices_hang_is_terminated_and_restarted_ever_later(rig: Rig) -> None:
    rig.worker.mortal = {signal.SIGKILL}
    assert rig.until(lambda: bool(rig.worker.signals), 2 * STUCK_SECONDS, ask=True) == pytest.approx(
        STUCK_SECONDS, abs=1
    )
    assert rig.until(lambda: signal.SIGKILL in rig.worker.signals, 10) == pytest.approx(TERM_TIMEOUT_SECONDS, abs=0.5)
    waits = []
    for _ in range(6):
        rig.until(lambda: rig.worker.ended is None, 30)
        rig.turn()
        rig.worker.said += [HELLO, HELLO]
        rig.turn()
        waits.append(rig.until(lambda: bool(rig.worker.signals), 2 * LONGEST_STUCK_SECONDS, ask=True))
    assert waits[0] == pytest.approx(2 * STUCK_SECONDS, abs=1)
    assert waits[-1] == pytest.approx(LONGEST_STUCK_SECONDS, abs=1)


def test_one_device_report_is_enough_and_no_pause_or_suspension_is_silence(rig: Rig) -> None:
    for _ in range(20):
        rig.run(STUCK_SECONDS / 2, ask=True)
        rig.sample()
        rig.turn()
    rig.run(10 * STUCK_SECONDS)
    rig.supervisor.ask([Lane.FAST], rig.now)
    rig.run(STUCK_SECONDS / 2)
    rig.sample()
    rig.turn()
    rig.worker.answers = False
    rig.supervisor.ask([Lane.FAST], rig.now)
    rig.turn(3600.0)  # we were stopped; the answer is on its way
    assert not rig.worker.signals
    rig.worker.answers = True
    rig.worker.said.append(encode("alive", len(rig.worker.orders)))
    rig.run(60.0)
    assert len(rig.started) == 1


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        pytest.param(False, FIRST_SILENCE_SECONDS + 1, id="a start without an answer"),
        pytest.param(True, STUCK_SECONDS, id="a library that never opens"),
    ],
)
def test_a_slow_start_is_no_silence_and_an_endless_one_is(new: Rig, answers: bool, seconds: float) -> None:
    new.turn()
    new.worker.answers = answers
    assert new.until(lambda: bool(new.worker.signals), 2 * STUCK_SECONDS) == pytest.approx(seconds, abs=1.5)


def test_a_library_that_hangs_while_it_is_opened_is_reported_and_continues_at_once(new: Rig) -> None:
    new.turn()
    assert new.supervisor.awaited
    assert new.until(lambda: bool(new.exit_reasons), 10) <= 5
    assert (new.exit_reasons[0][1], new.exit_reasons[0][2]) == (
        Reason.TIMEOUT,
        f"the driver has not answered for {OPENING_SECONDS:.0f} s while opening its library",
    )
    assert not new.supervisor.awaited
    assert new.supervisor.opening
    new.run(60.0)
    assert len(new.exit_reasons) == 1
    assert not new.worker.signals
    new.worker.said += [HELLO, HELLO]
    new.turn()
    assert new.supervisor.running
    assert isinstance(new.heard[-1], Hello)


def test_a_hello_that_was_lost_is_asked_for(new: Rig) -> None:
    new.turn()
    new.run(3.0)
    assert any("anew" in words for words in new.worker.orders)
    new.worker.said.append(HELLO)
    new.run(1.0)
    assert not new.supervisor.running
    new.worker.said.append(HELLO)
    new.run(1.0)
    assert new.supervisor.running


def test_garbage_is_logged_once_all_is_requested_again_and_the_worker_replaced(rig: Rig, caplog) -> None:
    rig.run(5.0)
    before = len(rig.worker.orders)
    with caplog.at_level(logging.INFO):
        for _ in range(8):
            rig.worker.said.append(b"\x00 garbage")
            rig.turn()
    rig.run(1.0)
    assert rig.supervisor.garbage == 8
    assert 2 <= len([words for words in rig.worker.orders[before:] if "anew" in words]) <= 3  # once a second
    assert len([record for record in caplog.records if "garbage" in record.message]) == 1
    rig.run(60.0)
    assert len(rig.started) == 1
    assert sum("anew" in words for words in rig.worker.orders[before:]) <= 3

    def rave() -> bool:
        rig.worker.said.append(b"garbage")
        return bool(rig.worker.signals)

    assert rig.until(rave, 10) == pytest.approx(SPELL_SECONDS, abs=1)
    assert "garbage" in rig.exit_reasons[0][2]


@pytest.mark.parametrize(
    "line", [encode("alive", 10**6), encode("error", 0, "fast", 1e6, "lost", "of the future"), b"x" * MAX_LINE]
)
def test_what_only_the_supervisor_can_know_to_be_false_is_garbage(rig: Rig, line: bytes) -> None:
    rig.worker.said.append(line)
    heard = len(rig.heard)
    rig.turn()
    assert rig.supervisor.garbage == 1
    assert len(rig.heard) == heard


def test_a_forged_answer_does_not_hide_a_silence(rig: Rig) -> None:
    rig.worker.answers = False

    def forge() -> bool:
        rig.worker.said.append(encode("alive", 0))
        return bool(rig.worker.signals)

    assert rig.until(forge, 10) <= 5


def test_a_worker_over_its_memory_is_ended_and_one_of_unknown_memory_is_not(rig: Rig) -> None:
    for held in (None, MEMORY):
        rig.worker.held = held
        rig.run(60.0)
        assert not rig.worker.signals
    rig.worker.held = MEMORY + 2**20
    assert rig.until(lambda: bool(rig.worker.signals), 10) <= 3
    assert "MiB of memory" in rig.exit_reasons[0][2]


def test_much_garbage_is_not_read_to_its_end_and_a_flooding_worker_is_ended(rig: Rig) -> None:
    rig.worker.said += [b""] * 200_000
    rig.turn()
    assert 0 < rig.supervisor.garbage < 1000
    rig.sample()
    heard = len(rig.heard)
    rig.turn()
    assert len(rig.heard) == heard + 1
    line = encode("error", 0, "fast", 1.0, "lost", "x" * 500)
    for _ in range(2 * FLOOD_ROOM // (2**20)):
        if not rig.worker.signals:
            rig.worker.said += [line] * (2**20 // len(line))
            rig.turn(0.01)
    assert rig.worker.signals


def test_of_a_worker_that_is_being_ended_only_its_reason_for_leaving_counts(rig: Rig) -> None:
    rig.worker.answers, rig.worker.mortal = False, set()
    rig.until(lambda: bool(rig.worker.signals), 10)
    rig.heard.clear()
    rig.sample()
    rig.turn()
    assert rig.heard == []
    rig.worker.said.append(encode("failed", "the driver went"))
    rig.worker.ended = 4
    rig.run(1.0)
    assert rig.heard == [Refusal(False, "the driver went")]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-11, "was killed by signal 11 (Segmentation fault)"),
        (3, "ended with status 3"),
        (-64, "was killed by signal 64 ("),
    ],
)
def test_the_reason_is_how_a_worker_ended_or_what_it_was_terminated_for(
    rig: Rig, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.worker.ended = status
    rig.until(lambda: bool(rig.exit_reasons), 10)
    ((_, reason, detail),) = rig.exit_reasons
    assert reason is Reason.LOST
    assert detail.startswith(f"the device worker {words}")
    assert words in caplog.text
    rig.until(lambda: len(rig.started) == 2, 20)
    rig.worker.said += [HELLO, HELLO]
    rig.run(1.5)
    rig.worker.held = 2**50
    rig.until(lambda: len(rig.exit_reasons) == 3, 20)  # when it is sent away, and when it is gone
    assert rig.exit_reasons[1][1:] == rig.exit_reasons[2][1:]
    assert rig.exit_reasons[1][1] is Reason.TIMEOUT
    assert rig.worker.ended == -signal.SIGTERM


def test_why_a_worker_cannot_read_its_source_outlives_it(rig: Rig) -> None:
    """Such as driver and library of different versions: the exit status says nothing to an operator."""
    rig.worker.said.append(encode("failed", "NVML cannot be opened: versions differ (18): reboot the node"))
    rig.run(1.0)
    rig.worker.ended = 4
    rig.until(lambda: bool(rig.exit_reasons), 10)
    assert {detail for _, _, detail in rig.exit_reasons} == {
        "NVML cannot be opened: versions differ (18): reboot the node"
    }
    rig.until(lambda: len(rig.started) == 2, 20)
    rig.worker.ended = -11
    rig.until(lambda: len(rig.exit_reasons) == 2, 20)
    assert "signal 11" in rig.exit_reasons[1][2]


def test_a_worker_that_never_opens_is_logged_on_change_and_then_once_an_hour(
    new: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A line every ten seconds fills the journal of a node whose driver is broken until somebody reads it."""

    def fail(status: int) -> None:
        new.born = lambda process: setattr(process, "ended", status)

    fail(4)
    new.run(120.0)
    first = len(caplog.records)
    new.run(REPEAT_LOG_SECONDS)
    assert (first < 10, len(caplog.records)) == (True, first + 1)
    fail(-11)
    new.run(2 * LONGEST_DELAY_SECONDS)
    assert len(caplog.records) == first + 2 and "signal 11" in caplog.text
    assert len(new.started) > 300


def test_workers_that_crash_again_and_again_are_started_ever_later_but_soon_enough(new: Rig) -> None:
    starts = []

    def crash(process: FakeProcess) -> None:
        process.ended = -11
        starts.append(new.now)

    new.born = crash
    new.run(120.0)
    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps[0] < 1.5
    assert max(gaps) <= LONGEST_DELAY_SECONDS + 1
    assert 10 < len(starts) < 25


def test_a_worker_that_ran_for_long_is_started_again_at_once_whatever_was_before(new: Rig) -> None:
    new.born = lambda process: setattr(process, "ended", -11)
    new.run(60.0)
    new.born = lambda process: None
    new.until(lambda: new.worker.ended is None, 2 * LONGEST_DELAY_SECONDS)
    new.worker.said += [HELLO, HELLO]
    new.run(SOUND_AFTER_SECONDS / 2)
    new.worker.ended = -11
    count = len(new.started)
    assert new.until(lambda: len(new.started) > count, 20) > LONGEST_DELAY_SECONDS - 1  # that was not long
    new.worker.said += [HELLO, HELLO]
    new.run(SOUND_AFTER_SECONDS + 1)
    new.worker.ended = -11
    assert new.until(lambda: len(new.started) > count + 1, 20) <= 1


def test_a_process_that_cannot_be_started_is_tried_again_ever_later(new: Rig, caplog: pytest.LogCaptureFixture) -> None:
    new.refuse = BlockingIOError(11, "Resource temporarily unavailable")
    new.run(60.0)
    assert new.started == []
    waited = [float(each) for each in re.findall(r"cannot start .*; retrying in ([\d.]+) s", caplog.text)]
    assert waited == [1.0, 2.0, 4.0, 8.0, LONGEST_DELAY_SECONDS]
    new.refuse = None
    assert new.until(lambda: bool(new.started), 15) <= 11


def test_a_source_that_is_absent_is_no_restart_and_no_exit_reason(new: Rig) -> None:
    def absent(process: FakeProcess) -> None:
        process.said.append(encode("absent", "no driver"))
        process.ended = 3

    new.born = absent
    new.run(300.0)
    assert len(new.started) > 3
    assert (new.supervisor.restarts, new.exit_reasons) == (0, [])
    assert new.supervisor.refusal == Refusal(True, "no driver")


def test_a_held_worker_ends_without_a_complaint_and_comes_back_without_a_restart(rig: Rig, caplog) -> None:
    caplog.clear()
    rig.supervisor.hold(rig.now)
    assert rig.worker.signals == [signal.SIGTERM, signal.SIGCONT]
    rig.run(600.0)
    assert (rig.supervisor.pid, rig.supervisor.descriptor, rig.supervisor.awaited) == (None, None, False)
    assert not rig.supervisor.ask([Lane.FAST], rig.now)
    assert (len(rig.started), rig.exit_reasons, caplog.records) == (1, [], [])
    rig.supervisor.release(rig.now)
    rig.turn()
    rig.worker.said += [HELLO, HELLO]
    rig.run(1.5)
    assert (len(rig.started), rig.supervisor.running, rig.supervisor.restarts) == (2, True, 0)
    held = Rig()
    held.supervisor.hold(held.now)
    held.run(60.0)
    assert held.started == [], "what is held from the start is not even started"


def test_a_worker_asleep_in_the_driver_holds_it_and_is_reported_after_the_pause(rig: Rig) -> None:
    rig.worker.mortal = set()
    rig.supervisor.hold(rig.now)
    rig.run(60.0)
    assert rig.supervisor.pid == rig.worker.pid
    assert signal.SIGKILL in rig.worker.signals
    rig.exit_reasons.clear()
    rig.supervisor.release(rig.now)
    rig.run(60.0)
    assert [why for *_, why in rig.exit_reasons] == [UNKILLABLE]
    assert len(rig.started) == 1
