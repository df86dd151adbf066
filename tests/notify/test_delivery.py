"""Delivery over HTTP to servers that are well, away, slow, wrong or hostile."""

import logging
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from alerts.notify.alertmanager import Alertmanager
from alerts.notify.delivery import Pace
from alerts.notify.receiver import Notice, rfc3339
from alerts.notify.webhook import Webhook
from tests.notify.conftest import make_notice
from tests.servers import free_port, unmeasured
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture):
    """What was logged, as (level, message)."""
    caplog.set_level(logging.INFO, "coldplate.notify")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


AWAY, BACK = ("WARNING", "cannot deliver alerts; retrying"), ("INFO", "alerts are delivered again")


def many(number: int) -> list[Notice]:
    return [make_notice(f"A{each}") for each in range(number)]


def test_batches_of_64_go_over_one_connection(listener, receive) -> None:
    receiver = receive(Alertmanager, f"{listener.url}/behind/a/proxy/")
    receiver.accept_notices(many(150), time.time())
    wait_until(lambda: receiver.counts.sent == 150)
    assert sorted(len(post.alerts) for post in listener.posts) == [22, 64, 64]
    assert listener.received() == [f"A{each}" for each in range(150)]
    assert listener.connections == 1
    assert {post.path for post in listener.posts} == {"/behind/a/proxy/api/v2/alerts"}
    assert listener.posts[0].headers["Content-Type"] == "application/json"
    assert listener.posts[0].headers["Host"] == f"127.0.0.1:{listener.port}"
    assert receiver.queued == 0


@pytest.mark.parametrize("status", [500, 503, 429, 401, 403, 404, 408, 302])
def test_what_a_server_does_not_take_is_tried_until_it_does(listener, receive, told, status: int) -> None:
    answers = [status] * 3
    listener.answer = lambda post: (answers.pop() if answers else 200, b"not now")
    receiver = receive(Alertmanager, listener.url)
    receiver.accept_notices(many(3), time.time())
    wait_until(lambda: receiver.counts.sent == 3)
    assert set(listener.received()[-3:]) == {"A0", "A1", "A2"} or len(listener.posts) > 4
    assert receiver.counts.dropped == 0
    assert receiver.counts.failed in (2, 3)  # a login refused on a kept connection is tried at once on a new one
    wait_until(lambda: told() == [AWAY, BACK])


def test_a_server_that_is_away_is_logged_once_and_gets_the_newest_state_later(listen, receive, told) -> None:
    port = free_port()
    receiver = receive(Webhook, f"http://127.0.0.1:{port}")
    receiver.accept_notices([make_notice("A"), make_notice("B")], 0.0)
    wait_until(lambda: receiver.counts.failed >= 3)
    receiver.accept_notices([make_notice("A", 1000.0, 1010.0)], 0.0)
    listener = listen(port)
    wait_until(lambda: receiver.counts.sent == 2)
    told_of = {alert["labels"]["alertname"]: alert["status"] for post in listener.posts for alert in post.alerts}
    assert told_of == {"A": "resolved", "B": "firing"}
    wait_until(lambda: told() == [AWAY, BACK])


def test_of_a_refused_batch_only_what_is_refused_alone_is_dropped(listener, receive, caplog) -> None:
    listener.answer = lambda post: (400, b"bad: " + b"x" * 500) if "A7" in post.names else (200, b"")
    receiver = receive(Alertmanager, listener.url)
    notices = many(20)
    receiver.accept_notices(notices, time.time())
    wait_until(lambda: receiver.counts.sent == 19 and receiver.counts.dropped == 1)
    assert {name for post in listener.accepted for name in post.names} == {f"A{n}" for n in range(20)} - {"A7"}
    assert len(listener.posts) == 21
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.facts["labels"] == '{alertname="A7"}'
    assert record.facts["answer"] == "HTTP status 400: bad: " + "x" * 195
    receiver.accept_notices([notices[7]], time.time())
    wait_until(lambda: receiver.counts.dropped == 2)
    assert len(caplog.records) == 1  # Alertmanager is sent it every minute


@pytest.mark.parametrize("answers", [[], [400, 200, 500]], ids=["", "though the server goes away meanwhile"])
def test_those_of_a_refused_batch_are_sent_alone_before_all_that_waits(listener, receive, answers: list[int]) -> None:
    left = [*answers]
    listener.answer = lambda post: (left.pop(0) if left else 400 if "A1" in post.names else 200, b"bad")
    receiver = receive(Alertmanager, listener.url, pace=Pace(first=0.02, longest=0.08, batch=3))
    receiver.accept_notices(many(6), time.time())
    wait_until(lambda: receiver.counts.sent == 5 and receiver.counts.dropped == 1)
    assert [post.names for post in listener.posts][:3] == [["A0", "A1", "A2"], ["A0"], ["A1"]]


def test_an_alert_at_which_the_server_fails_does_not_hold_up_the_others(listener, receive) -> None:
    listener.answer = lambda post: (500, b"panic") if "A3" in post.names else (200, b"")
    receiver = receive(Webhook, listener.url, pace=Pace(first=0.001, longest=0.002))
    receiver.accept_notices(many(100), 0.0)
    wait_until(lambda: receiver.counts.sent == 99)
    assert (receiver.queued, receiver.counts.dropped) == (1, 0)


