"""A real Prometheus as the receiver, away for a while, and an agent that is killed meanwhile."""

from __future__ import annotations

import json
import signal
import urllib.parse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import RunningDaemon
from tests.servers import fetch, free_port, need, program, unmeasured

CONFIG = """
backends: {{devices: synthetic, host: false}}
node: {{name: node-1}}
sampling: {{fast: 250ms, slow: 1s, cold: 2s}}
rules: {{files: []}}
recorder: {{flight: 0s}}
state_dir: {folder}
push:
  remote_write:
    central: {{url: "http://localhost:{port}/api/v1/write", interval: 1s, labels: {{instance: node-1}}}}
"""


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[RunningDaemon]]:
    running: list[RunningDaemon] = []
    yield running
    for each in running:
        each.stop()


def query(port: int, expression: str) -> list[dict[str, Any]]:
    text = fetch(f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return json.loads(text)["data"]["result"]


@pytest.mark.release  # two agents and a Prometheus; a machine that is slow samples less often
def test_an_outage_and_a_killed_agent_lose_only_what_was_never_sampled(daemons: list[RunningDaemon], tmp_path) -> None:
    prometheus, port = need("prometheus"), free_port()
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG.format(folder=tmp_path / "state", port=port))

    def start() -> RunningDaemon:
        log = tmp_path / f"agent-{len(daemons)}.log"
        daemon = RunningDaemon(["--config.file", str(config)], log, unmeasured())
        daemons.append(daemon)
        daemon.await_url()
        return daemon

    def pushed(daemon: RunningDaemon, what: str) -> float:
        return sum(daemon.family(f"coldplate_push_{what}", "push").values())

    first = start()
    first.until("two pushes wait", lambda: pushed(first, "pending_age_seconds") > 1.5, 20)
    first.stop(signal.SIGKILL)
    second = start()
    second.until("it waits, too", lambda: pushed(second, "failures_total") > 0, 20)
    (tmp_path / "prometheus.yml").write_text("")
    command = [
        prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
    ]  # fmt: skip
    with program(command, f"http://127.0.0.1:{port}/-/ready", tmp_path / "prometheus.log"):
        second.until("it has sent all", lambda: pushed(second, "pending_bytes") == 0, 40)
        second.until("Prometheus has the page", lambda: compared(second, port), 20)
        before, series = pushed(second, "samples_total"), len(second.page())
        # What only the killed one pushed, nobody can end: all that is stored must be of the second by now.
        second.until("two more", lambda: pushed(second, "samples_total") > before + 1.5 * series, 20)
        dropped = second.family("coldplate_push_samples_dropped_total", "reason")
        assert dropped == {"rejected": 0, "expired": 0, "overflow": 0, "damaged": 0}
        (ticks,) = query(port, "coldplate_ticks_total[10m]")
        values = [(float(at), float(value)) for at, value in ticks["values"]]
        (fall,) = (place for place, (one, next_) in enumerate(pairwise(values)) if next_[1] < one[1])
        assert fall >= 1, "what waited when the first was killed has come"
        runs = values[: fall + 1], values[fall + 1 :]
        assert all(next_[0] - one[0] < 1.6 for run in runs for one, next_ in pairwise(run))
        assert second.stop() == 0
        assert query(port, '{job="coldplate"}') == [], "a series that has ended is not shown for five minutes more"


def compared(daemon: RunningDaemon, port: int) -> bool:
    """Whether the stored series are those of the page. Values move on meanwhile; identity does not."""
    page = {
        identity({**dict(labels), "__name__": name, "instance": "node-1", "job": "coldplate"})
        for name, labels in daemon.page()
    }
    return page == {identity(each["metric"]) for each in query(port, '{job="coldplate"}')}


def identity(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    """An empty label is no label."""
    return frozenset(pair for pair in labels.items() if pair[1])
