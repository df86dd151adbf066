"""A host made of files: a procfs and a sysfs root that a backend reads instead of the machine's."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.backends.host import HostBackend
from agent.backends.protocol import BackendSample
from agent.model import Gap, Instant, Lane

STAT = """\
cpu  1000 200 3000 400000 5000 60 70 80 500 100
cpu0 500 100 1500 200000 2500 30 35 40 250 50
btime 1700000000
"""
MEMINFO = """\
MemTotal:       2000000 kB
MemFree:         500000 kB
MemAvailable:   1500000 kB
Buffers:          10000 kB
Cached:          100000 kB
Active:          100000 kB
Inactive:        100000 kB
Shmem:             1000 kB
Slab:              1000 kB
SwapTotal:       100000 kB
SwapFree:         60000 kB
"""
DISKSTATS = """\
   7       0 loop0 9 0 72 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 100 0 2000 0 50 0 1000 0 0 0 0 0 0 0 0 0 0
 259       1 nvme0n1p1 100 0 2000 0 50 0 1000 0 0 0 0 0 0 0 0 0 0
   9       0 md0 10 0 2000 0 5 0 1000 0 0 0 0 0 0 0 0 0 0
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0
  eth0: 1000 10 1 2 0 0 0 0 3000 30 3 4 0 0 0 0
eth0v1: 50 5 0 0 0 0 0 0 50 5 0 0 0 0 0 0
veth12: 70 7 0 0 0 0 0 0 70 7 0 0 0 0 0 0
"""
PRESSURE = """\
some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000
full avg10=0.00 avg60=0.00 avg300=0.00 total=250000
"""
EDAC = {
    "mc0/ce_count": 9, "mc0/ue_count": 0, "mc1/ce_count": 0, "mc1/ue_count": 1, "power/control": "auto",
    "mc0/dimm0/dimm_ce_count": 7, "mc0/dimm0/dimm_ue_count": 0, "mc0/dimm0/dimm_label": "CPU1_DIMM_A1",
    "mc1/rank3/dimm_ce_count": 0, "mc1/rank3/dimm_ue_count": 1, "mc1/rank3/dimm_label": "",
}  # fmt: skip
"""Two controllers; two of the first one's errors are of no module that it knows."""


class Host:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.write("stat", STAT)
        self.write("meminfo", MEMINFO)
        self.write("vmstat", "pswpin 0\npswpout 0\n")
        self.write("loadavg", "1.50 2.25 3.75 2/300 1234\n")
        self.write("diskstats", DISKSTATS)
        self.write("net/dev", NET_DEV)
        self.write("filesystems", "nodev\tproc\n\text4\n\txfs\n\tsquashfs\n")
        self.write("self/mounts", "/dev/nvme0n1p1 / ext4 rw 0 0\n")
        for resource in ("cpu", "memory", "io"):
            self.write(f"pressure/{resource}", PRESSURE)
        for name in ("block/loop0", "block/nvme0n1/device", "block/md0", "class/net/lo", "class/net/veth12",
                     "class/net/eth0/device", "class/net/eth0v1/device/physfn"):  # fmt: skip
            (self.sys / name).mkdir(parents=True)
        for name, value in EDAC.items():
            self.write(f"../sys/devices/system/edac/mc/{name}", f"{value}\n")
        self.backend = HostBackend(str(self.proc), str(self.sys))

    def write(self, name: str, text: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self) -> BackendSample:
        return self.backend.read(Lane.SLOW, Instant(1.0, 1.7e9))

    def values(self) -> dict[str, float]:
        """What a page would show, by series as written there."""
        return {repr(reading.series): reading.value for reading in self.read().readings}

    def gaps(self) -> dict[str, Gap]:
        return {gap.metric.name: gap for gap in self.read().gaps}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    before = psutil.PROCFS_PATH
    made = Host(tmp_path)
    try:
        yield made
    finally:
        made.backend.close()
        psutil.PROCFS_PATH = before