def test_what_cannot_be_written_affects_only_itself(listener, receive) -> None:
    receiver = receive(Alertmanager, listener.url)
    bad = [make_notice("Endless", 1e300), make_notice("Pending", None), make_notice("NaN", float("nan"))]
    receiver.accept_notices([make_notice("A"), *bad, make_notice("B", annotations={"text": "\udcff"})], time.time())
    wait_until(lambda: receiver.counts.sent == 2 and receiver.counts.dropped == 3)
    assert listener.received() == ["A", "B"]


def test_putting_never_waits_for_a_server_that_hangs(listener, receive) -> None:
    listener.gate.clear()
    receiver = receive(Alertmanager, listener.url, timeout=1.0)
    longest = 0.0
    for each in range(300):
        start = time.monotonic()
        receiver.accept_notices([make_notice(f"A{each}")], 0.0)
        longest = max(longest, time.monotonic() - start)
        time.sleep(0.001)
    assert longest < 0.8
    wait_until(lambda: receiver.counts.failed >= 1)
    assert receiver.queued == 300
    listener.gate.set()
    wait_until(lambda: receiver.counts.sent == 300)


def test_a_redirect_is_not_followed(listen, receive, caplog) -> None:
    here, there = listen(), listen()
    here.answer = lambda post: (307, b"")
    here.headers["Location"] = f"{there.url}/api/v2/alerts"
    receiver = receive(Alertmanager, here.url)
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.failed >= 2)
    assert there.posts == []
    assert f"redirected to '{there.url}/api/v2/alerts'" in caplog.records[0].facts["error"]


def test_a_rotated_token_is_used(listener, receive, tmp_path, told) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    valid = "old"
    listener.answer = lambda post: (200 if post.headers.get("Authorization") == f"Bearer {valid}" else 401, b"")
    receiver = receive(Alertmanager, listener.url, bearer_token_file=str(token))
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.sent == 1)
    token.write_text("new\n")
    valid = "new"
    receiver.accept_notices([make_notice("B")], 0.0)
    wait_until(lambda: receiver.counts.sent == 2)
    assert receiver.counts.failed == 0
    token.unlink()
    valid = "newer"
    receiver.accept_notices([make_notice("C")], 0.0)
    wait_until(lambda: receiver.counts.failed >= 1)
    token.write_text("newer")
    wait_until(lambda: receiver.counts.sent == 3)
    wait_until(lambda: told() == [AWAY, BACK])


def test_what_no_longer_holds_is_not_sent_to_alertmanager_but_to_a_webhook(listener, receive) -> None:
    old = [make_notice("Old", valid_for=-0.001), make_notice("Over", 1000.0, 1010.0, valid_for=-0.001)]
    receivers = [receive(Alertmanager, listener.url), receive(Webhook, listener.url)]
    for receiver in receivers:
        receiver.accept_notices(old, 0.0)
    wait_until(lambda: [each.counts.sent for each in receivers] == [1, 2])
    assert [each.counts.dropped for each in receivers] == [1, 0]
    assert sorted(listener.received()) == ["Old", "Over", "Over"]


def test_too_many_are_counted_and_the_newest_kept(listener, receive) -> None:
    listener.gate.clear()
    receiver = receive(Alertmanager, listener.url, pace=Pace(capacity=10))
    receiver.accept_notices([make_notice("First")], 0.0)
    wait_until(lambda: listener.posts)
    receiver.accept_notices(many(25), 0.0)
    assert (receiver.counts.dropped, receiver.queued) == (15, 11)
    listener.gate.set()
    wait_until(lambda: receiver.counts.sent == 11)
    assert listener.received() == ["First", *(f"A{each}" for each in range(15, 25))]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.5), (1.0, 1.0)])
def test_the_pauses_double_up_to_the_longest_and_are_jittered(listener, receive, chance, factor) -> None:
    came: list[float] = []
    listener.answer = lambda post: (came.append(time.monotonic()) or 500, b"")
    pace = Pace(first=0.06, longest=0.12)
    receiver = receive(Alertmanager, listener.url, pace=pace, options={"jitter": lambda: chance})
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: len(came) >= 9)
    receiver.stop(0)
    pauses = [later - earlier for earlier, later in pairwise(came[:9])]
    wanted = [factor * each for each in (0.06, *(0.12,) * 7)]
    assert all(pause >= least for pause, least in zip(pauses, wanted, strict=True))
    assert min(pauses[1:]) < 1.9 * wanted[-1]  # any of them: another process may have had the processor for the others


def test_after_a_success_the_pauses_are_short_again(listener, receive) -> None:
    answers = [500, 500, 500, 500, 200, 500]
    listener.answer = lambda post: (answers.pop(0) if answers else 200, b"")
    pace = Pace(first=0.1, longest=60.0)
    receiver = receive(Alertmanager, listener.url, pace=pace, options={"jitter": lambda: 1.0})
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.sent == 1)
    start = time.monotonic()
    receiver.accept_notices([make_notice("B")], 0.0)
    wait_until(lambda: receiver.counts.sent == 2)
    assert time.monotonic() - start < 1.2  # it would be 1.6 seconds


