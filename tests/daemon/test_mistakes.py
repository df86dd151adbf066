"""Mistakes of the person who starts it: each is refused with what is wrong, status 2, and no secret."""

import base64
import os
import socket
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import warm
from tests.daemon.standin import FAST, Node
from tests.daemon.test_running_daemon import HOT
from tests.servers import free_ports

MARK = "s3cr3t"
"""In everything that is secret here."""
URL = f"'http://me:{MARK}@host.example/'"

CONFIGURATIONS = {
    "smapling: {}": "did you mean 'sampling'?",
    "web: {telemetry_path: /-/ready}": "/-/ready is reserved",
    "backends: {devices: synthetic, scenario: nosuch}": "nosuch",
    "backends: {redfish: {url: 'ftp://x'}}": "backends.redfish",
    "metrics: {exclude: [coldplate_gpu_pwer_watts]}": "did you mean 'coldplate_gpu_power_watts'?",
}
"""Configuration files that a reload refuses as a start does, and what is said of each."""

MISTAKES: list[tuple[list[str] | str, tuple[str, ...]]] = [
    *((text, (message,)) for text, message in CONFIGURATIONS.items()),
    ("node: {name: 'rack 7 node'}\nnotify: {alertmanager: {urls: ['http://am:9093']}}", ("node.name",)),
    ("jobs: {sources: [slurn]}", ("slurn",)),
    (f"notify: {{alertmanager: {{urls: [{URL}]}}}}", ("notify.alertmanager",)),
    ("notify: {alertmanager: {urls: ['http://am:99999/x']}}", ("urls: 'http://am:99999/",)),
    (f"notify: {{webhook: {{urls: [{URL}]}}}}", ("notify.webhook",)),
    (f"backends: {{redfish: {{url: {URL}}}}}", ("backends.redfish",)),
    (f"rack: {{name: r, peers: [{URL}]}}", ("rack.peers",)),
    (
        "rules: {files: [bad.yml]}",
        ("{folder}/bad.yml:7: ", "'soon' is not a duration", "{folder}/bad.yml:11: ", "WarmAtOnce"),
    ),
    (["run", "--scenario", "stragler"], ("straggler",)),
    (["run", "--backend", "nvml", "--scenario", "idle"], ("--scenario needs --backend synthetic",)),
    (["run", "--path.sysfs", "/nowhere"], ("--path.sysfs: /nowhere is not a directory",)),
    (["run", "--backend", "none", "--web.telemetry-path", "metrics"], ("must begin with '/'",)),
    (
        ["run", "--backend", "none", "--web.listen-address", "127.0.0.1:{port}"],
        ("127.0.0.1:{port}", "--web.listen-address"),
    ),
    (
        ["run", "--backend", "none", "--web.listen-address", f"{'n' * 64}:1"],
        ("the host cannot be resolved (", "--web.listen-address"),
    ),
    (["once", "--backend", "none", "--textfile", "/nowhere/x.prom"], ("--textfile: /nowhere/x.prom",)),
    (["once", "--backend", "none", "--textfile", "/nowhere/x.txt"], ("ends with .prom",)),
    (["once", "--textfile", "x.prom", "--format", "json"], ("--format: json is not what --textfile writes",)),
    (["record", "--duration", "0s"], ("--duration: 0s records nothing",)),
    (["simulate", "--nodes", "2", "--nodes-per-job", "8"], ("nodes_per_job: 8 is more than the site has: 2 nodes",)),
    (["render", "metrics", "--output", "/nowhere/x.md"], ("--output: /nowhere/x.md: No such file or directory",)),
    (["pause", "--for", "soon"], ("--for: 'soon' is not a duration",)),
    (["pause", "--for", "1s"], ("--for: 1s is not from 10s to 1d",)),
    (["pause", "--for", "2d"], ("--for: 2d is not from 10s to 1d",)),
    (["pause", "--for", "1m", "--end"], ("not allowed with argument",)),
]
"""Arguments, or the text of a configuration file, and what is said of them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A folder with a broken rule file, and a port at which somebody else listens."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "bad.yml").write_text(HOT.replace("for: 6s", "for: soon").replace('{gpu="4"}', '{gpu="4"'))
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        yield {"folder": folder, "port": holder.getsockname()[1]}


@pytest.fixture(scope="module")
def ended(place: dict[str, object]) -> list[warm.Ended]:
    """How all of them end, one after the other in one process."""

    def arguments(number: int, given: list[str] | str) -> list[str]:
        if not isinstance(given, str):
            return [each.format(**place) for each in given]
        config = Path(str(place["folder"]), f"{number}.yaml")
        config.write_text(f"{given}\n")
        return ["run", "--config.file", str(config)]

    return warm.commands([arguments(number, given) for number, (given, _) in enumerate(MISTAKES)])


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_said_with_status_2(ended: list[warm.Ended], place: dict[str, object], number: int) -> None:
    given, messages = MISTAKES[number]
    done = ended[number]
    told = done.error.decode()
    assert done.status == 2, told
    assert [each for each in messages if each.format(**place) not in told] == []
    assert "Traceback" not in told and "[Errno" not in told
    assert MARK not in told + done.output.decode()
    if isinstance(given, str) and "bad.yml" not in given:
        assert told.strip().count("\n") == 0


# Nothing secret is served, printed or logged: neither of the configuration nor of other people's processes.
PATHS = (
    "/metrics",
    "/",
    "/api/v1/snapshot",
    "/api/v1/rules",
    "/api/v1/alerts",
    "/api/v1/rack",
    "/-/ready",
    "/-/healthy",
    "/runbooks/AlertsUndelivered",
    f"/nowhere?token={MARK}-of-a-client",
)
ACCEPTED = ("text/plain", "application/openmetrics-text", "application/json, text/html")
CONFIG = """\
backends: {{power: [redfish, estimate], infiniband: false, redfish: {{url: 'http://127.0.0.1:{port}', username: bmc,
  password_file: {password}}}}}
