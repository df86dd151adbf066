"""The real Alertmanager and its amtool as the judges of what is sent: identical labels, and resolved means gone."""

import time
from typing import Any

import pytest

from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.webhook import Webhook, fingerprint
from tests.notify.conftest import make_alert, make_notice, seconds
from tests.waiting import wait_until

AWKWARD: dict[str, Any] = {
    "gpu": "0",
    "uuid": "GPU-5b7e1c1a-0000-4000-8000-000000000000",
    "severity": "critical",
    "text": 'quote " backslash \\ newline \n tab \t euro € \U0001f525',
    "empty": "",
}


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
    receiver.accept_notices([make_notice("A", now), make_notice("B", now)], now)
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


def test_an_end_that_the_clock_has_not_reached_yet_ends_the_alert(alertmanager: Any, receive: Any) -> None:
    """The wall clock may stray by half a second from that of the engine before it counts as set."""
    real = alertmanager()
    receiver = receive(Alertmanager, real.url)
    now = time.time()
    receiver.accept_notices([make_notice("A", now - 5)], now)
    wait_until(lambda: len(real.alerts()) == 1)
    early = make_notice("A", now - 5, now + 30)
    receiver.accept_notices([early], now)
    wait_until(lambda: not real.alerts())
    newer = make_notice("B", now + 60, now + 60)  # and one that began in the future, too, is not refused
    receiver.accept_notices([newer], now)
    wait_until(lambda: receiver.counts.sent == 3)
    assert receiver.counts.dropped == 0
