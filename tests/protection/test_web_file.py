"""What a web configuration file may say: what promtool refuses is refused, and what it takes is, but for a list."""

import logging
import os
import ssl
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from agent.lib.threads import Threads
from exporters.protection import web_gate
from exporters.protection.tls import make_context, names_of
from exporters.protection.web_file import CIPHERS, CURVES, WebFile, WebFileError, read_web_file
from exporters.protection.web_gate import RETRY_PERIODS, WebTerms, WebWatch, load_terms
from tests.protection.conftest import HASHES, in_memory, trusting, write_leaf
from tests.servers import need_recent

HASH = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
PAIR = "cert_file: server.pem, key_file: server.key"

TAKEN = [
    "",
    "tls_server_config:",
    "basic_auth_users:",
    f"tls_server_config: {{{PAIR}}}",
    f"tls_server_config: {{{PAIR}, client_auth_type: NoClientCert}}",
    f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert}}",
    f"tls_server_config: {{{PAIR}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem}}",
    (
        f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem,"
        " client_allowed_sans: [scraper.example, 127.0.0.1]}"
    ),
    f"tls_server_config: {{{PAIR}, min_version: TLS13}}",
    f"tls_server_config: {{{PAIR}, max_version: TLS12}}",
    f"tls_server_config: {{{PAIR}, cipher_suites: [{', '.join(CIPHERS)}]}}",
    f"tls_server_config: {{{PAIR}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}",
    f"tls_server_config: {{{PAIR}, prefer_server_cipher_suites: no}}",
    *(f"tls_server_config: {{{PAIR}, curve_preferences: [{each}]}}" for each in CURVES if each != "X25519"),
    f"basic_auth_users: {{a: {HASH}, 17: {HASH}, '': {HASH}}}",
    "http_server_config: {http2: yes}",
    "http_server_config: {http2: off, headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff}}",
    "http_server_config: {headers: {Strict-Transport-Security: max-age=1, X-XSS-Protection: 0}}",
    "rate_limit: {interval: 1m30.5s, burst: 3}",
    "rate_limit: {interval: 1000000000, burst: 3}",
    "rate_limit: {interval: 0}",
]
X25519 = f"tls_server_config: {{{PAIR}, curve_preferences: [X25519]}}"
"""Not every OpenSSL that Python is built with sets it."""
REFUSED = {
    "colour: red": "colour: unknown key",
    "[a]": "must be a mapping",
    "tls_server_config: {cert_files: server.pem}": "did you mean 'cert_file'?",
    "tls_server_config: {cert_file: server.pem}": "key_file: is missing",
    "tls_server_config: {key_file: server.key}": "cert_file: is missing",
    "tls_server_config: {cert_file: none.pem, key_file: server.key}": "none.pem: cannot be read",
    "tls_server_config: {cert_file: server.pem, key_file: client.key}": "the key is not that of the certificate",
    "tls_server_config: {cert_file: server.pem, key_file: server.pem}": "the key is not in PEM",
    "tls_server_config: {cert_file: server.key, key_file: server.key}": "the certificate is not in PEM",
    f"tls_server_config: {{{PAIR}, client_ca_file: ca.pem}}": "client_auth_type: is missing",
    f"tls_server_config: {{{PAIR}, client_auth_type: Sometimes}}": "'Sometimes' is unknown",
    f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: no.pem}}": "no.pem",
    f"tls_server_config: {{{PAIR}, min_version: 1.2}}": "use one of TLS10",
    f"tls_server_config: {{{PAIR}, cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]}}": "is unknown",
    f"tls_server_config: {{{PAIR}, cipher_suites: TLS_AES_128_GCM_SHA256}}": "must be a list",
    f"tls_server_config: {{{PAIR}, curve_preferences: [P-256]}}": "use one of CurveP256",
    "basic_auth_users: {a: secret}": "htpasswd",
    f"basic_auth_users: {{a: {HASH}, a: {HASH}}}": "duplicate key",
    f"basic_auth_users: {{a: [{HASH}]}}": "must be text",
    "http_server_config: {http2: 'true'}": "must be true or false",
    "http_server_config: {headers: {Server: none}}": "this header cannot be set",
    "http_server_config: {headers: {x-frame-options: deny}}": "this header cannot be set",
    "http_server_config: {headers: {X-Frame-Options: DENY}}": "use deny or sameorigin",
    "rate_limit: {interval: 1x, burst: 1}": "is not a duration",
    "rate_limit: {interval: 1s, burst: many}": "must be a whole number",
    "a: [": "is not valid YAML",
}
STRICTER = {
    "tls_server_config: {min_version: TLS13}": "cert_file: is missing",
    f"tls_server_config: {{{PAIR}, cert: x}}": "remove one of them",
    f"tls_server_config: {{{PAIR}, client_allowed_sans: [a]}}": "a client has no name",
    f"tls_server_config: {{{PAIR}, client_auth_type: RequireAnyClientCert}}": "a certificate of any issuer",
    f"tls_server_config: {{{PAIR}, client_auth_type: RequestClientCert}}": "a certificate of any issuer",
    f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: server.key}}":
        "no certificate",
    f"tls_server_config: {{{PAIR}, min_version: TLS10}}": "RFC 8996",
    f"tls_server_config: {{{PAIR}, min_version: TLS13, max_version: TLS12}}": "no client could connect",
    f"tls_server_config: {{{PAIR}, max_version: TLS12, cipher_suites: [TLS_AES_128_GCM_SHA256]}}": "no client",
    f"basic_auth_users: {{a: {HASH.replace('$10$', '$31$')}}}": "from 04 to 15",
    f"basic_auth_users: {{'a:b': {HASH}}}": "can never log in",
    f"basic_auth_users: {{a: {HASH}xx}}": "is not a bcrypt hash",
    'http_server_config: {headers: {Strict-Transport-Security: "a\\nb: c"}}': "one line",
    "rate_limit: {interval: 1s}": "would refuse every request",
    "rate_limit: {interval: -1s}": "is negative",
}  # fmt: skip
"""What promtool takes although it would have no effect, or not the one that it seems to have."""


