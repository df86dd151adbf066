"""A webhook's path, a password and a token are seen by the receiver alone, even where it repeats them."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from agent.lib.http_target import MASK, HttpTarget, masked, shown_url
from alerts.exposition import Exposition
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.webhook import Webhook
from tests.notify.conftest import make_notice
from tests.waiting import wait_until

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
