"""When each lane is read, and the overhead governor against loads that are calculated: it keeps the budget."""

from collections.abc import Callable
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model import Lane
from agent.sampler.overhead import OverheadGovernor
from agent.sampler.schedule import LONGEST_FAST_SECONDS, MOST_TIMES, SAMPLES, Ranges, Schedule, Settings, steps_of


def test_the_first_tick_reads_every_lane_and_slow_ones_come_at_their_periods() -> None:
    assert Schedule(Settings(), 100.0).take_due(100.0) == (Lane.FAST, Lane.SLOW, Lane.COLD)
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    slow = [tick for tick in range(121) if Lane.SLOW in schedule.take_due(float(tick))]
    assert slow == list(range(0, 121, 15))


def test_missed_ticks_are_counted_and_a_quicker_lane_does_not_wait() -> None:
    schedule = Schedule(Settings(fast=1, slow=60, cold=60), 0.0)
    schedule.take_due(0.0)
    schedule.take_due(3.4)  # ticks 1 and 2 were missed
    assert (schedule.missed, schedule.next_tick) == (2, 4.0)
    schedule.reconfigure(Settings(fast=60, slow=60, cold=60), 4.0)
    schedule.take_due(4.0)
    schedule.reconfigure(Settings(fast=1), 9.0)
    assert schedule.next_tick == 10.0


def test_a_tick_a_little_late_is_no_missed_tick() -> None:
    schedule = Schedule(Settings(fast=0.1), 0.0)
    for tick in range(100):
        schedule.take_due(tick * 0.1 + 0.004)
    assert schedule.missed == 0
    assert schedule.ticks == 100


def test_rare_lanes_that_are_requested_soon_come_with_the_next_tick() -> None:
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    seen: dict[Lane, list[int]] = {Lane.SLOW: [], Lane.COLD: []}
    for tick in range(90):
        if tick == 4:
            schedule.hasten(3.2)
            schedule.hasten(3.3)  # another device comes back as well
        for lane in schedule.take_due(float(tick)):
            seen.get(lane, []).append(tick)
    assert seen == {Lane.SLOW: [0, 4, 19, 34, 49, 64, 79], Lane.COLD: [0, 4, 64]}


def test_rare_lanes_that_are_wanted_again_and_again_come_once_a_slow_period() -> None:
    schedule = Schedule(Settings(fast=1, slow=15, cold=60), 0.0)
    cold = []
    for tick in range(100):
        if Lane.COLD in schedule.take_due(float(tick)):
            cold.append(tick)
        schedule.hasten(tick + 0.2)
    assert cold == [0, 1, 16, 31, 46, 61, 76, 91]


def test_a_shorter_period_counts_from_the_last_read() -> None:
    """Counted from now, a lane would be read when what is shown of it is already too old for its new period."""
    schedule = Schedule(Settings(fast=1, slow=15, cold=200), 0.0)
    schedule.take_due(0.0)
    schedule.reconfigure(Settings(fast=1, slow=15, cold=100), 60.0)
    cold = [tick for tick in range(61, 201) if Lane.COLD in schedule.take_due(float(tick))]
    assert cold == [100, 200]
    schedule.reconfigure(Settings(fast=1, slow=2, cold=4), 210.0)
    lanes = [schedule.take_due(float(tick)) for tick in range(211, 216)]
    assert Lane.COLD in lanes[0] and sum(Lane.SLOW in each for each in lanes) >= 2


QUICK = Settings(fast=0.1)
STEPS = steps_of(QUICK)
BUDGET = 0.1
MINUTE = 60

shares = st.floats(0.0, 3.0)
"""What a lane costs as configured, as a multiple of the budget."""


class Node:
    """A node whose lanes cost so many shares of the budget as configured, beside what does not depend on them."""

    def __init__(self, base: float, fast: float, slow: float, cold: float) -> None:
        self.base, self.fast, self.slow, self.cold = base, fast, slow, cold
        self.governor = OverheadGovernor(BUDGET, [each.cold for each in STEPS])
        self.at = 1000.0
        self.spent = 7.0
        self.loads: list[float] = []
        self.changes: list[tuple[float, int]] = []

    def cost(self, step: int) -> float:
        """The share of one core at a step."""
        now, lanes = STEPS[step], (self.fast, self.slow, self.cold)
        configured = (QUICK.fast / now.fast, QUICK.slow / now.slow, QUICK.cold / now.cold)
        return BUDGET * (self.base + sum(share * part for share, part in zip(lanes, configured, strict=True)))

    def run(self, seconds: int, change: Callable[[int], None] = lambda _: None) -> None:
        for second in range(seconds):
            change(second)
            load = self.cost(self.governor.step)
            self.at += 1.0
            self.spent += load
            self.loads.append(load)
            if self.governor.observe(self.at, self.spent):
                self.changes.append((self.at, self.governor.step))

    def worst_minute(self, since: int = 0) -> float:
        """The most of the budget that any minute took."""
        loads = self.loads[since:]
        return max(sum(loads[n : n + MINUTE]) for n in range(len(loads) - MINUTE + 1)) / MINUTE / BUDGET


