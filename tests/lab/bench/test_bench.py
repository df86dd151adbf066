"""The benchmark itself, as far as it can be wrong without anybody noticing. Nothing here is timed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from exporters.http_messages import Request, Response
from exporters.server import HttpServer
from tests.lab.bench import abuse, client, patience, rude
from tests.lab.bench.node import PORTS, make_sysfs, traffic
from tests.lab.bench.processes import cpu_seconds, memory_of_their_own, proportional_memory, thread_cpu
from tests.lab.bench.report import CannotRunError, Line, Progress, Section, Verdict, at_least, at_most, table, times
from tests.lab.bench.rig import QUICK, ROOT, Rig


@contextmanager
def _answering(response: bytes) -> Iterator[client.Address]:
    """A server that gives the same bytes, in small pieces, to one client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                for place in range(0, len(response), 7):
                    connection.sendall(response[place : place + 7])

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[:2]
        thread.join()


def test_a_figure_at_its_limit_meets_the_target_and_one_beyond_it_is_said_to_miss() -> None:
    assert at_most("x", 0.8, 0.8, times).verdict is Verdict.MET
    assert at_most("x", 0.81, 0.8, times).verdict is Verdict.MISSED
    assert at_least("x", 1200, 1200, times).verdict is Verdict.MET
    assert at_least("x", 1199, 1200, times).verdict is Verdict.MISSED


def test_a_section_with_a_line_that_could_not_run_is_not_complete_and_the_table_says_why() -> None:
    section = Section("scrapes", (Line("could not run", "node_exporter is not installed", "", Verdict.NOT_RUN),))
    assert not section.complete
    assert "node_exporter is not installed" in table([section])
    assert "NOT RUN" in table([section])


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_the_client_reads_a_whole_compressed_page_however_it_is_framed(framing: str) -> None:
    page = b"some_metric 1\n" * 100
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(page) + packer.flush()
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
    if framing == "length":
        response = head + b"content-length: %d\r\n\r\n" % len(packed) + packed
    else:
        half = len(packed) // 2
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (packed[:half], packed[half:]))
        response = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with _answering(response) as address:
        answer = client.scrape(address, client.request(address))
    assert answer.text == page.decode()
    assert answer.seconds > 0


def test_the_client_refuses_to_count_an_error_as_a_scrape() -> None:
    with (
        _answering(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n") as address,
        pytest.raises(ValueError, match="503"),
    ):
        client.scrape(address, client.request(address))


def test_the_page_is_read_by_name_and_labels() -> None:
    found = client.values_of('# HELP a b\na{x="y z"} 1.5\nb_total 3\n# EOF\n')
    assert found == {'a{x="y z"}': 1.5, "b_total": 3.0}


def test_the_ports_counters_grow_while_there_is_traffic_and_keep_their_form(tmp_path: Path) -> None:
    sysfs = make_sysfs(tmp_path)
    assert sorted(os.listdir(sysfs / "class/infiniband")) == sorted(PORTS)
    counter = sysfs / "class/infiniband/mlx5_3/ports/1/counters/port_rcv_data"
    before = int(counter.read_text())
    with traffic(sysfs):
        _until(lambda: int(counter.read_text()) > before)
    assert counter.read_text().endswith("\n")


def test_gpus_of_the_tree_are_where_the_stand_in_library_says(tmp_path: Path) -> None:
    sysfs = make_sysfs(tmp_path)
    gpus = [path for path in (sysfs / "bus/pci/devices").iterdir() if (path / "class").read_text().startswith("0x0302")]
    assert sorted(path.name for path in gpus) == [f"0000:{number:x}b:00.0" for number in range(1, 9)]


def test_processor_time_of_a_process_grows_and_covers_that_of_its_threads() -> None:
    own = os.getpid()
    before = cpu_seconds([own])
    _until(lambda: cpu_seconds([own]) > before)
    threads = thread_cpu(own)
    assert 0 < sum(threads.values()) <= cpu_seconds([own])


def test_memory_without_neighbours_is_never_less_than_the_share_that_the_kernel_counts() -> None:
    own = os.getpid()
    assert memory_of_their_own([own]) >= proportional_memory(own) * 0.99
    assert memory_of_their_own([own]) < 4 * proportional_memory(own)


def test_a_program_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotRunError, match=r"prometheus-node-exporter is not installed: apt-get install"):
        Rig(QUICK, Progress()).node_exporter().__enter__()


ASKED = {
    "slowloris": set(),
    "snapshots": {"/api/v1/snapshot"},
    "stalled": {"/api/v1/snapshot", "/api/v1/rules", "/metrics"},
    "flood": set(),
    "selections": {"/api/v1/rules"},
    "reloads": {"/-/reload"},
    "compressed": {"/", "/metrics", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules"},
    "heads": {"/metrics"},
}
"""What a server is asked for by each kind of rude client, in requests that it would answer."""


def test_every_kind_of_abuse_has_a_title_and_is_known_here() -> None:
    assert set(abuse.KIND) == set(rude.KINDS) == set(ASKED)


@pytest.mark.parametrize("kind", ASKED)
def test_rude_clients_come_with_what_the_benchmark_says(kind: str) -> None:
    """A request that is refused for its form would cost the daemon next to nothing, and prove nothing."""
    asked: set[str] = set()

    def handler(request: Request) -> Response:
        asked.add(request.path)
        return Response(HTTPStatus.OK, b"x" * 100_000)

    server = HttpServer([("127.0.0.1", 0)], handler, clock=time.monotonic, max_connections=10_000)
    server.start()
    command = [sys.executable, "-m", "tests.lab.bench.rude", kind, str(server.addresses[0][1])]
    try:
        with subprocess.Popen(command, cwd=ROOT) as program:
            try:
                # Some 200 connections for the kinds that mean to take places; the others have one each, at times.
                most = {"slowloris": 200, "stalled": 160, "flood": 100}.get(kind, 1)
                _until(lambda: server.connections >= most and asked >= ASKED[kind])
            finally:
                program.kill()
    finally:
        server.stop()
    assert asked == ASKED[kind]


def test_a_scrape_that_fails_counts_as_one_that_took_as_long_as_prometheus_waits() -> None:
    address = ("127.0.0.1", client.free_port())
    taken: list[float] = []
    patience.scrape_every(address, client.request(address), 0.01, 0.05, taken)
    assert taken
    assert set(taken) == {patience.GIVEN_UP}


def test_a_single_scrape_that_took_all_of_the_time_is_the_highest_hundredth() -> None:
    assert client.highest_hundredth([patience.GIVEN_UP]) == patience.GIVEN_UP
    assert client.highest_hundredth([0.0] * 99 + [1.0, 1.0]) == 1.0


def _until(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(500):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it never came about")
