"""Addresses and credentials: what could not work is refused, and nothing secret reaches log or page."""

import base64
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lib.http_target import MASK, HttpTarget, masked, secrets_of, shown_url
from agent.model import Instant
from alerts.exposition import Exposition
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import MOST_SECONDS, TOLERANCE_SECONDS, ServerClock
from alerts.notify.webhook import Webhook
from tests.notify.conftest import make_alert, make_notice, seconds
from tests.waiting import wait_until

BAD = [
    ({"url": "ftp://host/hush"}, "give http://HOST:PORT or https://"),
    ({"url": "host:9093/hush"}, "give http://HOST:PORT or https://"),
    ({"url": ""}, "give http://HOST:PORT or https://"),
    ({"url": "http://host:port"}, "give http://HOST:PORT"),
    ({"url": "http://host:99999"}, "give http://HOST:PORT"),
    ({"url": "http://host:0"}, "give http://HOST:PORT"),
    ({"url": "http://[::1/hush"}, "give http://HOST:PORT"),
    ({"url": "http://hösts"}, "write anything else as %XX"),
    ({"url": "http://host/hush b"}, "write anything else as %XX"),
    ({"url": "http://host/\r\nX: y"}, "write anything else as %XX"),
    ({"url": "https://me:hush@host"}, "use username and password_file"),
    ({"url": "https://host/?key=hush"}, "must not contain ? or #; a secret belongs in bearer_token_file"),
    ({"url": "https://host/#hush"}, "must not contain ? or #"),
    ({"url": "https://host", "password_file": "p"}, "give both or neither"),
    ({"url": "https://host", "username": "me", "password_file": "p", "bearer_token_file": "t"}, "give either"),
    ({"url": "http://host", "bearer_token_file": "t"}, "in clear text; use https"),
    ({"url": "http://host", "ca_file": "c"}, "ca_file needs https"),
    ({"url": "http://host", "timeout": 0.0}, "seconds above 0"),
    ({"url": "http://host", "timeout": float("nan")}, "seconds above 0"),
    ({"url": "http://host", "timeout": float("inf")}, "seconds above 0"),
]


@pytest.mark.parametrize(("options", "remedy"), BAD, ids=str)
def test_what_could_not_work_is_refused(options: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValueError) as told:
        HttpTarget(**options)
    assert remedy in str(told.value)
    assert "hush" not in str(told.value)


def test_an_address_has_port_and_path_and_sends_plain_credentials_to_this_host_only() -> None:
    plain, secure = HttpTarget("http://host/a/b/"), HttpTarget("https://[fe80::1]:8443")
    assert (plain.host, plain.port, plain.tls, plain.path) == ("host", 80, False, "/a/b")
    assert (secure.host, secure.port, secure.tls, secure.path) == ("fe80::1", 8443, True, "")
    assert HttpTarget("https://host").port == 443
    for url in ("http://127.0.0.1", "http://localhost:9093/x", "http://[::1]:1", "https://host"):
        assert HttpTarget(url, bearer_token_file="t").url == url
        assert HttpTarget(url, username="me", password_file="p").url == url


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", "tök".encode()])
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="token: "):
        HttpTarget("https://host", bearer_token_file=str(file)).authorization()


def test_addresses_that_alertmanager_would_refuse_are_refused_at_once(receive: Any) -> None:
    for path in ("/api/v2/alerts", "/am/api/v2/alerts/", "/api/v1/alerts"):
        with pytest.raises(ValueError, match=r"without /api/"):
            receive(Alertmanager, f"http://host{path}")
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        receive(Alertmanager, "http://host", options={"external_url": "node7"})


PATH = "/services/T0FAKE/B0FAKE/s3cr3t-of-the-path"
PASSWORD = "s3cr3t-password"
TOKEN = "s3cr3t-token"