notify:
  alertmanager: {{urls: ['http://127.0.0.1:{port}/s3cr3t-path/alertmanager'], bearer_token_file: {token}}}
  webhook: {{urls: ['http://127.0.0.1:{port}/services/s3cr3t-hook'], username: u,
    password_file: {password}}}
rules: {{files: [{rules}]}}
rack: {{name: r1, peers: ['127.0.0.1:{port}'], peer: {{bearer_token_file: {token}}}}}
"""
COMMANDS = (
    "doctor --url {url} --config.file {config}",
    "doctor --json --url {url} --config.file {config}",
    "check --config.file {config} --backend nvml --verbose --log.level debug",
    "top --once --url {url}",
    "top --json --no-attach --config.file {config} --backend nvml --log.level debug",
    "record --no-redact --duration 1s --interval 250ms -o {folder}/r --config.file {config} --log.level debug",
    "report {folder}/r",
    "report --json {folder}/r",
    "export --format json {folder}/r",
)


@contextmanager
def job_of_somebody_else() -> Iterator[int]:
    """A process of a job whose command line and environment hold what nobody else is to see."""
    surroundings = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "train",
        "WANDB_API_KEY": f"{MARK}-in-the-environment",
        "HTTPS_PROXY": f"http://me:{MARK}-in-a-proxy@proxy:3128",
    }
    command = ["sh", "-c", "read forever; exit", f"--password={MARK}-in-the-command-line"]
    with subprocess.Popen(command, env={**os.environ, **surroundings}, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _configure(folder: Path) -> str:
    for name in ("password", "token"):
        (folder / name).write_text(f"{MARK}-{name}\n")
    rules = folder / "always.yml"
    rules.write_text("groups: [{name: g, interval: 1s, rules: [{alert: Always, expr: vector(1)}]}]\n")
    (port,) = free_ports(1)  # nobody is there: whom it cannot reach is what the log tells most of
    return CONFIG.format(port=port, rules=rules, password=folder / "password", token=folder / "token")


def _revealed(text: str) -> list[str]:
    """The lines that hold a secret, as it is or in the form in which it would be sent."""
    coded = [base64.b64encode(f"{user}:{MARK}-password".encode()).decode() for user in ("u", "bmc")]
    return [line[:300] for line in text.splitlines() if any(each in line for each in (MARK, *coded))]


def _pages(node: Node) -> Iterator[tuple[str, str]]:
    for path in PATHS:
        for accepted in ACCEPTED:
            request = (f"GET {path} HTTP/1.0\r\nAccept: {accepted}\r\nAccept-Encoding: gzip\r\n\r\n").encode()
            head, _, body = _ask(node.daemon.port, request).partition(b"\r\n\r\n")
            text = zlib.decompress(body, 31) if b"gzip" in head.lower() else body
            yield f"{path} as {accepted}", f"{head.decode('latin-1')}\n{text.decode()}"


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(request)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def test_no_page_no_command_and_no_log_tells_a_secret(start, library: Path, tmp_path: Path) -> None:
    with job_of_somebody_else() as pid:
        text = FAST.replace("backends: {power: [estimate], infiniband: false}\n", "") + _configure(tmp_path)
        node = Node(
            lambda *words, **more: start(*words, "--log.level", "debug", **more),
            library,
            tmp_path,
            text,
            (f"process 0 {pid}",),
        )
        failed = "coldplate_notifications_errors_total"
        node.daemon.until("receivers failed", lambda: sum(node.daemon.family(failed, "url").values()) >= 2, 60)
        # Whose job it is depends on the machine's cgroups; that its files in /proc are read does not.
        looked = "coldplate_job_attribution_problems_total", "coldplate_gpu_job_info"
        node.daemon.until("jobs are looked for", lambda: any(map(node.daemon.family, looked)), 30)
        told = dict(_pages(node))
        config = tmp_path / "daemon-0.yaml"
        for line in COMMANDS:
            words = line.format(url=node.daemon.url, config=config, folder=tmp_path).split()
            done = warm.command(words, folder=tmp_path, environment=node.environment)
            told[line] = (done.output + done.error).decode()
            assert "Traceback" not in told[line]
        told["the log"] = node.daemon.log.read_text()
        told["the state"] = "".join(
            path.read_bytes().decode("latin-1") for path in sorted(node.state.rglob("*")) if path.is_file()
        )
    assert all(told[f"{path} as {accepted}"].startswith("HTTP/1.") for path in PATHS for accepted in ACCEPTED)
    assert [line for line in COMMANDS if not told[line].strip()] == []
    assert {name: lines for name, each in told.items() if (lines := _revealed(each))} == {}