def test_steps_slow_the_slow_and_cold_lanes_down_first_and_never_pass_what_does_harm() -> None:
    assert [(each.fast, each.slow, each.cold) for each in STEPS] == [
        (0.1, 15, 60), (0.1, 30, 120), (0.1, 60, 240), (0.2, 60, 240), (0.4, 60, 240), (0.8, 60, 240), (1.0, 60, 240),
    ]  # fmt: skip


@given(
    st.tuples(st.floats(0.1, 60), st.floats(0.1, 3600), st.floats(0.1, 86400)).map(sorted),
    st.tuples(*[st.one_of(st.just(inf), st.floats(0.5, 3600))] * 3),
)
@settings(max_examples=40, deadline=None)
def test_no_step_goes_beyond_what_the_rules_and_the_rack_need(
    periods: list[float], shortest: tuple[float, float, float]
) -> None:
    configured = Settings(fast=periods[0], slow=periods[1], cold=periods[2], ranges=Ranges(*shortest))
    steps = steps_of(configured)
    assert steps[0] is configured
    for before, after in pairwise(steps):
        assert after.fast <= after.slow <= after.cold
        pairs = [(before.fast, after.fast), (before.slow, after.slow), (before.cold, after.cold)]
        assert all(old <= new for old, new in pairs) and any(old < new for old, new in pairs)
        assert before.fast == after.fast or before.slow >= _most(configured.slow, shortest[1])
    last = steps[-1]
    assert last.fast <= max(configured.fast, min(LONGEST_FAST_SECONDS, shortest[0] / SAMPLES))
    assert last.slow <= max(_most(configured.slow, shortest[1]), last.fast)
    assert last.cold <= max(_most(configured.cold, shortest[2]), last.slow)


def _most(period: float, shortest: float) -> float:
    return max(period, min(MOST_TIMES * period, shortest / SAMPLES))


@given(shares, shares, shares, shares)
@settings(max_examples=8, deadline=None)
def test_a_constant_load_is_brought_within_the_budget_where_possible(
    base: float, fast: float, slow: float, cold: float
) -> None:
    node = Node(base, fast, slow, cold)
    node.run(2 * 3600)
    if node.cost(len(STEPS) - 1) <= BUDGET:
        assert node.worst_minute(since=300) <= 1.0 + 1e-6
    if node.cost(len(STEPS) - 1) > 0.95 * BUDGET:
        assert node.governor.step == len(STEPS) - 1
    if node.cost(0) < 0.85 * BUDGET:
        assert not node.changes
    late = [at for at, _ in node.changes if at > 1000.0 + 3600]
    assert len(late) <= 10  # a try now and then, ever more rarely


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.2), st.floats(1.0, 4.0))
@settings(max_examples=8, deadline=None)
def test_a_load_that_grows_slowly_never_takes_more_than_the_budget(base: float, cold: float, most: float) -> None:
    node = Node(base, 0.1, 0.1, cold)
    node.run(MINUTE)

    def grow(second: int) -> None:
        node.fast = min(0.1 + second / 900, most)

    node.run(7200, grow)
    assert node.cost(len(STEPS) - 1) > BUDGET or node.worst_minute() <= 1.0 + 1e-6


@given(st.floats(0.0, 0.55), shares, shares, shares)
@settings(max_examples=5, deadline=None)
def test_when_the_load_goes_every_lane_is_read_as_configured_again(
    base: float, fast: float, slow: float, cold: float
) -> None:
    node = Node(base, fast, slow, cold)
    node.run(3600)
    node.fast = node.slow = node.cold = 0.01
    node.run(2 * 3600)
    assert node.governor.step == 0
    quiet = node.governor.step, len(node.changes)
    node.run(7200)
    assert (node.governor.step, len(node.changes)) == quiet


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(lambda second: 0.3 + (MINUTE * 0.2 if second % 60 == 0 else 0.0), id="a burst that fits a minute"),
        pytest.param(lambda second: 20.0 if second < 29 else 0.1, id="the first half minute does not count"),
    ],
)
def test_what_slows_nothing_down(base: Callable[[int], float]) -> None:
    node = Node(base(0), 0.0, 0.0, 0.0)
    node.run(3600, lambda second: setattr(node, "base", base(second)))
    node.at += 7200  # it was stopped for hours, and goes on from where it was
    node.run(300)
    assert not node.changes


def test_a_budget_that_cannot_be_kept_is_told_and_the_last_step_stays() -> None:
    node = Node(1.2, 0.1, 0.1, 0.1)
    node.run(600)
    assert (node.governor.state, node.governor.step) == ("exhausted", len(STEPS) - 1)
    assert node.governor.load == pytest.approx(node.cost(len(STEPS) - 1))
    node.base = 0.1
    node.run(1800)
    assert node.governor.state == "normal"


def test_another_budget_is_kept_from_then_on() -> None:
    node = Node(0.1, 0.5, 0.1, 0.0)
    node.run(300)
    node.governor.change(0.4 * BUDGET, [each.cold for each in STEPS])
    node.run(600)
    assert node.governor.step > 0
    node.governor.change(BUDGET, [60.0])
    assert (node.governor.step, node.governor.state) == (0, "normal")
