"""Resolved means gone at the next notification: no end that is told lies in the future, whatever the group's turn."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.model import Gpu, Instant, Kind, Lane, Metric, Reading, Series, Unit
from alerts import rulefile
from alerts.engine import RuleEngine, Ruleset
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import Notice
from tests.frames import snapshot_of
from tests.notify.conftest import Ear, make_notice
from tests.waiting import wait_until

METRIC = Metric("t", Kind.GAUGE, Unit.NONE, Gpu, "", Lane.FAST, ())
SERIES = Series(METRIC, Gpu("0", "GPU-0"))
INTERVALS = ("", "1s", "2s", "3s", "5s", "7s", "15s", "2500ms")
EACH = 3
"""Groups of each interval, which take turns."""


def pack() -> Ruleset:
    groups = [
        {"name": f"g{number}", **({"interval": interval} if interval else {}),
         "rules": [{"alert": f"A{number}", "expr": "t > 80", "for": "4s" if number % 2 else "0s"}]}
        for number, interval in enumerate(INTERVALS * EACH)
    ]  # fmt: skip
    return Ruleset((rulefile.parse(json.dumps({"groups": groups}), "pack.yml"),))


def posts(seed: int, ear: Any) -> Iterator[tuple[float, Notice]]:
    """What is told by rounds that stray from their seconds, and by a wall clock that strays a little from both.

    The condition holds for the first 40 of 80 seconds. Each notice comes with the wall second that it is sent at.
    """
    dice = random.Random(seed)
    phase, beginning = dice.random(), 1_700_000_000 + dice.random()
    engine = RuleEngine(pack(), (), Instant(1000 + phase, beginning + phase))
    dispatcher = Dispatcher([ear])
    for second in range(80):
        stray = dice.uniform(0.0, 0.45) * dice.choice((0, 1))
        mono = second + phase + stray
        now = Instant(1000 + mono, beginning + mono)
        snapshot = snapshot_of(second + 1, now, (Reading(SERIES, 90.0 if second < 40 else 20.0),))
        for done in engine.round(snapshot, now):
            dispatcher.consider(done.key, done.group.alerts(), done.at, done.interval)
        yield from ((now.wall, notice) for _, notice in ear.heard)
        ear.heard.clear()


@pytest.mark.parametrize("seed", range(10))
def test_no_time_that_is_sent_is_later_than_its_sending_and_rounds_that_stray_let_no_alert_wait(seed: int) -> None:
    """An alert with `for: 4s` fires at the first place of its group that is 4 seconds after the one that began it."""
    told = list(posts(seed, Ear()))
    for now, notice in told:
        alert = notice.alert
        assert alert.fired_at is not None
        assert alert.active_at <= alert.fired_at <= now
        assert alert.resolved_at is None or alert.resolved_at <= now
        number = int(alert.rule[1:])
        interval = (1, 1, 2, 3, 5, 7, 15, 2.5)[number % len(INTERVALS)]
        wanted = -(-4 // interval) * interval if number % 2 else 0
        assert alert.fired_at - alert.active_at == pytest.approx(wanted)
    assert len({notice.alert.rule for _, notice in told if notice.alert.resolved_at}) == EACH * len(INTERVALS)


def moved(notice: Notice, seconds: float) -> Notice:
    alert = notice.alert
    ends = None if alert.resolved_at is None else alert.resolved_at + seconds
    assert alert.fired_at is not None
    fired = alert.fired_at + seconds
    return Notice(replace(alert, fired_at=fired, resolved_at=ends), notice.valid_until + seconds)


def send(receiver: Any, told: Sequence[tuple[float, Notice]]) -> None:
    """Send notices as if each of their moments were now."""
    before = receiver.counts.sent
    now = time.time()
    receiver.put([moved(notice, now - at) for at, notice in told], now)
    wait_until(lambda: receiver.counts.sent == before + len(told))


def test_an_alert_of_any_group_is_gone_from_alertmanager_when_its_end_was_sent(alertmanager, receive) -> None:
    """Alertmanager has real time alone: what was told in another is moved to the moment at which it is sent."""
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    told = list(posts(7, Ear()))
    firing = {notice.alert.rule: (at, notice) for at, notice in told if notice.alert.resolved_at is None}
    ends = {notice.alert.rule: (at, notice) for at, notice in reversed(told) if notice.alert.resolved_at}
    assert firing.keys() == ends.keys()
    send(receiver, list(firing.values()))
    assert {alert["labels"]["alertname"] for alert in real.alerts()} == firing.keys()
    send(receiver, list(ends.values()))
    wait_until(lambda: not real.alerts())


def test_an_end_that_the_clock_has_not_reached_yet_ends_the_alert(alertmanager: Any, receive: Any) -> None:
    """The wall clock may stray by half a second from that of the engine before it counts as set."""
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    now = time.time()
    send(receiver, [(now, make_notice("A", now - 5))])
    assert len(real.alerts()) == 1
    early = make_notice("A", now - 5, now + 30)
    receiver.put([early], now)
    wait_until(lambda: not real.alerts())
    newer = make_notice("B", now + 60, now + 60)  # and one that began in the future, too, is not refused
    receiver.put([newer], now)
    wait_until(lambda: receiver.counts.sent == 3)
    assert receiver.counts.dropped == 0
