"""Files that change under a running server: what is noticed, what is taken, and what is said."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from exporters.protection import web_watch
from exporters.protection.passwords import PasswordChecks
from exporters.protection.web_file import WebFileError
from exporters.protection.web_gate import WebGate, WebTerms, load_terms
from exporters.protection.web_watch import RETRY_PERIODS, WebWatch
from tests.protection.conftest import HASHES, write_leaf

PAIR = "tls_server_config: {cert_file: live/tls.crt, key_file: live/tls.key}\n"


def serial(watch: WebWatch) -> int:
    """Of the certificate that a client is shown now."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = watch.gate.terms.context
    server = context.wrap_bio(ours[0], ours[1], server_side=True)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    client = trust.wrap_bio(incoming, outgoing)
    for _ in range(3):
        for side, into, out in ((client, ours[0], outgoing), (server, incoming, ours[1])):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            into.write(out.read())
    return hash(client.getpeercert(binary_form=True))


@pytest.fixture
def issue(certificates, tmp_path: Path) -> Callable[[str], None]:
    """Puts a new certificate into a version's folder, and has the link lead there, as Kubernetes swaps them."""

    def issue(version: str) -> None:
        folder = tmp_path / version
        folder.mkdir()
        pem, key = write_leaf(folder, "tls", certificates.authority.issue_cert("localhost"))
        pem.rename(folder / "tls.crt")
        assert key.name == "tls.key"
        link = tmp_path / "next"
        link.symlink_to(version)
        link.replace(tmp_path / "live")

    return issue


@pytest.fixture
def watch(issue: Callable[[str], None], tmp_path: Path) -> WebWatch:
    issue("v1")
    (tmp_path / "web.yml").write_text(PAIR)
    return begin(tmp_path / "web.yml")


def begin(path: Path) -> WebWatch:
    def gate(terms: WebTerms) -> WebGate:
        return WebGate(terms, PasswordChecks(lambda: 0.0), lambda: 0.0)

    return WebWatch(path, gate, lambda: 17.0)


def test_nothing_is_read_again_while_nothing_changes(watch: WebWatch) -> None:
    for _ in range(3 * RETRY_PERIODS):
        watch.look()
    assert watch.gate.edition == 0


def test_a_swapped_link_is_noticed_and_taken_when_it_is_still(watch: WebWatch, issue: Callable[[str], None]) -> None:
    before = serial(watch)
    issue("v2")
    watch.look()
    assert serial(watch) == before
    watch.look()
    assert serial(watch) != before
    assert watch.gate.edition == 1


def test_a_key_that_is_written_after_its_certificate_is_waited_for(
    watch: WebWatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, certificates
) -> None:
    new = write_leaf(tmp_path, "new", certificates.authority.issue_cert("localhost"))
    (tmp_path / "live" / "tls.crt").write_bytes(new[0].read_bytes())
    watch.look()
    (tmp_path / "live" / "tls.key").write_bytes(new[1].read_bytes())
    for _ in range(3):
        watch.look()
    assert watch.gate.edition == 1
    assert "not reloaded" not in caplog.text


@pytest.mark.parametrize("damage", ["web.yml: tls: 1", "live/tls.crt: x", "live/tls.key: x", "live/tls.key", "web.yml"])
def test_what_cannot_be_used_is_said_once_and_the_former_terms_stay(
    watch: WebWatch, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, shown = watch.gate.terms, serial(watch)
    name, _, text = damage.partition(": ")
    good = (tmp_path / name).read_text()
    (tmp_path / name).unlink()
    if text:
        (tmp_path / name).write_text(text)
    for _ in range(3 * RETRY_PERIODS):
        watch.look()
    assert watch.gate.terms is before
    assert serial(watch) == shown
    assert watch.last.good is False
    assert caplog.text.count("keeping the current one") == 1
    assert str(tmp_path) in caplog.text
    (tmp_path / name).write_text(good)
    watch.look()
    watch.look()
    assert watch.last.good is True
    assert watch.gate.edition == 1


def test_a_reload_that_is_refused_shows_as_well_and_is_said_once(watch: WebWatch, tmp_path: Path, caplog) -> None:
    """A reload reads the file at once, before the watch has seen that it changed."""
    (tmp_path / "web.yml").write_text("tls: 1")
    with pytest.raises(WebFileError):
        watch.load()
    assert watch.last.good is False
    for _ in range(RETRY_PERIODS):
        watch.look()
    assert caplog.text.count("keeping the current one") == 1
    (tmp_path / "web.yml").write_text(PAIR)
    watch.enforce(watch.load())
    assert watch.last.good is True


def test_it_is_known_until_when_the_certificate_is_valid(
    certificates, watch: WebWatch, tmp_path: Path, issue: Callable[[str], None]
) -> None:
    issued = datetime(2030, 1, 1, tzinfo=timezone.utc)
    leaf = certificates.authority.issue_cert("localhost", not_after=issued)
    pem, _ = write_leaf(tmp_path / "v1", "other", leaf)
    (tmp_path / "v1" / "other.key").replace(tmp_path / "v1" / "tls.key")
    pem.replace(tmp_path / "v1" / "tls.crt")
    for _ in range(2):
        watch.look()
    assert watch.last.expires == issued.timestamp()
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{a: {HASHES['scraper']}}}\n")
    for _ in range(2):
        watch.look()
    assert watch.last.expires is None


def test_a_file_that_may_be_read_again_is(watch: WebWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the files changes then: the system denied what it now grants."""
    real = load_terms

    def denied(path: Path) -> WebTerms:
        raise WebFileError(f"{path}: cannot be read: Permission denied")

    monkeypatch.setattr(web_watch, "load_terms", denied)
    os.utime(tmp_path / "web.yml")
    watch.look()
    watch.look()
    assert watch.last.good is False
    monkeypatch.setattr(web_watch, "load_terms", real)
    for _ in range(RETRY_PERIODS):
        watch.look()
    assert watch.last.good is True


def test_no_hash_and_no_key_is_said(watch: WebWatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{a: {HASHES['scraper']}, b: {HASHES['scraper']}x}}\n")
    watch.look()
    watch.look()
    assert "b: is not a bcrypt hash" in caplog.text
    assert HASHES["scraper"][7:20] not in caplog.text
    assert HASHES["scraper"][7:20] not in repr(watch.gate.terms)


def test_sessions_that_pile_up_are_dropped(watch: WebWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of TLS 1.2 without tickets have the server keep a session each."""
    monkeypatch.setattr(web_watch, "MOST_SESSIONS", 2)
    context = watch.gate.terms.context
    options = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    options.check_hostname, options.verify_mode = False, ssl.CERT_NONE
    options.maximum_version, options.options = ssl.TLSVersion.TLSv1_2, options.options | ssl.OP_NO_TICKET
    kept = []
    for _ in range(3):
        pairs = [ssl.MemoryBIO() for _ in range(4)]
        client = options.wrap_bio(pairs[0], pairs[1])
        server = context.wrap_bio(pairs[2], pairs[3], server_side=True)
        kept.append((client, server))
        for _ in range(3):
            for side, out, into in ((client, pairs[1], pairs[2]), (server, pairs[3], pairs[0])):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                into.write(out.read())
    assert context.session_stats()["number"] == 3
    watch.look()
    other = watch.gate.terms.context
    assert other.session_stats()["number"] == 0
    assert watch.gate.edition == 0  # nobody is disconnected for it