def load(folder: Path, text: str) -> WebFile:
    """Beside the certificates."""
    file = folder / "web.yml"
    file.write_text(text)
    found = read_web_file(file)
    if found.tls is not None:
        make_context(found.tls, file)
    return found


@pytest.mark.parametrize("text", TAKEN)
def test_it_is_taken(certificates, text: str) -> None:
    assert HASH[:20] not in repr(load(certificates.folder, text))


@pytest.mark.parametrize(("text", "problem"), [*REFUSED.items(), *STRICTER.items()])
def test_it_is_refused_with_its_place_and_a_remedy(certificates, text: str, problem: str) -> None:
    with pytest.raises(WebFileError) as refusal:
        load(certificates.folder, text)
    told = str(refusal.value)
    assert told.startswith(str(certificates.folder / "web.yml"))
    assert problem in told
    assert "\n" not in told
    assert HASH[:20] not in told
    assert "secret" not in told


def test_curves_that_openssl_does_not_set_or_python_does_not_take_are_refused(certificates, monkeypatch) -> None:
    several = f"tls_server_config: {{{PAIR}, curve_preferences: [CurveP256, X25519]}}"
    refusal = pytest.raises(WebFileError, match="takes one curve only")
    with nullcontext() if hasattr(ssl.SSLContext, "set_groups") else refusal:
        load(certificates.folder, several)

    def refuse(_: object, name: str) -> None:
        raise ssl.SSLError("unsupported")

    monkeypatch.setattr(ssl.SSLContext, "set_ecdh_curve", refuse)
    with pytest.raises(WebFileError, match=r"curve_preferences: .* does not support X25519"):
        load(certificates.folder, X25519)


@pytest.mark.release  # it needs the promtool of the newest Prometheus
def test_promtool_agrees(certificates, tmp_path: Path) -> None:
    """In few runs of it: each refusal names its file."""
    promtool = need_recent("promtool judges no web configuration here").promtool
    files = {}
    for number, text in enumerate((*TAKEN, X25519, *REFUSED, *STRICTER)):
        files[text] = certificates.folder / f"judged-{number}.yml"
        files[text].write_text(text)
    done = subprocess.run(
        [promtool, "check", "web-config", *map(str, files.values())], capture_output=True, text=True, check=False
    )
    taken = {line.removesuffix(" SUCCESS") for line in (done.stdout + done.stderr).splitlines() if " SUCCESS" in line}
    theirs = {text for text, file in files.items() if str(file) in taken}
    assert {*TAKEN, X25519} - theirs == set()
    assert {*REFUSED} & theirs == {"[a]"} & theirs  # a list at the top is taken by it for nothing at all
    assert len({*STRICTER} & theirs) > 10  # newer ones refuse some of it as well


def test_an_inline_pair_needs_no_file_and_an_encrypted_key_is_refused_at_once(certificates) -> None:
    pem = {name: (certificates.folder / f"server.{name}").read_text() for name in ("pem", "key")}
    lines = ["tls_server_config:"]
    for key, text in (("cert", pem["pem"]), ("key", pem["key"])):
        lines += [f"  {key}: |", *(f"    {line}" for line in text.splitlines())]
    assert "PRIVATE" not in repr(load(certificates.folder, "\n".join(lines) + "\n"))
    private = load_pem_private_key(pem["key"].encode(), None)
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    (certificates.folder / "locked.key").write_bytes(locked)
    with pytest.raises(WebFileError, match="the key is encrypted"):
        load(certificates.folder, "tls_server_config: {cert_file: server.pem, key_file: locked.key}")