@pytest.mark.parametrize("status", [400, 401, 404, 500, 302])
@pytest.mark.parametrize("login", ["none", "basic", "bearer"])
@pytest.mark.parametrize("kind", [Webhook, Alertmanager])
def test_nothing_secret_reaches_log_or_page(listener, receive, caplog, tmp_path, kind, login: str, status: int) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "token").write_text(TOKEN)
    options = {
        "none": {}, "basic": {"username": "me", "password_file": str(tmp_path / "password")},
        "bearer": {"bearer_token_file": str(tmp_path / "token")},
    }[login]  # fmt: skip
    # Some servers show all that they got in their pages of errors.
    listener.answer = lambda post: (status, f"cannot POST {post.path} with {dict(post.headers)}".encode())
    listener.headers["Location"] = f"https://elsewhere{PATH}"
    receiver = receive(kind, listener.url + PATH, **options)
    receiver.accept_notices([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.failed >= 1 and bool(caplog.records))
    told = "".join(f"{record.getMessage()} {getattr(record, 'facts', '')}" for record in caplog.records)
    page = repr(Exposition(()).frame((), cast("Any", _NoWindows()), [receiver]).layout.series)
    for secret_text in (PASSWORD, TOKEN, "s3cr3t", "B0FAKE", base64.b64encode(f"me:{PASSWORD}".encode()).decode()):
        assert secret_text not in told
        assert secret_text not in page
    assert "127.0.0.1" in told and "127.0.0.1" in page


class _NoWindows:
    bytes = dropped = 0

    def __len__(self) -> int:
        return 0


def test_webhooks_of_one_host_are_distinguished_and_short_secrets_spoil_no_message() -> None:
    for host in ("hooks.example", "t", "http"):
        urls = [shown_url(f"https://{host}/{path}") for path in ("a/secret-1", "a/secret-2", "")]
        assert len(set(urls)) == 3
        assert all(url.startswith(f"https://{host}") and "secret" not in url for url in urls)
        assert urls[2] == f"https://{host}"
    assert secrets_of("/a/b/hook", {}) == ("/a/b/hook",)
    assert masked("POST /a/b/hook: 404 on hook", secrets_of("/a/b/hook", {})) == f"POST {MASK}: 404 on hook"


# A node whose clock is wrong tells alerts by the receiver's clock, and ends nobody else's.
OFFS = (-600.0, 600.0)


@given(st.floats(-MOST_SECONDS, MOST_SECONDS) | st.floats(-1e8, 1e8), st.floats(0, 5))
def test_the_difference_is_known_to_a_second_and_small_ones_are_left_alone(off: float, took: float) -> None:
    clock = ServerClock()
    here = 1.8e9
    sent, received = Instant(5.0, here), Instant(5.0 + took, here + took)
    wrong = clock.apply_date(formatdate(here + off + took / 2, usegmt=True), sent, received)
    if abs(off) <= TOLERANCE_SECONDS - 1 or abs(off) >= MOST_SECONDS + 1:
        assert (clock.ahead, wrong) == (0.0, False)
    elif TOLERANCE_SECONDS + 1 <= abs(off) <= MOST_SECONDS - 1:
        assert clock.ahead == pytest.approx(off, abs=0.51)
        assert wrong
        assert not clock.apply_date(formatdate(here + off + took / 2, usegmt=True), sent, received)


@pytest.mark.parametrize(
    "date",
    ["", "yesterday", "Sun, 99 Nov 2026 07:00:00 GMT", "\x00", "0" * 5000, "Fri, 01 Jan 0010 00:20:00 GMT",
     "Thu, 01 Jan 1970 00:20:00 -0000", "Thu, 01 Jan 1970 00:20:00 +0000", "Thu, 1 Jan 70 00:20:00 GMT",
     "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 01:20:00 GMT"],
)  # fmt: skip
def test_what_is_not_a_date_changes_nothing(date: str) -> None:
    clock = ServerClock()
    clock.ahead = -600.0
    assert not clock.apply_date(date, Instant(0.0, 0.0), Instant(0.0, 0.0))
    assert clock.ahead == -600.0


@pytest.mark.parametrize("off", OFFS)
def test_an_alert_of_many_nodes_outlives_what_one_with_a_wrong_clock_sends(
    alertmanager: Any, receive: Any, off: float
) -> None:
    real = alertmanager()
    good, wrong = receive(Alertmanager, real.url), receive(Alertmanager, real.url, off=off)
    for receiver, now in ((good, time.time()), (wrong, time.time() + off)):
        alert = make_alert("RackPowerUnknown", fired_at=now - 5, rack="r12")
        Dispatcher([receiver]).consider("g", [alert], now, 1.0)
        wait_until(lambda receiver=receiver: receiver.counts.sent == 1)
    assert [each["labels"] for each in real.query()] == [{"alertname": "RackPowerUnknown", "rack": "r12"}]

    now = time.time() + off
    dispatcher = Dispatcher([wrong])
    for sent, resolved_at in ((2, None), (3, now - 1)):
        own = make_alert("RackAgentsDisagree", fired_at=now - 5, resolved_at=resolved_at)
        dispatcher.consider("g", [own], now, 1.0)
        wait_until(lambda sent=sent: wrong.counts.sent == sent)
        shown = {each["labels"]["alertname"] for each in real.query()}
        assert ("RackAgentsDisagree" in shown) is (resolved_at is None)


@pytest.mark.parametrize("off", OFFS)
def test_what_was_sent_with_wrong_times_is_sent_again_at_once(listener: Any, receive: Any, off: float) -> None:
    receiver = receive(Alertmanager, listener.url, off=off)
    now = time.time() + off
    Dispatcher([receiver]).consider("g", [make_alert("A", fired_at=now)], now, 1.0)
    wait_until(lambda: receiver.counts.sent == 1)
    assert [post.names for post in listener.posts] == [["A"], ["A"]]
    ends = [seconds(post.alerts[0]["endsAt"]) - time.time() for post in listener.posts]
    assert ends == [pytest.approx(240 + off, abs=3), pytest.approx(240, abs=3)]


def test_a_clock_difference_near_the_tolerance_is_steady_and_a_huge_one_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, here = ServerClock(), 1.8e9

    def hear(off: float) -> bool:
        at = Instant(0.0, here + 0.5)
        return clock.apply_date(formatdate(here + off, usegmt=True), at, at)

    changes = [hear(off) for off in (11.0, 10.0, 11.0, 9.0, 10.0, 11.0, 7.0, 8.0, 10.0)]
    assert changes == [True, *[False] * 5, True, False, False]
    assert not caplog.records
    for off in (-4000, -4000, 0, -4000):
        hear(off)
        assert clock.ahead == 0.0
    assert [record.getMessage()[:52] for record in caplog.records] == [
        "the receiver's Date header is too far from our clock"
    ] * 2


def test_only_an_answer_that_delivers_says_what_time_it_is(serve: Any, receive: Any) -> None:
    date = formatdate(time.time() - 600, usegmt=True)

    def treat(held: Any, number: int) -> None:
        held.sendall(f"HTTP/1.1 503 Busy\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode())

    receiver = receive(Alertmanager, serve(treat).url)
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
