"""The benchmark itself: that its instruments measure, and that its rude clients come with what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest

from exporters.http_messages import Request, Response
from exporters.server import HttpServer
from tests.lab.bench import abuse, client, patience, rude
from tests.lab.bench.node import make_sysfs, traffic
from tests.lab.bench.processes import cpu_seconds, memory_of_their_own, proportional_memory, thread_cpu
from tests.lab.bench.report import CannotRunError, Line, Progress, Section, Verdict, at_least, at_most, table, times
from tests.lab.bench.rig import QUICK, ROOT, Rig

ASKED: dict[str, tuple[int, set[str]]] = {
    "slowloris": (200, set()),
    "snapshots": (1, {"/api/v1/snapshot"}),
    "stalled": (160, {"/api/v1/snapshot", "/api/v1/rules", "/metrics"}),
    "flood": (100, set()),
    "selections": (1, {"/api/v1/rules"}),
    "reloads": (1, {"/-/reload"}),
    "compressed": (1, {"/", "/metrics", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules"}),
    "heads": (1, {"/metrics"}),
}
"""How many connections each kind of rude client makes at least, and what it asks for in requests that are answered."""


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came about")


def test_a_missed_target_and_what_could_not_run_are_in_the_table() -> None:
    assert at_most("x", 0.8, 0.8, times).verdict is at_least("x", 1200, 1200, times).verdict is Verdict.MET
    assert at_most("x", 0.81, 0.8, times).verdict is at_least("x", 1199, 1200, times).verdict is Verdict.MISSED
    section = Section("scrapes", (Line("could not run", "node_exporter is not installed", "", Verdict.NOT_RUN),))
    assert not section.complete
    assert "NOT RUN" in table([section])


def test_processor_time_and_memory_of_this_process_are_seen() -> None:
    own = os.getpid()
    before = cpu_seconds([own])
    _until(lambda: cpu_seconds([own]) > before)
    assert 0 < sum(thread_cpu(own).values()) <= cpu_seconds([own])
    assert proportional_memory(own) * 0.99 <= memory_of_their_own([own]) < 4 * proportional_memory(own)


def test_the_ports_counters_grow_and_gpus_are_where_the_stand_in_library_says(tmp_path: Path) -> None:
    sysfs = make_sysfs(tmp_path)
    counter = sysfs / "class/infiniband/mlx5_3/ports/1/counters/port_rcv_data"
    before = int(counter.read_text())
    with traffic(sysfs):
        _until(lambda: int(counter.read_text()) > before)
    gpus = [path for path in (sysfs / "bus/pci/devices").iterdir() if (path / "class").read_text().startswith("0x0302")]
    assert sorted(path.name for path in gpus) == [f"0000:{number:x}b:00.0" for number in range(1, 9)]


def test_a_program_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotRunError, match=r"prometheus-node-exporter is not installed: apt-get install"):
        Rig(QUICK, Progress()).node_exporter().__enter__()


@pytest.mark.parametrize("kind", ASKED)
def test_rude_clients_come_with_what_the_benchmark_says(kind: str) -> None:
    """A request that is refused for its form would cost the daemon next to nothing, and prove nothing. And a scraper
    measures beside them."""
    assert set(abuse.KIND) == set(rude.KINDS) == set(ASKED)
    asked: set[str] = set()

    def handler(request: Request) -> Response:
        asked.add(request.path)
        return Response(HTTPStatus.OK, b"x" * 100_000)

    server = HttpServer([("127.0.0.1", 0)], handler, clock=time.monotonic, max_connections=10_000)
    server.start()
    command = [sys.executable, "-m", "tests.lab.bench.rude", kind, str(server.addresses[0][1])]
    connections, paths = ASKED[kind]
    try:
        with subprocess.Popen(command, cwd=ROOT) as program:
            try:
                _until(lambda: server.connections >= connections and asked >= paths)
                assert asked == paths
            finally:
                program.kill()
        answer = client.scrape(server.addresses[0], client.request(server.addresses[0]))
        assert answer.seconds > 0
    finally:
        server.stop()


def test_a_scrape_that_fails_counts_as_one_that_took_as_long_as_prometheus_waits() -> None:
    address = ("127.0.0.1", client.free_port())
    taken: list[float] = []
    patience.scrape_every(address, client.request(address), 0.01, 0.05, taken)
    assert set(taken) == {patience.GIVEN_UP} == {client.highest_hundredth(taken)}
