"""The real programs that tests use, started on a free port of the loopback interface and ended by the test."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

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
def program(command: list[str], url: str, log: Path) -> Iterator[None]:
    """A server that is waited for, and ended."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):  # thirty seconds
            try:
                fetch(url)
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def prometheus(config: str, folder: Path, executable: str | None = None, options: Sequence[str] = ()) -> Iterator[str]:
    """A real Prometheus with this configuration, the one on the path unless another is given; its address."""
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(config)
    command = [
        executable or need("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", *options,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with program(command, f"{url}/-/ready", folder / "prometheus.log"):
        yield url


class Alertmanager:
    """A real one on the loopback interface, which can be stopped and started again with what it remembers."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "alertmanager.yml"
        config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        self._command = [
            need("prometheus-alertmanager", "alertmanager"), f"--config.file={config}",
            f"--storage.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip
        self._amtool = need("amtool")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):  # thirty seconds
            try:
                fetch(f"{self.url}/-/ready", 1)
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("Alertmanager does not come up")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def query(self) -> list[dict[str, Any]]:
        """What `amtool alert query` lists."""
        command = [self._amtool, f"--alertmanager.url={self.url}", "alert", "query", "--output=json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=10)
        return json.loads(done.stdout) or []


def unmeasured() -> dict[str, str]:
    """Return the environment without the variables that make a Python started in it measure its own coverage."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