def test_names_are_compared_as_go_writes_them() -> None:
    told = {"subjectAltName": (("DNS", "a.example"), ("IP Address", "FE80:0:0:0:0:0:0:1\n"), ("DirName", "x"))}
    assert names_of(told) == {"a.example", "fe80::1"}
    assert names_of(None) == set()


# Files that change under a running server: what is noticed, what is taken, and what is said.
LIVE_PAIR = "tls_server_config: {cert_file: live/tls.crt, key_file: live/tls.key}\n"


def serial(watch: WebWatch) -> int:
    """Of the certificate that a client is shown now."""
    _, client = in_memory(watch.gate.terms.context, trusting())
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
    (tmp_path / "web.yml").write_text(LIVE_PAIR)

    return WebWatch(tmp_path / "web.yml", lambda: 0.0, lambda: 17.0, Threads())


def test_a_swapped_link_is_noticed_and_taken_when_it_is_still(watch: WebWatch, issue: Callable[[str], None]) -> None:
    before = serial(watch)
    for _ in range(3 * RETRY_PERIODS):
        watch.check_files()
    assert watch.gate.edition == 0, "nothing is read again while nothing changes"
    issue("v2")
    watch.check_files()
    assert serial(watch) == before
    watch.check_files()
    assert serial(watch) != before
    assert watch.gate.edition == 1


def test_a_key_that_is_written_after_its_certificate_is_waited_for(
    watch: WebWatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, certificates
) -> None:
    new = write_leaf(tmp_path, "new", certificates.authority.issue_cert("localhost"))
    (tmp_path / "live" / "tls.crt").write_bytes(new[0].read_bytes())
    watch.check_files()
    (tmp_path / "live" / "tls.key").write_bytes(new[1].read_bytes())
    for _ in range(3):
        watch.check_files()
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
        watch.check_files()
    assert watch.gate.terms is before
    assert serial(watch) == shown
    assert watch.last.good is False
    assert caplog.text.count("keeping the current one") == 1
    assert str(tmp_path) in caplog.text
    (tmp_path / name).write_text(good)
    watch.check_files()
    watch.check_files()
    assert watch.last.good is True
    assert watch.gate.edition == 1


def test_a_reload_says_what_protects_the_port_now(watch: WebWatch, tmp_path: Path, caplog) -> None:
    """An emptied file is as valid as any, and leaves the port without protection."""
    caplog.set_level(logging.INFO)
    for text in (f"{LIVE_PAIR}\nbasic_auth_users: {{u: $2y$10${'a' * 53}}}", ""):
        (tmp_path / "web.yml").write_text(text)
        watch.check_files()
        watch.check_files()
    assert [record.facts for record in caplog.records] == [{"tls": "on", "users": 1}, {"tls": "off", "users": 0}]


def test_a_reload_that_is_refused_shows_as_well_and_is_said_once(watch: WebWatch, tmp_path: Path, caplog) -> None:
    """A reload reads the file at once, before the watch has seen that it changed."""
    (tmp_path / "web.yml").write_text("tls: 1")
    with pytest.raises(WebFileError):
        watch.load()
    assert watch.last.good is False
    for _ in range(RETRY_PERIODS):
        watch.check_files()
    assert caplog.text.count("keeping the current one") == 1
    (tmp_path / "web.yml").write_text(LIVE_PAIR)
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
        watch.check_files()
    assert watch.last.expires == issued.timestamp()
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{a: {HASHES['scraper']}}}\n")
    for _ in range(2):
        watch.check_files()
    assert watch.last.expires is None


def test_a_file_that_may_be_read_again_is(watch: WebWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the files changes then: the system denied what it now grants."""
    real = load_terms

    def denied(path: Path) -> WebTerms:
        raise WebFileError(f"{path}: cannot be read: Permission denied")

    monkeypatch.setattr(web_gate, "load_terms", denied)
    os.utime(tmp_path / "web.yml")
    watch.check_files()
    watch.check_files()
    assert watch.last.good is False
    monkeypatch.setattr(web_gate, "load_terms", real)
    for _ in range(RETRY_PERIODS):
        watch.check_files()
    assert watch.last.good is True


def test_sessions_that_pile_up_are_dropped(watch: WebWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of TLS 1.2 without tickets have the server keep a session each."""
    monkeypatch.setattr(web_gate, "MOST_SESSIONS", 2)
    context, client = watch.gate.terms.context, trusting()
    client.maximum_version, client.options = ssl.TLSVersion.TLSv1_2, client.options | ssl.OP_NO_TICKET
    kept = [in_memory(context, client) for _ in range(3)]
    assert context.session_stats()["number"] == len(kept)
    watch.check_files()
    other = watch.gate.terms.context
    assert other.session_stats()["number"] == 0
    assert watch.gate.edition == 0  # nobody is disconnected for it
