"""The programs of a fleet, started on free ports of the loopback interface, each with its log, and ended together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import psutil

from tests.deployment.fleet_files import ROOT
from tests.servers import fetch, free_port

ALERTMANAGER = ROOT / "packaging" / "alertmanager"
BROUGHT = ROOT / ".programs" / "newest" / "usr" / "bin"
READY_SECONDS = 60.0


class StartError(Exception):
    """A program that does not come up, with the last lines of its log."""


class Engine(NamedTuple):
    """One that runs."""

    name: str
    url: str
    process: subprocess.Popen[bytes]

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @property
    def resident(self) -> int:
        """Bytes of memory that are its own: without the pages of files that it has mapped."""
        memory = self._process.memory_info()
        return int(memory.rss - memory.shared)

    @property
    def _process(self) -> psutil.Process:
        return psutil.Process(self.process.pid)


def program(name: str) -> str:
    """One that `make` has brought, else one of the machine: where both lack, the start fails in words."""
    ours = BROUGHT / name
    return str(ours) if ours.exists() else name


class Engines:
    """What was started, by name; all end when the block does, the last one first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Engine] = {}

    def __enter__(self) -> Engines:  # noqa: PYI034 Python 3.10 has no Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in reversed(self.running.values()):
            engine.process.terminate()
        for engine in self.running.values():
            try:
                engine.process.wait(20)
            except subprocess.TimeoutExpired:
                engine.process.kill()
                engine.process.wait()

    def start(self, name: str, command: Callable[[int], Sequence[str]], ready: str, port: int | None = None) -> Engine:
        """Start what `command` makes of a port, and wait until it answers at `ready`. Raises StartError."""
        chosen = port or free_port()
        log = self.folder / f"{name}.log"
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(command(chosen), stdout=file, stderr=subprocess.STDOUT, cwd=self.folder)
        except OSError as error:
            raise StartError(f"{name}: {error}; `make programs` and `make engines` bring it") from error
        engine = self.running[name] = Engine(name, f"http://127.0.0.1:{chosen}", process)
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError):
                fetch(f"{engine.url}{ready}", 2)
                return engine
            time.sleep(0.1)
        told = log.read_text(errors="replace").splitlines()[-5:]
        raise StartError(f"{name} does not come up:\n" + "\n".join(told))

    def prometheus(self, name: str, config: str, *more: str, port: int | None = None) -> Engine:
        """A Prometheus with this configuration."""
        path = self.folder / f"{name}.yml"
        path.write_text(config)
        words = [program("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={self.folder / name}", *more]
        return self.start(name, lambda port: [*words, f"--web.listen-address=127.0.0.1:{port}"], "/-/ready", port)

    def alertmanager(self, inbox: str, group_wait: str | None = None, port: int | None = None) -> Engine:
        """Start an Alertmanager with the configuration that ships, and an inbox in place of each of its receivers."""
        text = re.sub(r"http://\w+\.example", inbox, (ALERTMANAGER / "alertmanager.yml").read_text())
        if group_wait is not None:
            text = re.sub(r"group_wait: \w+", f"group_wait: {group_wait}", text)
        config = self.folder / "alertmanager.yml"
        config.write_text(text)
        shutil.copy(ALERTMANAGER / "coldplate.tmpl", self.folder)
        words = [program("prometheus-alertmanager"), f"--config.file={config}", f"--storage.path={self.folder / 'am'}"]
        words.append("--cluster.listen-address=")
        return self.start(
            "alertmanager", lambda port: [*words, f"--web.listen-address=127.0.0.1:{port}"], "/-/ready", port
        )

    def store(self, name: str, *more: str) -> Engine:
        """A VictoriaMetrics of one node."""
        words = [program("victoria-metrics"), f"-storageDataPath={self.folder / name}", "-retentionPeriod=1d", *more]
        return self.start(name, lambda port: [*words, f"-httpListenAddr=127.0.0.1:{port}"], "/health")

    def scraper(self, name: str, config: Path, *more: str) -> Engine:
        """A vmagent."""
        buffer = f"-remoteWrite.tmpDataPath={self.folder / name}"
        words = [program("vmagent"), f"-promscrape.config={config}", buffer, *more]
        return self.start(name, lambda port: [*words, f"-httpListenAddr=127.0.0.1:{port}"], "/health")


class Notification(NamedTuple):
    """One message, about one or more alerts."""

    receiver: str
    group: dict[str, str]
    alerts: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        """The names of its alerts."""
        return sorted({each["labels"]["alertname"] for each in self.alerts})


class Inbox(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface, between `with` and its end."""

    def __init__(self) -> None:
        self.told: list[Notification] = []
        super().__init__(("127.0.0.1", 0), _Taking)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1})

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Inbox:  # noqa: PYI034 Python 3.10 has no Self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Inbox)
        self.server.told.append(Notification(body["receiver"], body["groupLabels"], body["alerts"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
