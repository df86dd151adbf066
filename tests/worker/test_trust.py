"""How much garbage and output is suffered from a worker, in the worker's own second."""

from __future__ import annotations

import logging

import pytest

from agent.worker.trust import ASK_SECONDS, CALM_SECONDS, FLOOD, FLOOD_ROOM, SPELL_SECONDS, WorkerTrust
from agent.worker.worker_messages import MessageError

GARBAGE = MessageError("no checksum")


def test_a_worker_is_lost_once_a_spell_of_garbage_is_longer_than_it_may_be() -> None:
    trust = WorkerTrust()
    for now in (100.0, 102.0, 104.0, 100.0 + SPELL_SECONDS):
        trust.refuse(GARBAGE, now)
        assert trust.lost == ""
    trust.refuse(GARBAGE, 107.0)
    assert trust.lost == "has sent garbage for 7 s"
    assert trust.garbage == 5


def test_a_spell_is_over_after_some_calm_and_another_worker_starts_without_it() -> None:
    trust = WorkerTrust()
    calm, now = CALM_SECONDS + 0.1, 100.0
    for _ in range(9):
        trust.refuse(GARBAGE, now)
        now += calm
    assert trust.lost == ""
    for _ in range(2):  # a pause that is no longer than the calm belongs to the spell
        trust.refuse(GARBAGE, now)
        now += CALM_SECONDS
    trust.refuse(GARBAGE, now)
    assert trust.lost == "has sent garbage for 6 s"
    trust.begin()
    trust.refuse(GARBAGE, now + 1.0)
    assert (trust.lost, trust.garbage) == ("", 13)


def test_garbage_has_everything_requested_again_but_not_more_than_once_a_second() -> None:
    trust = WorkerTrust()
    assert not trust.wants_anew(99.0)
    trust.refuse(GARBAGE, 100.0)
    assert trust.wants_anew(100.0)
    assert not trust.wants_anew(102.0)  # it has been requested, and nothing came since
    trust.refuse(GARBAGE, 100.2)
    assert not trust.wants_anew(99.9 + ASK_SECONDS)
    assert trust.wants_anew(100.0 + ASK_SECONDS)
    trust.refuse(GARBAGE, 101.5)
    trust.begin()
    assert not trust.wants_anew(200.0)
    trust.refuse(GARBAGE, 101.1)
    assert trust.wants_anew(101.1)  # another worker is asked at once


def test_a_flood_is_more_than_a_burst_and_what_may_come_permanently() -> None:
    trust = WorkerTrust()
    trust.weigh(FLOOD_ROOM, 100.0)
    for second in range(1, 60):
        trust.weigh(FLOOD, 100.0 + second)
    assert trust.lost == ""
    trust.weigh(FLOOD + 1, 160.0)
    assert trust.lost == "floods its output"
    trust.begin()
    trust.weigh(FLOOD_ROOM, 160.1)
    assert trust.lost == ""


def test_silence_earns_no_credit() -> None:
    trust = WorkerTrust()
    trust.weigh(1, 100.0)
    trust.weigh(FLOOD_ROOM + 1, 5000.0)
    assert trust.lost == "floods its output"


def test_only_the_first_garbage_of_a_worker_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "coldplate.worker")
    trust = WorkerTrust()
    for now in (1.0, 2.0):
        trust.refuse(GARBAGE, now)
    trust.begin()
    trust.refuse(GARBAGE, 3.0)
    assert [each.levelname for each in caplog.records] == ["WARNING", "DEBUG", "WARNING"]
    assert caplog.records[0].getMessage() == "device worker sent garbage: no checksum"