def test_what_waits_is_delivered_at_the_end_even_within_a_pause(listener, receive) -> None:
    status = 500
    listener.answer = lambda post: (status, b"")
    receiver = receive(Alertmanager, listener.url, pace=Pace(first=60.0, longest=60.0))
    receiver.accept_notices(many(100), time.time())
    wait_until(lambda: receiver.counts.failed == 1)
    status = 200
    receiver.stop(3.0)
    assert (receiver.counts.sent, receiver.counts.dropped, receiver.queued) == (100, 0, 0)
    receiver.accept_notices(many(2), time.time())
    assert receiver.counts.dropped == 2


def test_the_end_is_not_held_up_by_a_server_that_hangs(serve, receive, told) -> None:
    asked: list[socket.socket] = []
    receiver = receive(Alertmanager, serve(lambda held, number: asked.append(held)).url, timeout=30.0)
    receiver.accept_notices(many(100), time.time())
    wait_until(lambda: asked)
    assert receiver.queued == 100
    start = time.monotonic()
    receiver.stop(0.1)
    assert time.monotonic() - start < 10.0
    assert receiver.counts.dropped == 100
    assert told()[-1] == ("WARNING", "alerts not delivered")


def test_a_kept_connection_outlives_the_time_of_an_exchange(listener, receive) -> None:
    receiver = receive(Alertmanager, listener.url, timeout=0.1)
    for number in (1, 2):
        receiver.accept_notices([make_notice(f"A{number}")], 0.0)
        wait_until(lambda: receiver.counts.sent == number)  # noqa: B023
        time.sleep(0.12)
    assert (listener.connections, receiver.counts.failed) == (1, 0)


def test_an_unforeseen_error_costs_an_attempt_and_not_the_thread(listener, receive, monkeypatch, told) -> None:
    errors = [MemoryError(), RuntimeError("odd"), KeyError("x")]
    look_up = socket.getaddrinfo

    def fail(*arguments, **options):
        if errors:
            raise errors.pop()
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    receiver = receive(Alertmanager, listener.url)
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.sent == 1)
    assert (receiver.counts.failed, receiver.counts.dropped) == (3, 0)
    wait_until(lambda: told() == [AWAY, BACK])


ALONE = """
import sys, time
from agent.model import Alert, Instant, Phase
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.log import LogReceiver
from agent.lib.http_target import HttpTarget
from alerts.notify.webhook import Webhook
clock = lambda: Instant(time.monotonic(), time.time())
receivers = [kind(HttpTarget(sys.argv[1]), clock) for kind in (Alertmanager, Webhook)]
dispatcher = Dispatcher(receivers)
dispatcher.consider("g", [], time.time(), 1.0)
heavy = {"http.client", "ssl", "email", "random"} & set(sys.modules)
assert not heavy, heavy
dispatcher.consider("g", [Alert("A", (("alertname", "A"),), Phase.FIRING, 1.0, 0.0, 0.0)], time.time(), 1.0)
time.sleep(0.2)
assert receivers[0].queued == 1
"""


def test_a_process_is_light_until_it_sends_and_ends_although_a_server_hangs(serve) -> None:
    server = serve(lambda held, number: None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, server.url],
        cwd=REPOSITORY,
        env=unmeasured(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_webhooks_post_says_what_its_alerts_have_in_common(listener, receive) -> None:
    receiver = receive(Webhook, f"{listener.url}/hook", options={"external_url": "http://node7:19400"})
    notes = {"summary": "hot", "runbook_url": "r"}
    receiver.accept_notices(
        [
            make_notice("GpuHot", 1000.5, 1010.25, gpu="0", node="n7", annotations={**notes, "summary": "cold"}),
            make_notice("GpuHot", 1000.0, gpu="1", node="n7", empty="", annotations=notes),
        ],
        0.0,
    )
    wait_until(lambda: receiver.counts.sent == 2)
    (post,) = listener.posts
    assert post.path == "/hook"
    first, second = post.json.pop("alerts")
    assert post.json == {
        "receiver": "coldplate",
        "status": "firing",
        "groupLabels": {},
        "version": "4",
        "groupKey": "{}:{}",
        "commonLabels": {"alertname": "GpuHot", "node": "n7"},
        "commonAnnotations": {"runbook_url": "r"},
        "externalURL": "http://node7:19400",
        "truncatedAlerts": 0,
    }
    assert (first["status"], first["startsAt"], first["endsAt"]) == (
        "resolved",
        "1970-01-01T00:16:40.500Z",
        "1970-01-01T00:16:50.250Z",
    )
    assert second["labels"] == {"alertname": "GpuHot", "gpu": "1", "node": "n7"}
    assert (second["status"], second["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert first["generatorURL"] == "http://node7:19400"
    assert [rfc3339(wall)[17:] for wall in (1.2345, 1.9996)] == ["01.234Z", "02.000Z"]  # whole milliseconds
