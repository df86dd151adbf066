"""Addresses and credentials: what could not work is refused, and nothing secret reaches log or page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from agent.lib.http_target import MASK, HttpTarget, masked, shown_url
from alerts.exposition import Exposition
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.webhook import Webhook
from tests.notify.conftest import clock, make_notice
from tests.waiting import wait_until

BAD = [
    ({"url": "ftp://host"}, "give http://HOST:PORT or https://"),
    ({"url": "host:9093"}, "give http://HOST:PORT or https://"),
    ({"url": "http://"}, "give http://HOST:PORT or https://"),
    ({"url": ""}, "give http://HOST:PORT or https://"),
    ({"url": "http://host:port"}, "give http://HOST:PORT"),
    ({"url": "http://host:99999"}, "give http://HOST:PORT"),
    ({"url": "http://host:0"}, "give http://HOST:PORT"),
    ({"url": "http://[::1"}, "give http://HOST:PORT"),
    ({"url": "http://hösts"}, "write anything else as %XX"),
    ({"url": "http://host/a b"}, "write anything else as %XX"),
    ({"url": "http://host/\r\nX: y"}, "write anything else as %XX"),
    ({"url": "https://me:hush@host"}, "use username and password_file"),
    ({"url": "https://me:hush@host:x"}, "use username and password_file"),
    ({"url": "https://host/?key=hush"}, "must not contain ? or #; a secret belongs in bearer_token_file"),
    ({"url": "https://host/#hush"}, "must not contain ? or #"),
    ({"url": "https://host", "username": "me"}, "give both or neither"),
    ({"url": "https://host", "password_file": "p"}, "give both or neither"),
    ({"url": "https://host", "username": "me", "password_file": "p", "bearer_token_file": "t"}, "give either"),
    ({"url": "http://host", "username": "me", "password_file": "p"}, "in clear text; use https"),
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


@pytest.mark.parametrize("url", ["http://127.0.0.1", "http://localhost:9093/x", "http://[::1]:1", "https://host"])
def test_credentials_may_go_unencrypted_to_this_machine_only(url: str) -> None:
    assert HttpTarget(url, bearer_token_file="t").url == url
    assert HttpTarget(url, username="me", password_file="p").url == url


def test_an_address_has_its_schemes_port_and_keeps_its_path() -> None:
    plain, secure = HttpTarget("http://host/a/b/"), HttpTarget("https://[fe80::1]:8443")
    assert (plain.host, plain.port, plain.tls, plain.path) == ("host", 80, False, "/a/b")
    assert (secure.host, secure.port, secure.tls, secure.path) == ("fe80::1", 8443, True, "")
    assert HttpTarget("https://host").port == 443


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", "tök".encode()])
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="token: "):
        HttpTarget("https://host", bearer_token_file=str(file)).authorization()


@pytest.mark.parametrize("path", ["/api/v2/alerts", "/am/api/v2/alerts/", "/api/v1/alerts"])
def test_alertmanagers_address_goes_without_the_path_of_its_api(path: str) -> None:
    with pytest.raises(ValueError, match=r"without /api/"):
        Alertmanager(HttpTarget(f"http://host{path}"), clock)


def test_a_generator_url_that_alertmanager_would_refuse_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        Alertmanager(HttpTarget("http://host"), clock, external_url="node7")


PATH = "/services/T0FAKE/B0FAKE/s3cr3t-of-the-path"
PASSWORD = "s3cr3t-password"
TOKEN = "s3cr3t-token"


def repeats(status: int):
    """A server that tells everything it got, as some do in their pages of errors."""

    def answer(post) -> tuple[int, bytes]:
        return status, f"cannot POST {post.path} with {dict(post.headers)}".encode()

    return answer


@pytest.mark.parametrize("status", [400, 401, 404, 500, 302])
@pytest.mark.parametrize("login", ["none", "basic", "bearer"])
@pytest.mark.parametrize("kind", [Webhook, Alertmanager])
def test_nothing_secret_reaches_log_or_page(listener, receive, caplog, tmp_path, kind, login: str, status: int) -> None:
    options = {}
    if login != "none":
        secret = tmp_path / "secret"
        secret.write_text(PASSWORD if login == "basic" else TOKEN)
        options = (
            {"username": "me", "password_file": str(secret)} if login == "basic" else {"bearer_token_file": str(secret)}
        )
    listener.answer = repeats(status)
    listener.headers["Location"] = f"https://elsewhere{PATH}"
    receiver = receive(kind, listener.url + PATH, **options)
    receiver.put([make_notice("A")], 0.0)
    wait_until(lambda: receiver.counts.failed >= 1 and bool(caplog.records))
    told = "".join(f"{record.getMessage()} {getattr(record, 'facts', '')}" for record in caplog.records)
    page = repr(Exposition(()).readings((), cast("Any", _NoWindows()), [receiver]))
    for secret_text in (PASSWORD, TOKEN, "s3cr3t", "B0FAKE", base64.b64encode(f"me:{PASSWORD}".encode()).decode()):
        assert secret_text not in told
        assert secret_text not in page
    assert "127.0.0.1" in told and "127.0.0.1" in page


class _NoWindows:
    bytes = dropped = 0

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("host", ["hooks.example", "t", "http"])
def test_two_webhooks_of_one_host_are_distinguished(host: str) -> None:
    urls = [shown_url(f"https://{host}/{path}") for path in ("a/secret-1", "a/secret-2", "")]
    assert len(set(urls)) == 3
    assert all(url.startswith(f"https://{host}") and "secret" not in url for url in urls)
    assert urls[2] == f"https://{host}"


@pytest.mark.parametrize(
    "url",
    [f"https://me:{PASSWORD}@host{PATH}", f"ftp://host{PATH}", f"http://[::1{PATH}", PATH, f"host{PATH}",
     f"http://host{PATH} x"],
)  # fmt: skip
def test_a_url_that_is_refused_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="url") as refused:
        HttpTarget(url)
    assert "s3cr3t" not in str(refused.value)


def test_what_is_too_short_to_be_a_secret_spoils_no_message() -> None:
    from agent.lib.http_target import secrets_of

    assert secrets_of("/a/b/hook", {}) == ("/a/b/hook",)
    assert masked("POST /a/b/hook: 404 on hook", secrets_of("/a/b/hook", {})) == f"POST {MASK}: 404 on hook"
