"""Lanes keep to their grid; missed ticks are counted, never caught up."""

from __future__ import annotations

from agent.model import Lane
from agent.sampler.schedule import Schedule, Settings


def test_the_first_tick_reads_every_lane() -> None:
    assert Schedule(Settings(), 100.0).take(100.0) == (Lane.FAST, Lane.SLOW, Lane.COLD)


def test_slow_lanes_come_at_their_periods() -> None:
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    slow = [tick for tick in range(121) if Lane.SLOW in schedule.take(float(tick))]
    assert slow == list(range(0, 121, 15))


def test_ticks_that_passed_while_one_took_too_long_are_counted_and_left_out() -> None:
    schedule = Schedule(Settings(fast=1), 0.0)
    schedule.take(0.0)
    schedule.take(3.4)  # ticks 1 and 2 were missed
    assert (schedule.missed, schedule.next_tick) == (2, 4.0)


def test_a_tick_a_little_late_is_no_missed_tick() -> None:
    schedule = Schedule(Settings(fast=0.1), 0.0)
    for tick in range(100):
        schedule.take(tick * 0.1 + 0.004)
    assert schedule.missed == 0
    assert schedule.ticks == 100


def test_a_quicker_lane_does_not_wait_for_the_tick_of_the_old_one() -> None:
    schedule = Schedule(Settings(fast=60, slow=60, cold=60), 0.0)
    schedule.take(0.0)
    schedule.reconfigure(Settings(fast=1), 5.0)
    assert schedule.next_tick == 6.0


def test_a_shorter_period_takes_effect_at_once() -> None:
    schedule = Schedule(Settings(slow=15, cold=3600), 0.0)
    schedule.take(0.0)
    schedule.reconfigure(Settings(slow=2, cold=4), 0.0)
    lanes = [schedule.take(float(tick)) for tick in range(1, 7)]
    assert any(Lane.COLD in each for each in lanes)
    assert sum(Lane.SLOW in each for each in lanes) >= 2


def test_rare_lanes_that_are_wanted_soon_come_with_the_next_tick_and_keep_their_periods_from_then() -> None:
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    seen: dict[Lane, list[int]] = {Lane.SLOW: [], Lane.COLD: []}
    for tick in range(90):
        if tick == 4:
            schedule.hasten(3.2)
            schedule.hasten(3.3)  # another device comes back as well
        for lane in schedule.take(float(tick)):
            seen.get(lane, []).append(tick)
    assert seen == {Lane.SLOW: [0, 4, 19, 34, 49, 64, 79], Lane.COLD: [0, 4, 64]}


def test_rare_lanes_that_are_wanted_again_and_again_come_once_a_slow_period() -> None:
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    cold = []
    for tick in range(100):
        if Lane.COLD in schedule.take(float(tick)):
            cold.append(tick)
        schedule.hasten(tick + 0.2)
    assert cold == [0, 1, 16, 31, 46, 61, 76, 91]


def test_a_shorter_period_counts_from_the_last_read() -> None:
    """Counted from now, a lane would be read when what is shown of it is already too old for its new period."""
    schedule = Schedule(Settings(fast=1, slow=15, cold=200), 0.0)
    schedule.take(0.0)
    schedule.reconfigure(Settings(fast=1, slow=15, cold=100), 60.0)
    cold = [tick for tick in range(1, 201) if Lane.COLD in schedule.take(float(tick))]
    assert cold == [100, 200]
