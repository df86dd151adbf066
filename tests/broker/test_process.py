"""The broker as a process: started with its socket as systemd does, and as small as it claims to be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.broker.asking import BrokerClient, BrokerError
from tests.broker.conftest import listening

ROOT = Path(__file__).resolve().parents[2]
COSTLY = {
    "typing", "re", "ctypes", "logging", "json", "subprocess", "pathlib", "dataclasses", "threading", "ssl",
    "inspect",
}  # fmt: skip
"""Modules that cost memory, or give whoever takes the process over more to work with."""


def test_it_loads_nothing_else_of_coldplate_and_nothing_costly() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "import agent.broker.__main__; loaded = sorted(set(sys.modules) - before)\n"
        "import json; print(json.dumps(loaded))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    ours = {name for name in loaded if name.split(".")[0] in ("agent", "alerts", "exporters", "dashboards")}
    assert all(name == "agent" or name.startswith("agent.broker") for name in ours), ours
    assert not loaded & COSTLY


def test_it_serves_the_socket_that_systemd_hands_over(tmp_path: Path) -> None:
    with listening(tmp_path / "broker.sock") as listener:
        process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" -I -m agent.broker', sys.executable],
            preexec_fn=lambda: os.dup2(listener.fileno(), 3), pass_fds=[3],
        )  # fmt: skip
        try:
            # About itself: a process that once was another user, as that of the tests may have been, is hidden.
            stat = Path(f"/proc/{process.pid}/stat").read_text()
            started = int(stat.rpartition(")")[2].split()[19])
            client = BrokerClient(str(tmp_path / "broker.sock"))
            assert isinstance(client.variables(process.pid, started), bytes)
        finally:
            process.terminate()
            process.wait(30)


def test_a_request_that_never_ends_costs_the_process_and_the_next_one_gets_another(tmp_path: Path) -> None:
    """A pipe stands for an environment under a lock: who opens it waits, and nothing but its own end helps."""
    (tmp_path / "proc/100").mkdir(parents=True)
    (tmp_path / "proc/100/stat").write_text("100 (x) S" + " 1" * 18 + " 77" + " 0" * 30)
    os.mkfifo(tmp_path / "proc/100/environ")
    code = (
        "import os, socket, sys, time; from agent.broker import answering, __main__ as main\n"
        "answering.DEADLINE_SECONDS = 0.2\n"
        "broker = answering.Broker(time.monotonic, sys.argv[1])\n"
        "answering.serve(socket.socket(fileno=3), broker, frozenset({os.getuid()}), 60, main.end_in)"
    )
    with listening(tmp_path / "broker.sock") as listener:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "proc")], cwd=ROOT,
            preexec_fn=lambda: os.dup2(listener.fileno(), 3), pass_fds=[3],
        )  # fmt: skip
        with pytest.raises(BrokerError):
            BrokerClient(str(tmp_path / "broker.sock")).variables(100, 77)
        assert process.wait(30) == -signal.SIGALRM


def test_without_its_socket_it_says_how_it_is_started() -> None:
    done = subprocess.run([sys.executable, "-m", "agent.broker"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "systemctl start coldplate-broker.socket" in done.stderr
