"""The samples in memory."""

from __future__ import annotations

import pytest

from alerts.promql import Matcher, Storage, make_labels
from alerts.promql.storage import OutOfOrderError

M = (Matcher("__name__", "=", "m"),)


def windows(storage: Storage, start: float = -1e9, end: float = 1e12) -> list[list[float]]:
    return [list(times) for _, times, _ in storage.select(M, start, end)]


def test_a_sample_must_be_newer_than_the_newest_but_may_repeat_it() -> None:
    storage = Storage()
    storage.append(make_labels({}, "m"), 5.0, 1.0)
    storage.append(make_labels({}, "m"), 5.0, 1.0)
    with pytest.raises(OutOfOrderError, match="not after the newest"):
        storage.append(make_labels({}, "m"), 5.0, 2.0)
    with pytest.raises(OutOfOrderError):
        storage.append(make_labels({}, "m"), 4.0, 1.0)
    assert windows(storage) == [[5.0]]


def test_old_samples_are_dropped_and_so_are_series_that_have_none_left() -> None:
    storage = Storage()
    for at in (1.0, 2.0, 3.0):
        storage.append(make_labels({"gpu": "0"}, "m"), at, at)
    storage.append(make_labels({"gpu": "1"}, "m"), 1.0, 1.0)
    storage.drop_before(2.0)
    assert windows(storage) == [[2.0, 3.0]]
    assert len(storage) == 1
    storage.drop_before(10.0)
    assert windows(storage) == []
    assert len(storage) == 0


def test_a_series_that_comes_later_is_found_by_a_selection_that_was_asked_before() -> None:
    storage = Storage()
    storage.append(make_labels({"gpu": "0"}, "m"), 1.0, 1.0)
    assert len(windows(storage)) == 1
    storage.append(make_labels({"gpu": "1"}, "m"), 1.0, 1.0)
    assert len(windows(storage)) == 2


def test_a_matcher_knows_its_four_operators() -> None:
    assert [Matcher("a", op, "x|y").matches("x") for op in ("=", "!=", "=~", "!~")] == [False, True, True, False]
    with pytest.raises(ValueError, match="unknown matcher"):
        Matcher("a", "<", "x")
