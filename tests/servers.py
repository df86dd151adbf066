"""The real programs that tests use, started on a free port of the loopback interface and ended by the test."""

import io
import json
import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.lab.bench.processes import Program, started
from tests.lab.parity.oracles import MissingError, Recent, find


def need(*names: str, left_out: str = "NOTHING is tried against it here") -> str:
    """A program under one of its names; where it is missing, CI fails and a person is told what was left out."""
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"{names[0]} is missing, and CI=true")
    pytest.skip(f"{names[0]} is not installed: {left_out}")


def need_recent(left_out: str) -> Recent:
    """The recent Prometheus that `make test` brings; where it is missing, CI fails and a person is told."""
    try:
        return find()
    except MissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no recent Prometheus, and CI=true: {missing}")
        pytest.skip(f"{left_out}: {missing}")


def ended(process: int) -> bool:
    """Whether a process is no more. In a container nobody may be there to reap it: what is left then runs no longer."""
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, each another one."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def fetch(url: str, seconds: float = 5) -> str:
    """A page. Raises OSError without an answer, and HTTPError for one that is an error, with its text as the reason.

    It holds no connection: from Python 3.14 on, one that is merely dropped is a warning in whatever test runs then.
    """
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        told = urllib.error.HTTPError(url, error.code, text, error.headers, io.BytesIO())
        told.close()
        raise told from None


def version_of(program: str) -> tuple[int, int]:
    """Major and minor of one of Prometheus's programs."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    told = re.search(r"version (\d+)\.(\d+)", done.stdout + done.stderr)
    assert told is not None, done.stdout + done.stderr
    return int(told[1]), int(told[2])


@contextmanager
def program(command: list[str], url: str, log: Path) -> Iterator[Program]:
    """A server that is waited for, until it answers at this address or asks who is there, and ended."""

    def serves(_log: str) -> bool:
        try:
            fetch(url)
        except OSError as error:
            return isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.UNAUTHORIZED
        return True

    with started(command, log, os.environ, Path.cwd()) as process:
        process.wait_for(command[0], serves)
        yield process


@contextmanager
def prometheus(
    config: str, folder: Path, executable: str | None = None, *options: str, port: int | None = None
) -> Iterator[str]:
    """A real Prometheus with this configuration, the one on the path unless another is given; its address."""
    path, port = folder / "prometheus.yml", port or free_port()
    path.write_text(config)
    command = [
        executable or need("prometheus"),
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    url = f"http://127.0.0.1:{port}"
    with program(command, f"{url}/-/ready", folder / "prometheus.log"):
        yield url


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """What the Prometheus at this address answers."""
    text = fetch(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    return found


class Alertmanager:
    """A real one on the loopback interface, which can be stopped and started again with what it remembers.

    It notifies nobody unless its configuration says otherwise. It serves below `prefix`, as behind a proxy.
    """

    def __init__(
        self,
        folder: Path,
        config: str = "route: {receiver: none}\nreceivers: [{name: none}]\n",
        prefix: str = "",
        left_out: str = "NOTHING is tried against the real Alertmanager here",
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}{prefix}"
        self._amtool = need("amtool", left_out=left_out)
        self._folder = folder
        self._running = ExitStack()
        (folder / "alertmanager.yml").write_text(config)
        self._command = [
            need("prometheus-alertmanager", "alertmanager", left_out=left_out),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.route-prefix={prefix or '/'}",
            "--cluster.listen-address=",
        ]

    def start(self) -> None:
        self._running.enter_context(program(self._command, f"{self.url}/-/ready", self._folder / "alertmanager.log"))

    def stop(self) -> None:
        self._running.close()

    def query(self) -> list[dict[str, Any]]:
        """What `amtool alert query` lists."""
        command = [self._amtool, f"--alertmanager.url={self.url}", "alert", "query", "--output=json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=10)
        return json.loads(done.stdout) or []

    def alerts(self, query: str = "") -> list[dict[str, Any]]:
        """What its API lists."""
        return json.loads(fetch(f"{self.url}/api/v2/alerts{query}", 60))


def unmeasured() -> dict[str, str]:
    """Return the environment without the variables that make a Python started in it measure its own coverage."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
