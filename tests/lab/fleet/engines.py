"""The programs of a fleet, started on free ports of the loopback interface, each with its log, and ended together."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.deployment.fleet_files import ROOT
from tests.lab.bench.processes import Program, cpu_seconds, started
from tests.lab.bench.report import CannotRunError
from tests.notify.conftest import Listener
from tests.servers import fetch, free_port

ALERTMANAGER = ROOT / "alerts" / "server"
BROUGHT = ROOT / ".programs" / "newest" / "usr" / "bin"
READY_SECONDS = 60.0
WEB, HTTP = "--web.listen-address=127.0.0.1:{}", "-httpListenAddr=127.0.0.1:{}"
"""How programs are told where to listen: those of Prometheus and coldplate, and those of VictoriaMetrics."""


def say(line: str) -> None:
    print(line, flush=True)


class Engine(NamedTuple):
    name: str
    url: str
    process: Program

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return cpu_seconds([self.process.pid])

    @property
    def resident(self) -> int:
        """Bytes of memory that are its own: without the pages of files that it has mapped."""
        memory = self.process.memory_info()
        return int(memory.rss - memory.shared)

    def answers(self, path: str) -> bool:
        with suppress(OSError):
            fetch(f"{self.url}{path}", 2)
            return True
        return False

    def json(self, path: str, **query: str) -> Any:
        """The document at a path of its API."""
        return json.loads(fetch(f"{self.url}{path}?{urlencode(query)}", 120))

    def ask(self, query: str, **more: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("/api/v1/query", query=query, **more)["data"]["result"]
        return found


def program(name: str) -> str:
    """One that `make` has brought, else one of the machine: where both lack, the start fails in words."""
    ours = BROUGHT / name
    return str(ours) if ours.exists() else name


class Engines(ExitStack):
    """What was started, by name; all end when the block does, the last one first."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.running: dict[str, Engine] = {}

    def start(self, name: str, words: Sequence[str], listen: str, ready: str, port: int | None = None) -> Engine:
        """Start a program, whose option `listen` has {} for its port, and wait until it answers at `ready`.

        Raises CannotRunError.
        """
        chosen, log = port or free_port(), self.folder / f"{name}.log"
        try:
            around = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = self.enter_context(started([*words, listen.format(chosen)], log, around, self.folder))
        except OSError as error:
            raise CannotRunError(f"{name}: {error}; `make programs` and `make engines` bring it") from error
        engine = self.running[name] = Engine(name, f"http://127.0.0.1:{chosen}", process)
        process.wait_for(name, lambda _: engine.answers(ready), READY_SECONDS)
        return engine

    def prometheus(self, name: str, config: str, *more: str, port: int | None = None) -> Engine:
        path = self.folder / f"{name}.yml"
        path.write_text(config)
        words = [program("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={self.folder / name}", *more]
        return self.start(name, words, WEB, "/-/ready", port)

    def simulation(self, *more: str, port: int | None = None) -> Engine:
        return self.start("site", [sys.executable, "-m", "agent.cli", "simulate", *more], WEB, "/-/ready", port)

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
        return self.start("alertmanager", words, WEB, "/-/ready", port)

    def canned_site(self, nodes: int, *more: str) -> Engine:
        """Start the site of canned_site.py."""
        words = [sys.executable, "-m", "tests.lab.fleet.canned_site", "--nodes", str(nodes), *more]
        return self.start("site", words, "--port={}", "/sd")

    def vmalert(self, name: str, store: Engine, rules: Iterable[str], *more: str) -> Engine:
        """Start a vmalert that reads from a store and writes to it; `rules` are patterns of paths."""
        words = [program("vmalert"), *(f"-rule={each}" for each in rules)]
        words += [f"-{each}.url={store.url}" for each in ("datasource", "remoteWrite", "remoteRead")]
        words += ["-disableAlertgroupLabel", "-rule.evalDelay=1s", "-group.maxStartDelay=1s", *more]
        return self.start(name, words, HTTP, "/health")

    def store(self, name: str, *more: str) -> Engine:
        words = [program("victoria-metrics"), f"-storageDataPath={self.folder / name}", "-retentionPeriod=1d", *more]
        return self.start(name, words, HTTP, "/health")

    def scraper(self, name: str, config: Path, *more: str) -> Engine:
        buffer = f"-remoteWrite.tmpDataPath={self.folder / name}"
        words = [program("vmagent"), f"-promscrape.config={config}", buffer, *more]
        return self.start(name, words, HTTP, "/health")


class Notification(NamedTuple):
    receiver: str
    group: dict[str, str]
    alerts: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        return sorted({each["labels"]["alertname"] for each in self.alerts})


class Inbox(Listener):
    """Takes what is posted to a free port of the loopback interface, between `with` and its end."""

    @property
    def told(self) -> list[Notification]:
        return [Notification(each.json["receiver"], each.json["groupLabels"], each.alerts) for each in self.posts]

    def __enter__(self) -> Inbox:  # noqa: PYI034 Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
