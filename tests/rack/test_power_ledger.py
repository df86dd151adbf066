"""All agents add up the same second: whatever they heard in whatever order, one second has one sum."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.rack.power import LAG_SECONDS, NodeMeter, PowerLedger
from agent.rack.power import METERED_SECONDS as KEPT_SECONDS

# -- the ledger -------------------------------------------------------------------------------------------------------

tables = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.floats(0, 1e6), min_size=4, max_size=4), min_size=1, max_size=6
)


@given(tables, st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_sum_of_a_second_does_not_depend_on_the_order_of_arrival(
    table: dict[str, list[float]], shuffle: random.Random, repeats: int
) -> None:
    deliveries = [(node, 100 + at, watts) for node, row in table.items() for at, watts in enumerate(row)] * repeats
    sums = set()
    for _ in range(3):
        shuffle.shuffle(deliveries)
        ledger = PowerLedger()
        for node, second, watts in deliveries:
            ledger.store_seconds(node, [(second, watts)])
        sums.add(ledger.add_up(103.9))
    (total,) = sums
    assert (total.second, total.nodes) == (103, frozenset(table))
    assert total.watts == pytest.approx(sum(row[3] for row in table.values()))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(99, 99 + LAG_SECONDS), st.floats(0, 1e6)), max_size=40))
def test_each_sum_is_of_values_of_one_second_whatever_was_heard_between(heard: list[tuple[str, int, float]]) -> None:
    ledger = PowerLedger()
    first: dict[Any, Any] = {}
    told: list[Any] = []
    for now, (node, second, watts) in enumerate(heard):
        ledger.store_seconds(node, [(second, watts)])
        first.setdefault((node, second), watts)
        total = ledger.add_up(100 + now / 10)
        if total is not None:
            told.append(total.second)
            assert total.watts == pytest.approx(sum(first[each, total.second] for each in total.nodes), abs=1e-9)


def row(*seconds: int, watts: float = 1.0) -> list[tuple[int, float]]:
    return [(second, watts) for second in seconds]


def test_the_newest_second_that_all_have_reported_is_summed() -> None:
    ledger = PowerLedger()
    ledger.store_seconds("a", row(9, 10, watts=1))
    ledger.store_seconds("b", row(8, 9, watts=2))
    total = ledger.add_up(10.5)
    assert (total.second, total.watts, total.nodes) == (9, 3, {"a", "b"})
    ledger = PowerLedger()
    ledger.store_seconds("ahead", row(12))
    assert ledger.add_up(12.5) is not None
    ledger.store_seconds("behind", row(11))
    ledger.forget("ahead")
    total = ledger.add_up(12.6)
    assert (total.second, total.nodes) == (11, {"behind"})
    ledger = PowerLedger()
    ledger.store_seconds("a", row(10, 11, 12))
    assert ledger.add_up(12.5) is not None
    ledger.store_seconds("late", row(10, 11))
    total = ledger.add_up(12.6)
    assert (total.second, total.nodes) == (12, {"a"})
    ledger.store_seconds("late", row(12))
    total = ledger.add_up(12.7)
    assert (total.second, total.nodes) == (12, {"a", "late"})


def test_a_silent_node_is_waited_for_and_then_left_out() -> None:
    ledger = PowerLedger()
    ledger.store_seconds("b", row(10))
    seen = []
    for second in range(10, 17):
        ledger.store_seconds("a", row(second))
        total = ledger.add_up(second + 0.5)
        seen.append((total.second, len(total.nodes)))
    assert seen == [(10, 2)] * (LAG_SECONDS + 1) + [(14, 1), (15, 1), (16, 1)]


@pytest.mark.parametrize("step", [4, 10, 60, 3600])
def test_a_clock_that_is_set_back_does_not_stop_it(step: int) -> None:
    ledger = PowerLedger()
    for second in range(10_000, 10_030):
        ledger.store_seconds("a", row(second, watts=1.0))
        ledger.store_seconds("b", row(second, watts=2.0))
        ledger.add_up(second + 0.5)
    for second in range(10_030 - step, 10_040 - step):
        ledger.store_seconds("a", row(second, watts=10.0))
        ledger.store_seconds("b", row(second, watts=20.0))
        total = ledger.add_up(second + 0.5)
        if second > 10_030 - step + LAG_SECONDS:  # so long a second that was told may stand
            assert (total.second, total.watts, len(total.nodes)) == (second, 30.0, 2)


@pytest.mark.parametrize("step", [60, 3600])
def test_one_node_whose_clock_is_set_back_counts_again_at_once(step: int) -> None:
    """It was ahead of the others, and nobody listened to it; then its clock is right."""
    ledger = PowerLedger()
    for second in range(10_000, 10_030):
        ledger.store_seconds("own", row(second + step, watts=1.0))
        ledger.add_up(second + step + 0.5)
    for second in range(10_030, 10_034):
        ledger.store_seconds("own", row(second, watts=1.0))
        ledger.store_seconds("peer", row(second, watts=2.0))
        total = ledger.add_up(second + 0.5)
        assert (total.second, total.watts) == (second, 3.0)


def test_a_second_never_changes_and_no_node_is_remembered_forever() -> None:
    ledger = PowerLedger()
    ledger.store_seconds("a", row(10, watts=1))
    ledger.store_seconds("a", row(10, watts=5))
    total = ledger.add_up(10.5)
    assert total.watts == 1
    assert ledger.latest(13.5) == {"a": 1}
    assert ledger.latest(14.5) == {}
    assert ledger.add_up(14.5) is None


# -- the meter --------------------------------------------------------------------------------------------------------
def told(meter: NodeMeter, now: float) -> dict[int, float]:
    last, watts = meter.power_in_last_seconds(now)
    return {second: each for second, each in enumerate(watts, last - len(watts) + 1) if each is not None}


@pytest.mark.parametrize(
    ("notes", "now", "seconds", "source"),
    [
        ([(100.0, 10.0, "ipmi"), (100.5, 20.0, "ipmi"), (101.2, 50.0, "ipmi"), (101.9, 70.0, "ipmi")], 102.0,
         {101: 15.0, 102: 60.0}, "ipmi"),
        ([(100.1, 10.0, "ipmi")], 100.99, {}, "ipmi"),
        ([(100.0, 10.0, "ipmi")], 106.0, {101: 10.0, 102: 10.0, 103: 10.0}, "ipmi"),
        ([(100.5, 10.0, "ipmi"), (101.5, None)], 104.0, {101: 10.0}, None),
        ([(100.1, 10.0, "estimate"), (100.2, 20.0, "ipmi")], 101.0, {101: 20.0}, "ipmi"),
    ],
    ids=["a mean of its samples", "not before it ended", "the last sample holds for 3 s", "not once it is unknown",
         "of one source"],
)  # fmt: skip
def test_what_a_meter_says_of_each_second(
    notes: Any, now: float, seconds: dict[int, float], source: str | None
) -> None:
    meter = NodeMeter(stale_after=3.0)
    for note in notes:
        meter.record(*note)
    assert (told(meter, now), meter.source) == (seconds, source)


def test_a_second_is_not_changed_after_it_was_told() -> None:
    meter = NodeMeter()
    meter.record(100.1, 10.0, "ipmi")
    assert told(meter, 101.0) == {101: 10.0}
    meter.record(100.999, 90.0, "ipmi")  # taken before the second ended, and too late for it
    assert told(meter, 101.5) == {101: 10.0}
    assert told(meter, 102.0) == {101: 10.0, 102: 90.0}


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_is_set_begins_a_new_life(step: float) -> None:
    meter = NodeMeter()
    meter.record(10_000.5, 10.0, "ipmi")
    assert told(meter, 10_001.0) == {10_001: 10.0}
    meter.record(10_001.5 + step, 20.0, "ipmi")
    assert told(meter, 10_002.0 + step) == {10_002 + step: 20.0}


samples = st.lists(st.tuples(st.floats(0, 0.7), st.none() | st.floats(0, 1e6), st.booleans()), max_size=60)


@given(samples)
def test_every_request_gets_the_same_answer_at_any_time(steps: list[tuple[float, float | None, bool]]) -> None:
    meter, at = NodeMeter(), 1000.0
    known: dict[Any, Any] = {}
    for step, watts, asks in steps:
        at += step
        meter.record(at, watts, "ipmi")
        last, row = meter.power_in_last_seconds(at) if asks else (0, ())
        for second, value in enumerate(row, last - KEPT_SECONDS + 1):
            if second >= 1000:
                assert known.setdefault(second, value) == value
