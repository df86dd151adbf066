"""Counters only grow, whatever the device does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.catalogue.bindings import USUAL
from agent.model import Unit
from agent.sampler.counters import Counter, Counters


def feed(counter: Counter, *raws: float, step: float = 1.0) -> list[float | None]:
    return [counter.feed(at * step, raw) for at, raw in enumerate(raws)]


@pytest.mark.parametrize(
    ("unit", "raws", "shown"),
    [
        pytest.param(Unit.NONE, (5, 5, 9, 12), (5, 5, 9, 12), id="one that behaves"),
        # The first reading after a restart is left out, and the second continues from what was shown.
        pytest.param(Unit.JOULES, (9000, 9100, 100, 200, 300), (9000, 9100, None, 9300, 9400), id="a restart"),
        pytest.param(Unit.JOULES, (9000, 9100, 3, 9300, 9400), (9000, 9100, None, 9300, 9400), id="one low value"),
        pytest.param(Unit.JOULES, (9000, 9100, 2**60, 9300), (9000, 9100, None, 9300), id="one high value"),
        pytest.param(Unit.NONE, (5, 5, 2**32 - 1, 6, 6), (5, 5, None, 6, 6), id="a sentinel in a count of errors"),
        # The driver sets itself right, and nothing is added.
        pytest.param(Unit.JOULES, (100, 200, 10**9, 10**9 + 100), (100, 200, None, 300), id="a leap that lasts"),
        pytest.param(Unit.NONE, (100, 99, 99, 101), (100, None, 100, 102), id="a small fall that lasts"),
    ],
)
def test_what_is_shown_of_a_counter(unit: Unit, raws: tuple[float, ...], shown: tuple[float | None, ...]) -> None:
    assert feed(Counter(USUAL[unit]), *raws) == list(shown)


def test_a_gap_in_time_allows_as_much_growth_as_the_time_was_long() -> None:
    counter = Counter(USUAL[Unit.JOULES])
    assert counter.feed(0.0, 1000) == 1000
    assert counter.feed(600.0, 400_000) == 400_000


def test_whole_numbers_stay_whole_numbers() -> None:
    counter = Counter(USUAL[Unit.BYTES])
    assert isinstance(counter.feed(0, 2**60 + 1), int)


@given(st.lists(st.floats(min_value=0, max_value=1e15), max_size=60))
def test_what_is_shown_never_falls(raws: list[float]) -> None:
    for unit in (Unit.NONE, Unit.JOULES):
        shown = [value for value in feed(Counter(USUAL[unit]), *raws) if value is not None]
        assert shown == sorted(shown)


@given(st.lists(st.lists(st.integers(0, 1000), min_size=2, max_size=8), min_size=1, max_size=5))
def test_growth_is_kept_across_restarts_from_zero(lives: list[list[int]]) -> None:
    """Each life of the driver counts from zero; all but what its first, suspect reading hides is shown."""
    counter = Counter(USUAL[Unit.NONE])
    total, at = 0, 0.0
    for life in lives:
        raw = 0
        for growth in life:
            raw += growth
            at += 1
            counter.feed(at, raw)
        total += raw
    assert counter.shown <= total


raw_values = st.none() | st.integers(0, 40) | st.just(2**60)


@given(st.lists(st.tuples(raw_values, raw_values, raw_values), max_size=60), st.integers(0, 100))
def test_counters_that_are_judged_together_are_judged_as_each_alone(
    rows: list[tuple[int | None, int | None, int | None]], changes: int
) -> None:
    fastest = USUAL[Unit.NONE]
    alone = [Counter(fastest) for _ in range(3)]
    kept = [Counter(fastest) for _ in range(3)]
    together = Counters(kept)
    for at, row in enumerate(rows):
        if at == changes:  # another layout of the same counters
            together.let_go()
            together = Counters(kept)
        shown = together.feed(float(at), row)
        assert list(shown) == [
            None if raw is None else c.feed(float(at), raw) for c, raw in zip(alone, row, strict=True)
        ]


def test_counters_that_stay_equal_or_grow_are_not_even_copied() -> None:
    together = Counters([Counter(USUAL[Unit.NONE]) for _ in range(2)])
    for at, row in enumerate([(1, 5), (1, 5), (2, 6)]):
        assert together.feed(float(at), row) is row
