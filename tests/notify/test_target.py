"""An address is refused where it could not work or would give something away, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.lib.http_target import HttpTarget
from alerts.notify.alertmanager import Alertmanager
from tests.notify.conftest import clock

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
