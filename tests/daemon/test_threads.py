"""Whatever happens to a thread of the daemon, its work goes on, and the page says what happened."""

from __future__ import annotations

import json
import signal
import threading
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.daemon.conftest import RunningDaemon

RULES = """\
groups:
- name: always
  rules:
  - {alert: Always, expr: 'vector(1)'}
  - {alert: Sometimes, expr: 'coldplate_config_last_reload_successful == 0'}
"""
CONFIG = """\
sampling: {{fast: 250ms, slow: 1s, cold: 2s}}
state_dir: {folder}/state
rules: {{files: [{folder}/rules.yml]}}
notify: {{webhook: {{urls: ['{url}']}}}}
rack: {{name: r1, peers: [{folder}/peers.json]}}
"""
FALL = "Sabotage"


class Receiver:
    """A webhook that remembers the alerts that it was told of."""

    def __init__(self) -> None:
        told: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.extend(f"{each['status']} {each['labels']['alertname']}" for each in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.told = told
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def sabotaged(tmp_path: Path, receiver: Receiver) -> Iterator[Callable[..., RunningDaemon]]:
    """Starts a daemon with every kind of thread, whose threads come to harm by a plan."""
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "peers.json").write_text('[{"targets": ["127.0.0.1:9"]}]')
    config = tmp_path / "coldplate.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, url=receiver.url))
    running: list[RunningDaemon] = []

    def start(**plan: object) -> RunningDaemon:
        arguments = ["--scenario", "healthy-training", "--config.file", str(config)]
        running.append(RunningDaemon(arguments, tmp_path / "daemon.log", module="tests.daemon.sabotage", plan=plan))
        running[-1].await_url()
        return running[-1]

    yield start
    for daemon in running:
        daemon.stop()


def everything_works(daemon: RunningDaemon, receiver: Receiver, folder: Path) -> None:
    """Each thread's own work is seen from outside: samples, pages, rules, notifications, reloads, state, the rack."""

    def total(name: str, label: str) -> float:
        while True:
            with suppress(ConnectionError):  # the thread that serves may fall with the request that woke it
                return sum(daemon.family(name, label).values())

    def grows(name: str, label: str = "") -> Callable[[], bool]:
        before = total(name, label)
        return lambda: total(name, label) > before

    daemon.until("ticks go on", grows("coldplate_ticks_total"), 15)
    daemon.until("rules are evaluated", grows("coldplate_rule_evaluations_total", "rule_group"), 15)
    daemon.until("peers are asked", grows("coldplate_rack_peer_failures_total", "reason"), 15)
    daemon.until("the host is read", grows("coldplate_backend_reads_total", "backend"), 15)
    config = folder / "coldplate.yaml"
    good = config.read_text()
    receiver.told.clear()
    config.write_text("nonsense: 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("a reload is refused", lambda: daemon.family("coldplate_config_last_reload_successful")[""] == 0, 15)
    daemon.until("the receiver is told", lambda: "firing Sometimes" in receiver.told, 15)
    state = folder / "state" / "alerts.state"
    daemon.until("it is remembered", lambda: "Sometimes" in state.read_text(), 15)
    config.write_text(good)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("it reloads", lambda: daemon.family("coldplate_config_last_reload_successful")[""] == 1, 15)
    daemon.until("its end is told", lambda: "resolved Sometimes" in receiver.told, 15)


def health(daemon: RunningDaemon) -> str:
    try:
        return daemon.get("/-/healthy")
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"


def test_an_exception_in_any_thread_and_a_late_start_cost_none_of_its_work(
    sabotaged, receiver: Receiver, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"fall": ["*"]}')
    daemon = sabotaged(refuse=3.0, told=str(plan))
    everything_works(daemon, receiver, tmp_path)
    assert "cannot be started" in daemon.log.read_text()
    kept = set(daemon.family("coldplate_thread_up", "thread"))
    assert {"http", "sampler", "rules", "state", "notify", "reload", "rack", "rack-finder", "backend-host"} <= kept
    daemon.process.send_signal(signal.SIGUSR1)
    everything_works(daemon, receiver, tmp_path)  # which wakes those that only wait
    restarts = daemon.family("coldplate_thread_restarts_total", "thread")
    assert {name for name, count in restarts.items() if count >= 1} == kept
    daemon.until("all are up", lambda: set(daemon.family("coldplate_thread_up", "thread").values()) == {1.0}, 15)
    daemon.until("it is well", lambda: health(daemon) == "healthy\n", 15)
    assert FALL in daemon.log.read_text()

    plan.write_text('{"fall": ["rules"]}')

    def unhealthy() -> bool:
        daemon.process.send_signal(signal.SIGUSR1)
        return health(daemon).startswith("503 thread rules ended by Sabotage")

    daemon.until("the health check names a vital thread", unhealthy, 15)
    daemon.until("it is over", lambda: health(daemon) == "healthy\n", 15)
