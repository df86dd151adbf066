"""The rolling window against a naive oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sampler.rolling import BUCKETS, RollingWindow


def statistics(window: RollingWindow) -> tuple[float, float, float]:
    return window.lowest[0], window.means[0], window.highest[0]


def test_a_peak_is_forgotten_after_the_window() -> None:
    window = RollingWindow(60, 1)
    window.add(0.0, [900.0])
    for at in range(1, 60):
        window.add(float(at), [100.0])
    assert window.highest[0] == 900.0
    window.add(60.0, [100.0])
    assert window.highest[0] == 100.0


def test_a_silence_longer_than_the_window_leaves_nothing_behind() -> None:
    window = RollingWindow(60, 1)
    window.add(0.0, [900.0])
    window.add(1000.0, [100.0])
    assert statistics(window) == (100.0, 100.0, 100.0)


def test_fast_samples_within_a_bucket_are_all_seen_when_it_closes() -> None:
    window = RollingWindow(60, 1)
    for tenth in range(10):
        window.add(tenth / 10, [float(tenth)])
    assert window.add(1.0, [5.0])
    assert (window.lowest, window.highest) == ((0.0,), (9.0,))


steps = st.lists(st.tuples(st.floats(0.05, 30), st.floats(-1e6, 1e6)), min_size=1, max_size=200)


@given(steps)
def test_it_agrees_with_a_naive_oracle(samples: list[tuple[float, float]]) -> None:
    window = RollingWindow(60, 1)
    seen: list[tuple[int, float]] = []
    at = 0.0
    for step, value in samples:
        at += step
        seen.append((int(at), value))
        if window.add(at, [value]):
            within = [each for bucket, each in seen if bucket > int(at) - BUCKETS]
            assert window.lowest[0] == min(within)
            assert window.highest[0] == max(within)
            assert window.means[0] == pytest.approx(sum(within) / len(within), rel=1e-6, abs=1e-3)


columns = st.tuples(*[st.none() | st.floats(-1e6, 1e6)] * 3)


@given(st.lists(st.tuples(st.floats(0.05, 30), columns), min_size=1, max_size=200), st.integers(0, 100))
def test_each_column_is_of_its_own_values(samples: list[tuple[float, Sequence[float | None]]], joins: int) -> None:
    """One column has a value where another has none, and the last one joins later."""
    window = RollingWindow(60, 2)
    seen: list[list[tuple[int, float]]] = [[], [], []]
    at, width = 0.0, 2
    for number, (step, values) in enumerate(samples):
        at += step
        if number == joins:
            width = 3
            window.widen(width)
        for column, value in enumerate(values[:width]):
            if value is not None:
                seen[column].append((int(at), value))
        if window.add(at, values[:width]):
            for column in range(width):
                within = [each for bucket, each in seen[column] if bucket > int(at) - BUCKETS]
                if within:
                    assert window.lowest[column] == min(within)
                    assert window.highest[column] == max(within)
                    assert window.means[column] == pytest.approx(sum(within) / len(within), rel=1e-6, abs=1e-3)
