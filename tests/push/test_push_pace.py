"""How often a receiver is asked: time is an argument."""

from __future__ import annotations

import pytest

from exporters.push.push_queue import PushPace
from exporters.push.remote_write import wished


def test_pauses_grow_up_to_half_a_minute_and_end_with_an_answer() -> None:
    pace = PushPace(15.0, lambda: 1.0)
    pauses = []
    for _ in range(7):
        pace.failed(100.0)
        pauses.append(pace.not_before - 100.0)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pace.failing
    pace.answered(200.0)
    assert not pace.failing
    pace.failed(300.0)
    assert pace.not_before == 301.0


def test_pauses_are_spread() -> None:
    least, most = PushPace(15.0, lambda: 0.0), PushPace(15.0, lambda: 1.0)
    least.failed(0.0)
    most.failed(0.0)
    assert (least.not_before, most.not_before) == (0.5, 1.0)


def test_a_backlog_is_sent_at_ten_times_the_usual_rate() -> None:
    pace = PushPace(15.0)
    pace.answered(100.0)
    assert pace.not_before == 101.5


def test_a_receiver_that_asks_for_time_gets_it_within_bounds() -> None:
    pace = PushPace(15.0, lambda: 1.0)
    pace.failed(0.0, 20.0)
    assert pace.not_before == 20.0
    pace.failed(0.0, 1e9)
    assert pace.not_before == 300.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0", 0.0), ("", 0.0), ("-3", 0.0), ("1.5", 0.0), ("9" * 30, 0.0), ("٣", 0.0)],
)
def test_only_a_number_of_seconds_is_read(text: str, seconds: float) -> None:
    assert wished(text) == seconds
