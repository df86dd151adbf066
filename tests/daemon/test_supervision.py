"""The main thread: what it starts and ends in which order, what systemd is told, and when its watchdog is fed."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.daemon.hub import Hub
from agent.daemon.reloading import Notifier
from agent.daemon.service import SETTLED_SECONDS, SWITCH_SECONDS, Service, hurry
from agent.lib.threads import Threads
from agent.model import BackendReport, Outcome
from tests.daemon.standin import Ears
from tests.engine.conftest import Node, later
from tests.waiting import wait_until

SEEN = replace(
    Node().snapshot({("coldplate_gpu_up", "0"): 1.0, ("coldplate_gpu_up", "1"): 1.0}, later(0)),
    reports=(BackendReport("nvml", Outcome.ABSENT, 0.0, "no driver"), BackendReport("host", Outcome.OK, 0.0)),
)


class StandIn:
    """Any part of the service: notes in `log` what is asked of it, under its name."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def __getattr__(self, what: str) -> Callable[..., None]:
        return lambda *_: self._log.append(f"{self._name}.{what}")


class Sampling(StandIn):
    """Its heart beats as the case says."""

    heartbeat = 1
    sampler = SimpleNamespace(identities={"GPU-0": None, "GPU-1": None})


class Told(Ears):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def send(self, **facts: object) -> None:
        super().send(**facts)
        self._log += [f"systemd {name}" for name in facts if name != "STATUS"]

    @property
    def fed(self) -> int:
        return sum("WATCHDOG" in each for each in self.heard)


class Clock:
    def __init__(self) -> None:
        self.now = self._asked = 100.0

    def __call__(self) -> float:
        self._asked = self.now
        return self.now

    def turn(self, seconds: float) -> None:
        """Later, and over when somebody has looked."""
        self.now += seconds
        wait_until(lambda: self._asked == self.now)


class Stage:
    """A service whose parts are stand-ins, and the thread that plays with it meanwhile."""

    def __init__(self, synthetic: bool = False) -> None:
        self.log: list[str] = []
        self.clock = Clock()
        self.hub = Hub()
        self.threads = Threads(self.clock)
        self.sampling = Sampling("sampling", self.log)
        self.notifier = Told(self.log)
        parts: list[Any] = [*(StandIn(name, self.log) for name in ("files", "rules", "reloads"))]
        parts.insert(2, self.sampling)
        self.service = Service(
            parts, hub=self.hub, threads=self.threads, sampling=parts[2], reloads=parts[3],
            notifier=self.notifier, page=lambda: Node().snapshot({("coldplate_gpu_up", "0"): 1.0}, later(0)),
            urls=lambda: ["http://localhost:19400/metrics", "https://[::1]:19401/metrics"], synthetic=synthetic,
        )  # fmt: skip

    def play(self, script: Callable[[], None]) -> int:
        """Run the service while the script runs beside it, then tell it to end; the exit status."""
        failed: list[BaseException] = []
        over = threading.Event()

        def beside() -> None:
            try:
                wait_until(lambda: "reloads.start" in self.log)  # by then it has its handlers of signals
                script()
            except BaseException as error:
                failed.append(error)
            if not over.is_set():  # by itself, which it should not be: the signal would be ours
                os.kill(os.getpid(), signal.SIGTERM)

        player = threading.Thread(target=beside)
        player.start()
        try:
            status = self.service.run()
        finally:
            over.set()
            player.join(20)
        if failed:
            raise failed[0]
        return status


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("agent.daemon.service.LOOK_SECONDS", 0.02)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before, interval = {number: signal.getsignal(number) for number in numbers}, sys.getswitchinterval()
    yield Stage()
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.setswitchinterval(interval)
    gc.unfreeze()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_parts_are_started_in_their_order_and_stopped_in_reverse_at_either_signal(stage: Stage, number: int) -> None:
    assert stage.play(lambda: os.kill(os.getpid(), number)) == 0
    ending = stage.log[stage.log.index("systemd STOPPING") :]
    assert stage.notifier.heard[-1] == {"STOPPING": 1}
    assert stage.log[:4] == ["files.start", "rules.start", "sampling.start", "reloads.start"]
    assert ending == ["systemd STOPPING", "reloads.stop", "sampling.stop", "rules.stop", "files.stop", "sampling.close"]


