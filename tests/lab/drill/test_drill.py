"""The drill itself: that its faults come about, that the page shows them, and that a miss is said. Nothing is timed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.bench import client
from tests.lab.bench.processes import MIB, Peak
from tests.lab.bench.report import CannotRunError, Progress
from tests.lab.bench.rig import QUICK, ROOT, Rig
from tests.lab.drill import outsiders, reliability
from tests.lab.drill.drilled_daemon import EVERYTHING, Drill, Page, drilled
from tests.lab.drill.driver_faults import STARTS
from tests.lab.drill.fault import Fault
from tests.lab.drill.faults import PLAIN
from tests.lab.drill.measured_fault import BACK, LATENCY, MEMORY, NOTICED, MeasuredFault
from tests.lab.drill.restart_faults import restarts

TRIED = (
    "one GPU hangs",
    "garbage in the worker's output",
    "all files of InfiniBand hang",
    "garbage in all files of a port",
    "configuration: a FIFO",
    "the peer answers garbage",
)
"""One of each kind that is over within a few seconds."""
AT_ONCE = (
    "coldplate_gpu_up",
    "coldplate_infiniband_port_up",
    "coldplate_worker_up",
    "coldplate_config_last_reload_successful",
    "coldplate_rack_peer_up",
)
"""What a page shows from the beginning, and with every snapshot."""


@pytest.fixture(scope="module")
def drill() -> Iterator[Drill]:
    try:
        with Rig(QUICK, Progress()) as rig, drilled(rig) as made:
            _until(lambda: _settled(made.page()))
            yield made
    except CannotRunError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{error}, and CI=true")
        pytest.skip(str(error))


def _settled(page: Page | None) -> bool:
    return page is not None and page.total("coldplate_rack_peer_up") == 1 and page.total("coldplate_gpu_up") == 8


@pytest.mark.parametrize("title", TRIED)
def test_a_fault_shows_on_the_page_and_is_over_with_its_cure(drill: Drill, title: str) -> None:
    (fault,) = (each for each in PLAIN if each.title == title)
    before = drill.page()
    assert before is not None
    assert fault.noticed is not None
    assert fault.cure is not None
    assert not fault.noticed(before, before)
    fault.provoke(drill)
    _until(lambda: (now := drill.page()) is not None and fault.noticed(before, now))
    fault.cure(drill)
    _until(lambda: (now := drill.page()) is not None and not now.differs(before, AT_ONCE))
    assert drill.healthy()


def test_each_fault_has_a_title_of_its_own() -> None:
    titles = [fault.title for fault in (*PLAIN, *(fault for fault, _ in STARTS), *restarts(1))]
    assert len(titles) == len(set(titles))


def _found(**figures: object) -> MeasuredFault:
    fault = Fault("x", "y", lambda drill: None, noticed=lambda before, now: True, device=True)
    found = MeasuredFault(fault, 1.0, 1.0, 1.0, scrapes=[0.001] * 100)
    for name, value in figures.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("name", "within", "beyond", "said"),
    [
        ("noticed", NOTICED, NOTICED + 0.1, "noticed too late"),
        ("noticed", NOTICED, None, "noticed too late"),
        ("back", BACK, BACK + 0.1, "back too late"),
        ("back", BACK, None, "back too late"),
        ("whole", 50.0, None, "never whole"),
        ("memory", MEMORY, MEMORY + 1, "memory"),
        ("scrapes", [LATENCY * 0.9] * 9, [LATENCY * 1.1] * 9, "p99"),
        ("scrapes", [LATENCY * 0.9] * 9, [], "p99"),
        ("troubles", [], ["thread x fell"], "thread x fell"),
    ],
)
def test_a_figure_beyond_its_target_is_named(name: str, within: object, beyond: object, said: str) -> None:
    assert _found(**{name: within}).missed() == []
    assert _found(**{name: beyond}).missed() == [said]


def test_what_is_lost_is_told() -> None:
    assert _found().lost() == "nothing"
    assert _found(down=2.0, fewest=7, scrapes=[0.001, 10.0]).lost() == "samples of 1 GPU for 2.0 s, 1 scrapes"
    assert _found(down=2.0, fewest=6).lost() == "samples of 2 GPUs for 2.0 s"


def test_the_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    document = tmp_path / "reliability.md"
    document.write_text(f"# Before\n\n{reliability.BEGINS}\nold\n{reliability.ENDS}\n\nAfter\n")
    for _ in range(2):
        reliability.write([_found(), _found(why="no compiler")], "A machine.", document)
    text = document.read_text()
    assert text.startswith(f"# Before\n\n{reliability.BEGINS}\n\nA machine.\n\n| fault | expected |")
    assert "| x | y | 1.0 s | 1.0 s | 1.0 s | +0.0 MiB | 1 ms | nothing | met |\n" in text
    assert "| NOT RUN: no compiler |\n" in text
    assert text.endswith(f"{reliability.ENDS}\n\nAfter\n")
    assert "old" not in text
    document.write_text("nothing here")
    with pytest.raises(ValueError, match="put them back"):
        reliability.write([_found()], "", document)


def test_a_page_that_is_not_as_it_was_says_in_what() -> None:
    before = Page('coldplate_gpu_up{gpu="0"} 1\ncoldplate_gpu_sample_age_seconds{gpu="0"} 0.5\n')
    assert before.differs(before, EVERYTHING) == ""
    assert "gpu_up" in Page('coldplate_gpu_up{gpu="0"} 0\n').differs(before, EVERYTHING)
    assert "gpu_up" in Page("").differs(before, EVERYTHING)
    old = Page('coldplate_gpu_up{gpu="0"} 1\ncoldplate_gpu_sample_age_seconds{gpu="0"} 60\n')
    assert "sample_age" in old.differs(before, EVERYTHING)


def test_the_documents_table_has_every_fault() -> None:
    text = reliability.DOCUMENT.read_text()
    for fault in (*PLAIN, *(fault for fault, _ in STARTS)):
        assert f"| {fault.title} | {fault.expected} |" in text, f"run `make drill`: {fault.title} is new, or another"


@pytest.mark.parametrize("manner", outsiders.MANNERS)
def test_those_outside_answer_in_the_manner_that_is_asked_for(manner: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener is closed
                outsiders.serve(listener, lambda: manner, lambda path: b"good")

        threading.Thread(target=serve, daemon=True).start()
        with socket.create_connection(listener.getsockname(), 10) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            if manner == "hang":
                sock.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    sock.recv(1)
                return
            if manner == "reset":
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
                return
            first = sock.recv(1)
            rest = b"" if manner == "well" else _some(sock, 1 << 20)
    expected = {"well": b"g", "drip": b"g"}
    assert first == expected.get(manner, b"H")
    if manner in ("huge", "endless"):
        assert len(rest) >= 1 << 20
    if manner == "garbage":
        with pytest.raises(UnicodeDecodeError):
            rest.decode()


def _some(sock: socket.socket, most: int) -> bytes:
    data = b""
    while len(data) < most and (piece := sock.recv(1 << 16)):
        data += piece
    return data


def test_the_memory_that_a_process_took_in_between_is_seen_after_it_has_given_it_back() -> None:
    code = (
        "import sys; print(flush=True); sys.stdin.readline(); b = b'x' * (50 << 20); del b; print(flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        peak = Peak(program.pid)
        assert peak.look() < 20 * MIB
        program.stdin.write("go\n")
        program.stdin.flush()
        program.stdout.readline()
        assert not peak.marked or peak.look() > 40 * MIB
        assert peak.now() < 20 * MIB
        program.kill()


def test_a_scraper_that_runs_until_it_is_ended_reports_each_scrape_at_once() -> None:
    command = [sys.executable, "-m", "tests.lab.bench.patience", str(client.free_port())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline().split() for _ in range(3)]
        program.kill()
    assert [float(seconds) for _, seconds in lines] == [10.0] * 3  # nobody is there
    assert float(lines[0][0]) < float(lines[1][0]) < float(lines[2][0])


def _until(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(300):
        if holds():
            return
        waiting.wait(0.1)
    raise AssertionError("it never came about")
