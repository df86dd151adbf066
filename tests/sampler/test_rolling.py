"""The rolling window against a naive oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sampler.rolling import BUCKETS, RollingWindow

columns = st.tuples(*[st.none() | st.floats(-1e6, 1e6)] * 3)


@given(st.lists(st.tuples(st.floats(0.05, 100), columns), min_size=1, max_size=200), st.integers(0, 100))
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
