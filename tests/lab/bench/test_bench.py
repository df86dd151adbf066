"""The benchmark itself: that its instruments measure."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.bench import client, patience
from tests.lab.bench.processes import cpu_seconds, memory_of_their_own, proportional_memory, thread_cpu
from tests.lab.bench.report import CannotRunError, Line, Progress, Section, Verdict, at_least, at_most, table, times
from tests.lab.bench.rig import QUICK, Rig, make_sysfs, traffic


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


def test_a_scrape_that_fails_counts_as_one_that_took_as_long_as_prometheus_waits() -> None:
    address = ("127.0.0.1", client.free_port())
    assert patience.scrape(address, client.request(address)) == patience.GIVEN_UP
