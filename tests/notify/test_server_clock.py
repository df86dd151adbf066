"""A node whose clock is wrong tells alerts by the receiver's clock, and ends nobody else's."""

from __future__ import annotations

import time
from datetime import datetime
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lib.http_target import HttpTarget
from agent.model import Instant
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import MOST_SECONDS, TOLERANCE_SECONDS, ServerClock
from tests.notify.conftest import make_alert
from tests.waiting import wait_until

OFFS = (-600.0, 600.0)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def off_clock(off: float) -> Instant:
    return Instant(time.monotonic(), time.time() + off)


@given(st.floats(-MOST_SECONDS, MOST_SECONDS) | st.floats(-1e8, 1e8), st.floats(0, 5))
def test_the_difference_is_known_to_a_second_and_small_ones_are_left_alone(off: float, took: float) -> None:
    clock = ServerClock()
    here = 1.8e9
    sent, received = Instant(5.0, here), Instant(5.0 + took, here + took)
    wrong = clock.hear(formatdate(here + off + took / 2, usegmt=True), sent, received)
    if abs(off) <= TOLERANCE_SECONDS - 1 or abs(off) >= MOST_SECONDS + 1:
        assert (clock.ahead, wrong) == (0.0, False)
    elif TOLERANCE_SECONDS + 1 <= abs(off) <= MOST_SECONDS - 1:
        assert clock.ahead == pytest.approx(off, abs=0.51)
        assert wrong
        assert not clock.hear(formatdate(here + off + took / 2, usegmt=True), sent, received)


@pytest.mark.parametrize(
    "date",
    ["", "yesterday", "Sun, 99 Nov 2026 07:00:00 GMT", "\x00", "0" * 5000, "Fri, 01 Jan 0010 00:20:00 GMT",
     "Thu, 01 Jan 1970 00:20:00 -0000", "Thu, 01 Jan 1970 00:20:00 +0000", "Thu, 1 Jan 70 00:20:00 GMT",
     "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 01:20:00 GMT"],
)  # fmt: skip
def test_what_is_not_a_date_changes_nothing(date: str) -> None:
    clock = ServerClock()
    clock.ahead = -600.0
    assert not clock.hear(date, Instant(0.0, 0.0), Instant(0.0, 0.0))
    assert clock.ahead == -600.0


@pytest.mark.parametrize("off", OFFS)
def test_an_alert_of_many_nodes_outlives_what_one_with_a_wrong_clock_sends(
    alertmanager: Any, receive: Any, off: float
) -> None:
    real = alertmanager()
    good = receive(Alertmanager, real.url)
    wrong = Alertmanager(HttpTarget(real.url), lambda: off_clock(off))
    try:
        for receiver, now in ((good, time.time()), (wrong, time.time() + off)):
            alert = make_alert("RackPowerUnknown", fired_at=now - 5, rack="r12")
            Dispatcher([receiver]).consider("g", [alert], now, 1.0)
            wait_until(lambda receiver=receiver: receiver.counts.sent == 1)
        assert [each["labels"] for each in real.query()] == [{"alertname": "RackPowerUnknown", "rack": "r12"}]

        now = time.time() + off
        own = make_alert("RackAgentsDisagree", fired_at=now - 5)
        dispatcher = Dispatcher([wrong])
        dispatcher.consider("g", [own], now, 1.0)
        wait_until(lambda: wrong.counts.sent == 2)
        assert "RackAgentsDisagree" in {each["labels"]["alertname"] for each in real.query()}
        over = make_alert("RackAgentsDisagree", fired_at=now - 5, resolved_at=now - 1)
        dispatcher.consider("g", [over], now, 1.0)
        wait_until(lambda: wrong.counts.sent == 3)
        assert "RackAgentsDisagree" not in {each["labels"]["alertname"] for each in real.query()}
    finally:
        wrong.stop(0)


@pytest.mark.parametrize("off", OFFS)
def test_what_was_sent_with_wrong_times_is_sent_again_at_once(listener: Any, off: float) -> None:
    receiver = Alertmanager(HttpTarget(listener.url), lambda: off_clock(off))
    try:
        now = time.time() + off
        Dispatcher([receiver]).consider("g", [make_alert("A", fired_at=now)], now, 1.0)
        wait_until(lambda: receiver.counts.sent == 1)
        assert [post.names for post in listener.posts] == [["A"], ["A"]]
        ends = [seconds(post.alerts[0]["endsAt"]) - time.time() for post in listener.posts]
        assert ends == [pytest.approx(240 + off, abs=3), pytest.approx(240, abs=3)]
    finally:
        receiver.stop(0)


def test_a_difference_about_the_tolerance_does_not_come_and_go() -> None:
    clock = ServerClock()
    here = 1.8e9
    told = [
        clock.hear(formatdate(here + off, usegmt=True), Instant(0.0, here + 0.5), Instant(0.0, here + 0.5))
        for off in (11.0, 10.0, 11.0, 9.0, 10.0, 11.0, 7.0, 8.0, 10.0)
    ]
    assert told == [True, *[False] * 5, True, False, False]


def test_a_time_that_is_not_believed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ServerClock()
    for off in (-4000, -4000, 0, -4000):
        clock.hear(formatdate(1.8e9 + off, usegmt=True), Instant(0.0, 1.8e9), Instant(0.0, 1.8e9))
        assert clock.ahead == 0.0
    assert [record.getMessage()[:52] for record in caplog.records] == [
        "the receiver's Date header is too far from our clock"
    ] * 2


def test_only_an_answer_that_delivers_says_what_time_it_is(raw: Any, receive: Any) -> None:
    date = formatdate(time.time() - 600, usegmt=True)

    def treat(connection: Any) -> None:
        connection.recv(65536)
        connection.sendall(f"HTTP/1.1 503 Busy\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode())

    receiver = receive(Alertmanager, raw(treat).url)
    now = time.time()
    Dispatcher([receiver]).consider("g", [make_alert("A", fired_at=now)], now, 1.0)
    wait_until(lambda: receiver.counts.failed >= 1)
    assert receiver._server_clock.ahead == 0.0


def test_times_that_cannot_be_written_are_sent_by_our_own_clock(listener: Any, receive: Any) -> None:
    receiver = receive(Alertmanager, listener.url)
    receiver._server_clock.ahead = 253_402_300_799.0 - time.time()
    now = time.time()
    Dispatcher([receiver]).consider("g", [make_alert("A", fired_at=now)], now, 1.0)
    wait_until(lambda: receiver.counts.sent == 1)
    assert seconds(listener.posts[0].alerts[0]["startsAt"]) == pytest.approx(now, abs=1)
