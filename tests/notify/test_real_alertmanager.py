"""The real Alertmanager and its amtool as the judges of what is sent: identical labels, and resolved means gone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from agent.model import Gpu, Instant, Kind, Lane, Metric, Reading, Series, Unit
from alerts import rulefile
from alerts.engine import RuleEngine, Ruleset
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import Notice
from alerts.notify.webhook import Webhook, fingerprint
from tests.frames import snapshot_of
from tests.notify.conftest import Ear, make_alert, make_notice
from tests.waiting import wait_until

AWKWARD: dict[str, Any] = {
    "gpu": "0",
    "uuid": "GPU-5b7e1c1a-0000-4000-8000-000000000000",
    "severity": "critical",
    "text": 'quote " backslash \\ newline \n tab \t euro € \U0001f525',
    "empty": "",
}


def seconds(text: str) -> float:
    """Go leaves out the zeros at the end of a fraction, which 3.10 does not read."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def test_an_alert_arrives_with_identical_labels_and_is_gone_when_it_resolves(alertmanager, receive) -> None:
    real = alertmanager()
    receiver = receive(Alertmanager, real.url, options={"external_url": "http://node7:19400/"})
    dispatcher = Dispatcher([receiver], external_labels=(("cluster", "c1"), ("severity", "none")))
    now = round(time.time(), 3)
    firing = make_alert("GpuHot", fired_at=now - 5, annotations={"summary": "hot ✓", "n": ""}, **AWKWARD)
    dispatcher.consider("g", [firing], now, 1.0)
    wait_until(lambda: receiver.counts.sent == 1)
    labels = {"alertname": "GpuHot", "cluster": "c1", **{name: value for name, value in AWKWARD.items() if value}}
    assert [each["labels"] for each in real.query()] == [labels]
    (stored,) = real.alerts()
    assert stored["labels"] == labels
    assert stored["annotations"]["summary"] == "hot ✓"
    assert stored["generatorURL"] == "http://node7:19400/"
    assert seconds(stored["startsAt"]) == pytest.approx(now - 5)
    assert seconds(stored["endsAt"]) == pytest.approx(now + 240)
    assert stored["fingerprint"] == fingerprint(tuple(labels.items()))

    resolved = make_alert("GpuHot", fired_at=now - 5, resolved_at=now + 0.01, **AWKWARD)
    time.sleep(0.01)
    dispatcher.consider("g", [resolved], now + 0.01, 1.0)
    wait_until(lambda: receiver.counts.sent == 2)
    assert real.query() == []
    assert (receiver.counts.dropped, receiver.counts.failed) == (0, 0)


def test_an_alertmanager_that_restarts_knows_again_what_fires(alertmanager, receive) -> None:
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    dispatcher = Dispatcher([receiver], resend=60.0)
    now = time.time()
    told, untold = make_alert("Told", fired_at=now), make_alert("Untold", fired_at=now)
    dispatcher.consider("g", [told], now, 1.0)
    wait_until(lambda: receiver.counts.sent == 1)
    real.stop()  # and it remembers no alerts
    dispatcher.consider("g", [told, untold], now + 1, 1.0)
    wait_until(lambda: receiver.counts.failed >= 2)
    assert receiver.queued == 1
    real.start()
    dispatcher.consider("g", [told, untold], now + 61, 1.0)
    wait_until(lambda: len(real.alerts()) == 2)
    assert sorted(each["labels"]["alertname"] for each in real.query()) == ["Told", "Untold"]
    assert receiver.counts.dropped == 0


def test_what_alertmanager_refuses_affects_only_itself(alertmanager, receive) -> None:
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    now = time.time()
    nameless: dict[str, Any] = {"": "x"}  # "not-a-name" is a name since 0.28
    bad = make_alert("Bad", fired_at=now, **nameless)
    receiver.put([make_notice("A", now), make_notice("B", now)], now)
    Dispatcher([receiver]).consider("g", [make_alert("C", fired_at=now), bad, make_alert("D", fired_at=now)], now, 1.0)
    wait_until(lambda: receiver.counts.sent == 4 and receiver.counts.dropped == 1)
    assert sorted(each["labels"]["alertname"] for each in real.query()) == ["A", "B", "C", "D"]


def test_the_webhook_says_what_alertmanagers_own_webhook_says(alertmanager, receive, listener) -> None:
    """One alert is told to Alertmanager, which tells a webhook, and to our own: the two must read alike."""
    real = alertmanager(webhook=f"{listener.url}/theirs")
    receivers = [receive(Alertmanager, real.url), receive(Webhook, f"{listener.url}/ours")]
    dispatcher = Dispatcher(receivers)
    now = round(time.time(), 3) - 10.0
    firing = make_alert("GpuHot", fired_at=now, annotations={"summary": "hot"}, **AWKWARD)
    dispatcher.consider("g", [firing], now + 10, 1.0)
    wait_until(lambda: {post.path for post in listener.posts} == {"/theirs", "/ours"})
    dispatcher.consider("g", [firing], now + 80, 1.0)  # to Alertmanager only, which has told it already
    wait_until(lambda: receivers[0].counts.sent == 2 and receivers[1].queued == 0)
    resolved = make_alert("GpuHot", fired_at=now, resolved_at=now + 5, annotations={"summary": "hot"}, **AWKWARD)
    dispatcher.consider("g", [resolved], now + 81, 1.0)
    wait_until(lambda: len(listener.posts) == 4)
    assert [post.path for post in listener.posts].count("/ours") == 2
    for status in ("firing", "resolved"):
        theirs, ours = (
            next(post.json for post in listener.posts if post.path == path and post.json["status"] == status)
            for path in ("/theirs", "/ours")
        )
        theirs.pop("notification_reason", None)  # why it tells now, of its own timing; seen in 0.33
        assert list(ours) == list(theirs)
        for message in (theirs, ours):
            for alert in message["alerts"]:
                alert.pop("generatorURL")  # theirs is Prometheus's
                for name in ("startsAt", "endsAt"):
                    alert[name] = seconds(alert[name])
        same = ("status", "alerts", "commonLabels", "commonAnnotations", "version", "truncatedAlerts")
        assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


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


def test_an_end_that_the_clock_has_not_reached_yet_ends_the_alert(alertmanager: Any, receive: Any) -> None:
    """The wall clock may stray by half a second from that of the engine before it counts as set."""
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    now = time.time()
    receiver.put([make_notice("A", now - 5)], now)
    wait_until(lambda: len(real.alerts()) == 1)
    early = make_notice("A", now - 5, now + 30)
    receiver.put([early], now)
    wait_until(lambda: not real.alerts())
    newer = make_notice("B", now + 60, now + 60)  # and one that began in the future, too, is not refused
    receiver.put([newer], now)
    wait_until(lambda: receiver.counts.sent == 3)
    assert receiver.counts.dropped == 0
