"""How much garbage and output is suffered from a worker, in the worker's own second."""

from __future__ import annotations

from agent.worker.trust import CALM_SECONDS, FLOOD, FLOOD_ROOM, WorkerTrust
from agent.worker.worker_messages import MessageError

GARBAGE = MessageError("no checksum")


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
