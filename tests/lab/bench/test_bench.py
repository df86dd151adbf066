"""The benchmark itself: that its instruments measure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tests.lab.bench import client, patience
from tests.lab.bench.rig import make_sysfs, traffic


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came about")


def test_the_ports_counters_grow_and_gpus_are_where_the_stand_in_library_says(tmp_path: Path) -> None:
    sysfs = make_sysfs(tmp_path)
    counter = sysfs / "class/infiniband/mlx5_3/ports/1/counters/port_rcv_data"
    before = int(counter.read_text())
    with traffic(sysfs):
        _until(lambda: int(counter.read_text()) > before)
    gpus = [path for path in (sysfs / "bus/pci/devices").iterdir() if (path / "class").read_text().startswith("0x0302")]
    assert sorted(path.name for path in gpus) == [f"0000:{number:x}b:00.0" for number in range(1, 9)]


def test_a_scrape_that_fails_counts_as_one_that_took_as_long_as_prometheus_waits() -> None:
    address = ("127.0.0.1", client.free_port())
    assert patience.scrape(address, client.request(address)) == patience.GIVEN_UP
