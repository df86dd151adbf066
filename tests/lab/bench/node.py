"""The node that is measured: eight GPUs and eight InfiniBand ports, none of them there.

The GPUs are the stand-in for libnvidia-ml.so.1, whose calls cost nothing. The ports are files in a
directory; a thread makes their counters grow as traffic would, because an agent might be cheaper where
nothing ever changes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.infiniband.conftest import FIXTURES, unpack_archive

ARCHIVE = FIXTURES / "dgx-h100.txt"
PORTS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
"""Without the RoCE port of the archive."""

_ARCHIVE_GPUS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
_LIBRARY_GPUS = ("1b", "2b", "3b", "4b", "5b", "6b", "7b", "8b")
"""PCI buses of the GPUs, in the archive and in the stand-in library: they have to be the same GPUs."""

_RATES = {
    "counters/port_rcv_data": 4_000_000_000,  # words of four bytes: 16 GB/s
    "counters/port_xmit_data": 3_900_000_000,
    "counters/port_rcv_packets": 4_000_000,
    "counters/port_xmit_packets": 3_900_000,
    "counters/unicast_rcv_packets": 4_000_000,
    "counters/unicast_xmit_packets": 3_900_000,
    "counters/port_xmit_wait": 70_000,
    "hw_counters/rx_write_requests": 900_000,
    "hw_counters/rx_read_requests": 80_000,
}
"""Growth per second of what moves on a busy port."""

STEP = 0.1


def make_sysfs(directory: Path) -> Path:
    """The tree, with each GPU at the address that the stand-in library gives it."""
    text = ARCHIVE.read_text()
    for old, new in zip(_ARCHIVE_GPUS, _LIBRARY_GPUS, strict=True):
        text = text.replace(f"0000:{old}:00.0", f"0000:{new}:00.0")
    moved = directory / "sysfs.txt"
    moved.write_text(text)
    return unpack_archive(moved, directory / "sysfs", PORTS)


@contextmanager
def traffic(sysfs: Path) -> Iterator[None]:
    """Counters grow during the block."""
    files = [
        _Counter(sysfs / f"class/infiniband/{port}/ports/1/{name}", rate)
        for port in PORTS
        for name, rate in _RATES.items()
    ]
    over = threading.Event()

    def run() -> None:
        began = time.monotonic()
        while not over.wait(STEP):
            for file in files:
                file.show(time.monotonic() - began)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for file in files:
            file.close()


class _Counter:
    """One counter's file. Written in place, in one call, as the agent keeps its descriptor open."""

    def __init__(self, path: Path, rate: int) -> None:
        self._base = int(path.read_text())
        self._rate = rate
        self._file = os.open(path, os.O_WRONLY)

    def show(self, seconds: float) -> None:
        os.pwrite(self._file, b"%d\n" % (self._base + int(self._rate * seconds)), 0)

    def close(self) -> None:
        os.close(self._file)
