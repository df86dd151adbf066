"""The largest node there is, as files: what its kernel shows after so many seconds of everything at full rate.

224 processors, 2 TB of memory, 16 NVMe disks of PCIe 5, eight ports of 800 Gb/s for InfiniBand and eight for
Ethernet, all as busy as they can be. A check that holds on a smaller machine may fail here.
"""

from pathlib import Path

CPUS = 224
PORTS = 8
DISKS = 16
TICKS = 100
"""Clock ticks of a second (USER_HZ) in /proc/stat."""
LINE_RATE = 100_000_000_000
"""Bytes a second of a port of 800 Gb/s."""
PACKET_RATE = 1_190_000_000
"""Packets of 64 bytes a second at that rate; each takes 84 bytes of the line (IEEE 802.3)."""
DISK_RATE = 14_000_000_000
"""Bytes a second of four lanes of PCIe 5."""

_CPU_FIELDS = 10  # user nice system idle iowait irq softirq steal guest guest_nice (proc(5))


def write_host(proc: Path, sys: Path, uptime: float, mode: int) -> None:
    """procfs and sysfs after `uptime` seconds, all of which every processor spent in the mode of that place."""
    all_cpus, each_cpu = ["0"] * _CPU_FIELDS, ["0"] * _CPU_FIELDS
    all_cpus[mode], each_cpu[mode] = str(round(CPUS * uptime * TICKS)), str(round(uptime * TICKS))
    lines = [f"cpu  {' '.join(all_cpus)}", *(f"cpu{number} {' '.join(each_cpu)}" for number in range(CPUS))]
    _write(proc / "stat", "\n".join([*lines, "btime 1700000000", "procs_blocked 0", ""]))
    _write(proc / "1/stat", "1 (systemd) S 0\n")
    _write(proc / "1/comm", "nv-fabricmanage\n")
    for folder in (proc / "driver/nvidia-nvswitch/devices/0000:c1:00.0", sys / "module/nvidia"):
        folder.mkdir(parents=True, exist_ok=True)
    _write(proc / "loadavg", f"{4 * CPUS}.00 {4 * CPUS}.00 {4 * CPUS}.00 {4 * CPUS}/9000 1234\n")
    kib = 2 * 10**12 // 1024
    memory = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), kib)
    memory.update(dict.fromkeys(("Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab"), 0))
    memory.update(dict.fromkeys(("SwapTotal", "SwapFree"), 0))
    _write(proc / "meminfo", "".join(f"{name}: {size} kB\n" for name, size in memory.items()))
    _write(proc / "vmstat", "pswpin 0\npswpout 0\n")
    _write(proc / "filesystems", "nodev\tproc\n\text4\n")
    _write(proc / "self/mounts", "/dev/nvme0n1 / ext4 rw 0 0\n")
    microseconds = round(uptime * 1e6)
    for resource in ("cpu", "memory", "io"):
        stalled = "".join(f"{kind} avg10=99 avg60=99 avg300=99 total={microseconds}\n" for kind in ("some", "full"))
        _write(proc / "pressure" / resource, stalled)
    _write_disks(proc, sys, uptime)
    _write_interfaces(proc, sys, uptime)
    _write_memory_controllers(sys, uptime)


def _write_memory_controllers(sys: Path, uptime: float) -> None:
    """Sixteen controllers with two modules each, in a storm of errors."""
    errors = round(1e4 * uptime / 32)
    for controller in range(16):
        folder = sys / f"devices/system/edac/mc/mc{controller}"
        for kind in ("ce", "ue"):
            _write(folder / f"{kind}_count", f"{2 * errors}\n")
            for dimm in range(2):
                _write(folder / f"dimm{dimm}/dimm_{kind}_count", f"{errors}\n")
                _write(folder / f"dimm{dimm}/dimm_label", f"P{controller}_DIMM{dimm}\n")


def _write_disks(proc: Path, sys: Path, uptime: float) -> None:
    sectors = round(DISK_RATE * uptime / 512)
    rows = [f" 259 {n} nvme{n}n1 1 0 {sectors} 0 1 0 {sectors} 0 0 0 0 0 0 0 0 0 0" for n in range(DISKS)]
    _write(proc / "diskstats", "\n".join([*rows, ""]))
    for number in range(DISKS):
        (sys / f"block/nvme{number}n1/device").mkdir(parents=True, exist_ok=True)


def _write_interfaces(proc: Path, sys: Path, uptime: float) -> None:
    sent, packets = round(LINE_RATE * uptime), round(PACKET_RATE * uptime)
    one_way = f"{sent} {packets} {packets} {packets} 0 0 0 0"  # every packet an error, and dropped
    rows = [f"  eth{number}: {one_way} {one_way}" for number in range(PORTS)]
    _write(proc / "net/dev", "\n".join(["Inter-|   Receive", " face |bytes", *rows, ""]))
    for number in range(PORTS):
        (sys / f"class/net/eth{number}/device").mkdir(parents=True, exist_ok=True)


def write_fabric(sys: Path, uptime: float) -> None:
    """Eight InfiniBand ports at 800 Gb/s, with a counter of bytes that only their driver knows."""
    words, packets = round(LINE_RATE * uptime / 4), round(PACKET_RATE * uptime)
    for number in range(PORTS):
        device = sys / f"class/infiniband/mlx5_{number}"
        port = device / "ports/1"
        for fact in ("board_id", "fw_ver", "hca_type"):
            _write(device / fact, "MT_0000001332\n")
        _write(port / "link_layer", "InfiniBand\n")
        _write(port / "state", "4: ACTIVE\n")
        _write(port / "phys_state", "5: LinkUp\n")
        _write(port / "rate", "800 Gb/sec (4X XDR)\n")
        for way in ("rcv", "xmit"):
            _write(port / f"counters/port_{way}_data", f"{words}\n")
            for prefix in ("port", "unicast", "multicast"):
                _write(port / f"counters/{prefix}_{way}_packets", f"{packets}\n")
        for name in (
            "counters/port_xmit_wait",
            "counters/port_xmit_discards",
            "hw_counters/out_of_buffer",
            "hw_counters/np_ecn_marked_roce_packets",
            "hw_counters/rx_write_requests",
        ):
            _write(port / name, f"{packets}\n")
        _write(port / "hw_counters/rx_roce_only_bytes", f"{round(LINE_RATE * uptime)}\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
