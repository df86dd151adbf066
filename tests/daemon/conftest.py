"""A real daemon in a process of its own, on a free port of the loopback interface."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests import warm
from tests.fakes.nvml import build
from tests.servers import fetch, need

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(page: str, name: str = r"\w+") -> list[tuple[str, dict[str, str], float]]:
    """The samples of a page: a hundred times as fast as prometheus_client's parser, which other tests hold pages to."""
    rows = re.findall(rf"^({name})(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
    return [
        (metric, {key: _plain(text) for key, text in LABEL.findall(labels)}, float(value))
        for metric, labels, value in rows
    ]


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


class RunningDaemon:
    """`coldplate run` with the given arguments; what it logs goes to a file."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: dict[str, str] | None = None,
        root: Path = ROOT,
        forked: bool = False,
        pass_fds: Sequence[int] = (),
        port: int = 0,
    ) -> None:
        """`root` has the product, and `pass_fds` are descriptors that a daemon that is not forked gets.

        `forked`: from a process that has loaded the agent, which takes half the time, and not as its user starts it.
        """
        self.log = log
        self.url = ""
        self.process: subprocess.Popen[bytes] | warm.Started
        surroundings = {**os.environ, **(environment or {})}
        words = ["run", "--web.listen-address", f"127.0.0.1:{port}", *arguments]
        if forked:
            log.write_bytes(b"")
            self.process = warm.Started(words, log, root, surroundings)
            return
        command = [sys.executable, "-m", "agent.cli", *words]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command, stderr=file, stdin=subprocess.DEVNULL, cwd=root, env=surroundings, pass_fds=pass_fds
            )

    def await_url(self) -> None:
        for _ in range(1200):
            match = re.search(r"serving\b.*?(https?://127\.0\.0\.1:(\d+))/", self.log.read_text())
            if match:
                self.url, self.port = match[1], int(match[2])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the daemon does not serve:\n{self.log.read_text()}")

    def get(self, path: str = "/metrics") -> str:
        return fetch(self.url + path)

    def reload(self) -> tuple[int, str]:
        """Status and text of the answer to a request for a reload."""
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/reload", b""), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def page(self) -> Page:
        return {(name, tuple(sorted(labels.items()))): value for name, labels, value in samples(self.get())}

    def family(self, name: str, label: str = "gpu") -> dict[str, float]:
        return {labels.get(label, ""): value for _, labels, value in samples(self.get(), name)}

    def value(self, name: str) -> float:
        """That of a series without labels."""
        return self.family(name, "")[""]

    def until(self, what: str, holds: Callable[[], bool], seconds: float) -> float:
        """Wait until something holds; how long it took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if holds():
                return time.monotonic() - began
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {what}\n{self.log.read_text()}")

    @property
    def worker_pid(self) -> int:
        return int(psutil.Process(self.process.pid).children()[0].pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
                raise
        return self.process.wait()


Start = Callable[..., RunningDaemon]


class Daemons:
    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self._folder, self._root = folder, root
        self._running: list[RunningDaemon] = []

    def __call__(
        self, *arguments: str, config: str = "", environment: dict[str, str] | None = None, forked: bool = True
    ) -> RunningDaemon:
        log = self._folder / f"daemon-{len(self._running)}.log"
        if config:
            path = log.with_suffix(".yaml")
            path.write_text(config)
            arguments = (*arguments, "--config.file", str(path))
        daemon = RunningDaemon(arguments, log, environment, self._root, forked)
        self._running.append(daemon)
        daemon.await_url()
        return daemon

    def stop(self) -> None:
        for daemon in self._running:
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGTERM)
        for daemon in self._running:
            daemon.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    daemons = Daemons(tmp_path)
    yield daemons
    daemons.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the daemons that the tests of a file share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def start_shared(folder: Path) -> Iterator[Start]:
    daemons = Daemons(folder)
    yield daemons
    daemons.stop()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(os.environ.get("CC", "cc"), left_out="no C compiler for the driver's stand-in")
    directory = tmp_path_factory.mktemp("nvml")
    build.build(directory)
    return directory