def test_it_is_ready_with_the_first_snapshot_and_says_what_there_is_once(stage: Stage, caplog) -> None:
    caplog.set_level(logging.INFO)

    def publish() -> None:
        assert not stage.notifier.heard
        for _ in range(2):
            stage.hub.publish(SEEN)
            fed = stage.notifier.fed
            stage.sampling.heartbeat += 1
            wait_until(lambda fed=fed: stage.notifier.fed > fed)

    stage.play(publish)
    ready = [each for each in stage.notifier.heard if "READY" in each]
    assert ready == [{"READY": 1, "STATUS": "2 GPUs, 2 series"}]
    told = [(each.getMessage(), vars(each).get("facts")) for each in caplog.records]
    assert told == [
        ("source nvml", {"outcome": "absent", "detail": "no driver"}),
        ("source host", {"outcome": "ok"}),
        ("first sample: 2 series, 0 InfiniBand ports; more series follow from sources that are read rarely", None),
        ("serving", {"url": "http://localhost:19400/metrics"}),
        ("serving", {"url": "https://[::1]:19401/metrics"}),
        ("stopping", None),
        ("stopped", None),
    ]
    drill = Stage(synthetic=True)
    drill.hub.publish(SEEN)
    drill.play(lambda: wait_until(lambda: drill.notifier.heard))
    assert drill.notifier.heard[0]["STATUS"] == "2 synthetic GPUs, 2 series"


def test_the_number_of_series_is_logged_when_every_lane_has_been_read(stage: Stage, caplog) -> None:
    """Of the first sample it is lower, and both in one place would look like a loss or a leak."""
    caplog.set_level(logging.INFO)

    def publish() -> None:
        for seconds in (0.0, SETTLED_SECONDS - 1, SETTLED_SECONDS, 2 * SETTLED_SECONDS):
            stage.hub.publish(replace(SEEN, at=later(seconds)))
            fed = stage.notifier.fed
            stage.sampling.heartbeat += 1
            wait_until(lambda fed=fed: stage.notifier.fed > fed)

    stage.play(publish)
    counts = [record.getMessage() for record in caplog.records if "sampling " in record.getMessage()]
    assert counts == ["sampling 2 series, 1 of them on the page of metrics (metrics.profile)"]


def test_the_watchdog_is_not_fed_while_a_vital_thread_is_in_trouble(stage: Stage) -> None:
    fallen, risen, let_go = threading.Event(), threading.Event(), threading.Event()

    def fall() -> None:
        if not fallen.is_set():
            fallen.set()
            raise ZeroDivisionError
        risen.set()
        let_go.wait(20)

    def play() -> None:
        stage.hub.publish(SEEN)
        wait_until(lambda: stage.notifier.fed == 1)
        threading.Event().wait(0.2)  # ten looks
        assert stage.notifier.fed == 1
        stage.sampling.heartbeat += 1
        wait_until(lambda: stage.notifier.fed == 2)
        stage.threads.begin("rules", fall, vital=True)
        wait_until(stage.threads.trouble)
        fed = stage.notifier.fed
        for _ in range(5):
            stage.sampling.heartbeat += 1
            threading.Event().wait(0.03)
        assert stage.notifier.fed == fed
        assert risen.wait(20)
        stage.clock.turn(4.0)  # it has run for long enough since
        stage.sampling.heartbeat += 1
        wait_until(lambda: stage.notifier.fed > fed)

    stage.play(play)
    let_go.set()


def test_computing_threads_let_the_server_run_sooner_while_many_clients_wait(stage: Stage) -> None:
    stage.play(lambda: None)
    usual = sys.getswitchinterval()
    assert usual == pytest.approx(SWITCH_SECONDS)
    hurry(True)
    pressed = sys.getswitchinterval()
    hurry(False)
    assert (pressed < usual, sys.getswitchinterval()) == (True, usual)


def test_states_are_sent_to_the_socket_that_systemd_names_and_without_one_nowhere(tmp_path: Path, monkeypatch) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(5)
        Notifier({"NOTIFY_SOCKET": address}).send(READY=1, STATUS="well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
    monkeypatch.setattr(socket, "socket", None)
    for environment in ({}, {"NOTIFY_SOCKET": ""}):
        Notifier(environment).send(READY=1)
