"""A real daemon, asked by curl and scraped by a real Prometheus: who is let in, and that a change needs no restart."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporters.endpoints import ENDPOINTS
from tests.daemon.conftest import RunningDaemon
from tests.protection.conftest import HASHES
from tests.servers import need, need_recent, prometheus, query

PAIR = "cert_file: server.pem, key_file: server.key"
LOGIN = f"basic_auth_users: {{scraper: {HASHES['scraper']}}}\n"
OPEN = f"tls_server_config: {{{PAIR}}}\n{LOGIN}"
MUTUAL = (
    f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem,"
    f" client_allowed_sans: [scraper.example]}}\n{LOGIN}"
)


@pytest.fixture(scope="module")
def daemon(certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    (certificates.folder / "web.yml").write_text(OPEN)
    (folder / "coldplate.yaml").write_text(
        f"web: {{config_file: {certificates.folder / 'web.yml'}, enable_lifecycle: true}}\nsampling: {{fast: 250ms}}\n"
    )
    arguments = ["--config.file", str(folder / "coldplate.yaml"), "--backend", "none", "--log.level", "debug"]
    running = RunningDaemon(arguments, folder / "log")
    running.await_url()
    yield running
    running.stop()


@pytest.fixture
def curl(certificates, daemon: RunningDaemon) -> Callable[..., str]:
    """Asks with these options; the status, or `refused`."""
    program = need("curl")

    def ask(*options: str, path: str = "/metrics") -> str:
        command = [program, "-s", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", "ca.pem"]
        asked = [*command, *options, daemon.url + path]
        done = subprocess.run(asked, cwd=certificates.folder, capture_output=True, text=True, check=False)
        return "refused" if done.returncode else done.stdout

    return ask


def certificate(name: str) -> list[str]:
    return ["--cert", f"{name}.pem", "--key", f"{name}.key"]


RIGHT, WRONG = ["-u", "scraper:right"], ["-u", "scraper:wrong"]


def enforce(daemon: RunningDaemon, folder: Path, text: str) -> None:
    """Change the file, and wait until the daemon says that it has read it."""
    before = daemon.log.read_text().count("web configuration reloaded")
    (folder / "web.yml").write_text(text)
    daemon.until("a reload", lambda: daemon.log.read_text().count("web configuration reloaded") > before, 20)


def test_every_page_asks_for_the_password(daemon: RunningDaemon, curl: Callable[..., str], certificates) -> None:
    daemon.until("a first sample", lambda: curl(*RIGHT) == "200", 20)
    assert curl() == "401"
    assert curl(*WRONG) == "401"
    assert curl("-u", "nobody:right") == "401"
    everywhere = ["/nothing", *(each.path for each in ENDPOINTS)]
    others = [word for path in everywhere for word in ("-w", "%{http_code}", "-o", "/dev/null", daemon.url + path)]
    assert curl(*others) == "401" * (len(everywhere) + 1)
    assert curl("-X", "POST", path="/-/reload") == "401"
    assert curl("-X", "POST", *RIGHT, path="/-/reload") == "200"
    assert curl("-X", "POST", *RIGHT, "-H", "Origin: https://evil.example", path="/-/reload") == "403"


@pytest.fixture
def mutual(daemon: RunningDaemon, certificates) -> Iterator[None]:
    """The daemon asks for certificates during the test."""
    enforce(daemon, certificates.folder, MUTUAL)
    yield
    enforce(daemon, certificates.folder, OPEN)


def test_a_changed_file_asks_for_certificates(mutual: None, curl: Callable[..., str]) -> None:
    assert curl(*RIGHT) == "refused"
    assert curl(*RIGHT, *certificate("stranger")) == "refused"
    assert curl(*RIGHT, *certificate("server")) == "refused"
    assert curl(*certificate("client")) == "401"
    assert curl(*WRONG, *certificate("client")) == "401"
    assert curl(*RIGHT, *certificate("client")) == "200"


@pytest.mark.release  # it needs the newest Prometheus
def test_a_real_prometheus_scrapes_with_a_certificate(
    mutual: None, daemon: RunningDaemon, certificates, tmp_path: Path
) -> None:
    recent = need_recent("no Prometheus scrapes over mutual TLS here")
    folder = certificates.folder
    config = "global: {scrape_interval: 300ms, scrape_timeout: 300ms}\nscrape_configs:\n" + "".join(
        f"- job_name: {name}\n  scheme: https\n"
        f"  tls_config: {{ca_file: {folder}/ca.pem, cert_file: {folder}/{name}.pem, key_file: {folder}/{name}.key}}\n"
        "  basic_auth: {username: scraper, password: right}\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{daemon.port}']}}]\n"
        for name in ("client", "stranger")
    )
    with prometheus(config, tmp_path, recent.prometheus) as url:

        def ups() -> dict[str, str]:
            return {each["metric"]["job"]: each["value"][1] for each in query(url, "up")}

        daemon.until("a scrape", lambda: ups() == {"client": "1", "stranger": "0"}, 20)


def test_a_file_that_cannot_be_used_changes_nothing(
    daemon: RunningDaemon, curl: Callable[..., str], certificates
) -> None:
    (certificates.folder / "web.yml").write_text(OPEN + "colour: red\n")
    daemon.until("its refusal", lambda: "colour: unknown key" in daemon.log.read_text(), 20)
    assert curl(*RIGHT) == "200"
    assert curl("-X", "POST", *RIGHT, path="/-/reload") == "500"
    enforce(daemon, certificates.folder, OPEN)
    assert curl("-X", "POST", *RIGHT, path="/-/reload") == "200"


def test_no_page_and_no_log_line_has_a_login_or_a_key(
    daemon: RunningDaemon, curl: Callable[..., str], certificates
) -> None:
    """Other secrets of the configuration are in tests/daemon/test_mistakes.py."""
    told = ""
    for path in ("/metrics", *(each.path for each in ENDPOINTS if each.path != "/-/reload")):
        command = [need("curl"), "-s", "--cacert", "ca.pem", *RIGHT, daemon.url + path]
        told += subprocess.run(command, cwd=certificates.folder, capture_output=True, text=True, check=True).stdout
    told += daemon.log.read_text()
    key = "".join((certificates.folder / "server.key").read_text().splitlines()[1:3])
    for secret in (HASHES["scraper"], HASHES["scraper"][7:29], "c2NyYXBlcjpyaWdodA", key[:40]):
        assert secret not in told
    assert len(told) > 10_000
