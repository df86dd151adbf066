"""The host's figures, from files whose numbers are known."""

import errno
import os
import shutil
import threading
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from agent.backends.host.disks_and_network import block_mounts
from agent.backends.host.host_faults import MAX_MOUNTS
from agent.catalogue import SECTIONS
from agent.catalogue.node import GPU_DRIVER_ERRORS, GPU_SUMS, METERS, NODE_POWER, NODE_POWER_FALLBACK, NVSWITCH, RAPL
from agent.model import Gap, Instant, Kind, Lane, Reason
from tests.waiting import wait_until

TICK = os.sysconf("SC_CLK_TCK")
SECTOR = 512
KIB = 1024


def test_processor_seconds_by_mode_count_guests_once_and_iowait_never_falls(host) -> None:
    iowait = 'coldplate_node_cpu_seconds_total{mode="iowait"}'
    values = host.values()
    modes = {name: value for name, value in values.items() if name.startswith("coldplate_node_cpu_seconds_total")}
    assert modes[iowait] == pytest.approx(5000 / TICK)
    assert modes['coldplate_node_cpu_seconds_total{mode="user"}'] == pytest.approx(1000 / TICK)
    assert sum(modes.values()) == pytest.approx((1000 + 200 + 3000 + 400000 + 5000 + 60 + 70 + 80) / TICK)
    host.write("stat", f"cpu  1000 200 3000 400000 {5000 - TICK} 60 70 80 0 0\nbtime 1700000000\n")
    assert host.values()[iowait] == modes[iowait], "one that steps back a little is held"


def test_memory_is_in_bytes_and_used_is_what_is_not_available(host) -> None:
    values = host.values()
    assert values["coldplate_node_memory_total_bytes{}"] == 2_000_000 * KIB
    assert values["coldplate_node_memory_available_bytes{}"] == 1_500_000 * KIB
    assert values["coldplate_node_memory_used_bytes{}"] == 500_000 * KIB
    assert values["coldplate_node_swap_used_bytes{}"] == 40_000 * KIB


def test_memory_errors_are_those_of_all_controllers_and_of_each_module(host) -> None:
    errors = {name: value for name, value in host.values().items() if "_memory_errors_" in name or "_dimm_" in name}
    assert errors == {
        'coldplate_node_memory_errors_total{type="corrected"}': 9,
        'coldplate_node_memory_errors_total{type="uncorrected"}': 1,
        'coldplate_node_dimm_errors_total{controller="mc0",dimm="dimm0",slot="CPU1_DIMM_A1",type="corrected"}': 7,
        'coldplate_node_dimm_errors_total{controller="mc0",dimm="dimm0",slot="CPU1_DIMM_A1",type="uncorrected"}': 0,
        'coldplate_node_dimm_errors_total{controller="mc1",dimm="rank3",slot="",type="corrected"}': 0,
        'coldplate_node_dimm_errors_total{controller="mc1",dimm="rank3",slot="",type="uncorrected"}': 1,
    }


@pytest.mark.parametrize(("broken", "reason"), [("mc0/ce_count", Reason.MALFORMED), ("", Reason.UNSUPPORTED)])
def test_memory_errors_that_cannot_be_read_are_missing_and_never_0(host, broken: str, reason: Reason) -> None:
    root = host.sys / "devices/system/edac/mc"
    if broken:
        (root / broken).write_text("many\n")
    else:
        shutil.rmtree(root)
    assert not [name for name in host.values() if "_memory_errors_" in name or "_dimm_" in name]
    gaps = host.gaps()
    assert gaps["coldplate_node_memory_errors_total"].reason is reason
    assert gaps["coldplate_node_dimm_errors_total"].reason is reason


def test_only_whole_physical_disks_are_shown_and_none_is_no_gap(host) -> None:
    assert {name: value for name, value in host.values().items() if "_disk_" in name} == {
        'coldplate_node_disk_read_bytes_total{device="nvme0n1"}': 2000 * SECTOR,
        'coldplate_node_disk_written_bytes_total{device="nvme0n1"}': 1000 * SECTOR,
    }
    (host.sys / "block/nvme0n1/device").rmdir()
    assert not any("_disk_" in name for name in host.values())
    assert not host.gaps()


def test_only_physical_interfaces_are_shown_and_no_virtual_function(host) -> None:
    network = {name: value for name, value in host.values().items() if "_network_" in name}
    assert network == {
        'coldplate_node_network_receive_bytes_total{device="eth0"}': 1000,
        'coldplate_node_network_transmit_bytes_total{device="eth0"}': 3000,
        'coldplate_node_network_receive_errors_total{device="eth0"}': 1,
        'coldplate_node_network_transmit_errors_total{device="eth0"}': 3,
        'coldplate_node_network_receive_drops_total{device="eth0"}': 2,
        'coldplate_node_network_transmit_drops_total{device="eth0"}': 4,
    }


def test_load_boot_time_pressure_and_identity(host) -> None:
    values = host.values()
    assert [values[f"coldplate_node_load{n}{{}}"] for n in (1, 5, 15)] == [1.5, 2.25, 3.75]
    assert values["coldplate_node_boot_timestamp_seconds{}"] == 1_700_000_000
    assert values['coldplate_node_pressure_waiting_seconds_total{resource="io"}'] == 1.5
    assert values['coldplate_node_pressure_stalled_seconds_total{resource="cpu"}'] == 0.25
    release, machine = os.uname().release, os.uname().machine
    assert values[f'coldplate_node_info{{kernel="{release}",machine="{machine}"}}'] == 1


def test_the_root_is_always_shown_and_a_vanished_filesystem_affects_only_itself(host) -> None:
    size = 'coldplate_node_filesystem_size_bytes{mountpoint="/"}'
    host.write("self/mounts", "overlay / overlay rw 0 0\n")
    assert host.values()[size] > 0
    host.write("self/mounts", f"/dev/a / ext4 rw 0 0\n/dev/b {host.root}/gone ext4 rw 0 0\n")
    assert size in host.values()
    assert "gone" in host.gaps()["coldplate_node_filesystem_size_bytes"].detail


def test_mounts_of_containers_images_and_second_mounts_of_a_disk_are_left_out(host) -> None:
    data = host.root / "data"
    again = host.root / "data" / "again"
    image = host.root / "image"
    for directory in (again, image):
        directory.mkdir(parents=True)
    host.write(
        "self/mounts",
        "/dev/a / ext4 rw 0 0\n"
        f"/dev/b {again} xfs rw 0 0\n"
        f"/dev/b {data} xfs rw 0 0\n"
        f"/dev/c {image} squashfs ro 0 0\n"
        "/dev/d /var/lib/kubelet/pods/x ext4 rw 0 0\n"
        "proc /proc proc rw 0 0\n",
    )
    shown = {name for name in host.values() if name.startswith("coldplate_node_filesystem_used_bytes")}
    assert shown == {f'coldplate_node_filesystem_used_bytes{{mountpoint="{at}"}}' for at in ("/", data)}


@pytest.mark.parametrize(("code", "reason"), [(errno.EBUSY, Reason.TIMEOUT), (errno.EINVAL, Reason.UNSUPPORTED)])
def test_what_the_kernel_answers_becomes_the_reason(host, monkeypatch, code: int, reason: Reason) -> None:
    monkeypatch.setattr(psutil, "disk_usage", Mock(side_effect=OSError(code, "refused")))
    assert host.gaps()["coldplate_node_filesystem_size_bytes"].reason is reason


def test_a_kernel_without_pressure_figures_is_one_unsupported_gap_of_each_metric(host) -> None:
    for resource in ("cpu", "memory", "io"):
        (host.proc / "pressure" / resource).unlink()
    sample = host.read()
    assert [(gap.metric.name, gap.reason) for gap in sample.gaps] == [
        ("coldplate_node_pressure_waiting_seconds_total", Reason.UNSUPPORTED),
        ("coldplate_node_pressure_stalled_seconds_total", Reason.UNSUPPORTED),
    ]
    assert all("pressure" in gap.detail for gap in sample.gaps)
    assert sample.readings


def test_readings_have_the_labels_and_range_of_their_metric_and_reuse_series(host) -> None:
    readings = host.read().readings
    for reading in readings:
        row = reading.metric
        assert tuple(name for name, _ in reading.series.labels) == row.labels
        assert row.span[0] <= reading.value <= row.span[1]
        assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)
    assert [id(reading.series) for reading in host.read().readings] == [id(each.series) for each in readings]


def test_every_row_of_the_host_is_read_or_explained(host) -> None:
    told = set()
    for lane in (Lane.SLOW, Lane.COLD):
        sample = host.backend.read(lane, Instant(1.0, 1.7e9))
        told |= {reading.metric.name for reading in sample.readings} | {gap.metric.name for gap in sample.gaps}
    told.add("coldplate_node_mount_up")  # this host has no network filesystem
    elsewhere = {
        row.name for row in (NODE_POWER, NODE_POWER_FALLBACK, *METERS, *RAPL, *NVSWITCH, *GPU_DRIVER_ERRORS, *GPU_SUMS)
    }
    rows = (row for word, _, rows in SECTIONS if word.startswith("node-") for row in rows)
    assert told == {row.name for row in rows} - elsewhere


def test_a_file_that_is_garbled_halfway_gives_gaps_and_no_half_of_its_figures(host) -> None:
    host.write("loadavg", "1.50 banana 3.75 2/300 1234\n")
    sample = host.read()
    loads = {f"coldplate_node_load{minutes}" for minutes in (1, 5, 15)}
    assert {gap.metric.name for gap in sample.gaps} == loads
    assert not loads & {reading.metric.name for reading in sample.readings}


def test_mounts_are_those_with_a_device_behind_them_and_their_names_are_undone(host) -> None:
    host.write("filesystems", "nodev\tproc\nnodev\tzfs\nnodev\toverlay\n\text4\n\txfs\n")
    host.write(
        "self/mounts",
        "none /a ext4 rw 0 0\nproc /proc proc rw 0 0\noverlay / overlay rw 0 0\ntank /tank zfs rw 0 0\n\n"
        "short line\n/dev/sdb /with\\040blank\\134and\\043 xfs rw 0 0\n/dev/sdc /cut ext4",
    )
    assert block_mounts(str(host.proc)) == [("tank", "/tank", "zfs"), ("/dev/sdb", "/with blank\\and#", "xfs")]


# Faults of the host that stop jobs: dead filesystems, stuck processes, Fabric Manager, the module for RDMA.
UP, STUCK, MANAGER, PEERMEM = (
    f"coldplate_node_{name}" for name in ("mount_up", "processes_stuck", "fabric_manager_up", "peermem_loaded")
)


def look(host: Any, second: float = 1.0) -> tuple[dict[str, float], dict[str, Gap]]:
    """The values by metric, or by mount point, and the gaps."""
    sample = host.backend.read(Lane.COLD, Instant(second, 1.7e9))
    values = {dict(series.labels).get("mountpoint", series.metric.name): value for series, value in sample.readings}
    return values, {gap.metric.name: gap for gap in sample.gaps}


def process(
    host: Any, pid: int, state: str = "S", command: str = "python", switches: int = 7, flags: int = 0x400000
) -> None:
    zeros = " ".join(["0"] * 14)
    host.write(f"{pid}/stat", f"{pid} ({command}) {state} 1 9 9 0 0 {flags} {zeros} 0 0\n")
    host.write(f"{pid}/status", f"Name:\t{command}\nvoluntary_ctxt_switches:\t{switches}\n")
    host.write(f"{pid}/comm", f"{command}\n")


@pytest.fixture
def dead(host: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Filesystems by mount point: an error, or an event that is waited for."""
    found: dict[str, Any] = {}
    real = os.statvfs

    def statvfs(path: str) -> Any:
        trouble = found.get(path)
        if isinstance(trouble, int):
            raise OSError(trouble, os.strerror(trouble))
        if trouble is not None:
            trouble.wait(30)
        return real("/")

    monkeypatch.setattr(os, "statvfs", statvfs)
    return found


MOUNTS = """\
srv:/a /a nfs4 rw 0 0
ost /b lustre rw 0 0
s3 /c fuse.s3fs rw 0 0
srv:/home /home nfs rw 0 0
tmpfs /home tmpfs ro 0 0
/dev/sda1 / ext4 rw 0 0
"""


def test_a_filesystem_that_hangs_for_minutes_costs_one_row(host: Any, dead: dict[str, Any]) -> None:
    host.write("self/mounts", MOUNTS)
    assert look(host)[0].items() >= {"/a": 1, "/b": 1, "/c": 1}.items()
    dead["/a"] = threading.Event()
    for minute in range(1, 4):
        values, _ = look(host, 60.0 * minute)
        assert values.items() >= {"/a": 0, "/b": 1, "/c": 1}.items()
    dead["/a"].set()
    dead.clear()
    wait_until(lambda: look(host, 300.0)[0]["/a"])
    assert look(host, 301.0)[0]["/a"] == 1


def test_a_filesystem_without_its_server_is_down_and_a_hidden_one_is_absent(host: Any, dead: dict[str, Any]) -> None:
    host.write("self/mounts", MOUNTS)
    dead.update({"/a": errno.ESTALE, "/b": errno.ESHUTDOWN, "/c": errno.EACCES})
    values, _ = look(host)
    assert (values["/a"], values["/b"]) == (0, 0)
    assert not {"/c", "/home"} & values.keys()


def test_network_filesystems_beyond_the_limit_are_counted(host: Any, dead: dict[str, Any]) -> None:
    assert dead == {}
    host.write("self/mounts", "".join(f"srv:/{n:02} /data/{n:02} nfs4 rw 0 0\n" for n in range(MAX_MOUNTS + 3)))
    values, _ = look(host)
    assert sum(name.startswith("/data/") for name in values) == MAX_MOUNTS
    assert host.backend.read(Lane.SLOW, Instant(2.0, 1.7e9)).left_out == 3


def test_a_process_is_stuck_that_does_not_run_for_two_minutes(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    process(host, 1)
    host.write("stat", (host.proc / "stat").read_text() + "procs_blocked 2\n")
    process(host, 700, "D", "dd")
    process(host, 701, "D", "busy")
    process(host, 702, "D", "kdamond", flags=0x208040)
    for minute in range(2):
        process(host, 701, "D", "busy", switches=minute)
        assert look(host, 60.0 * minute)[0][STUCK] == 0
    process(host, 701, "D", "busy", switches=9)
    assert look(host, 120.0)[0][STUCK] == 1
    assert look(host, 180.0)[0][STUCK] == 1
    told = [record for record in caplog.records if "stuck" in record.message]
    assert [(each.facts["pid"], each.facts["command"]) for each in told] == [("700", "dd")]  # type: ignore[attr-defined]
    process(host, 700, "S", "dd")
    process(host, 701, "D", "busy", switches=10)
    assert look(host, 240.0)[0][STUCK] == 0


def test_fabric_manager_needs_switches_and_peermem_needs_infiniband(host: Any) -> None:
    gaps = look(host)[1]
    assert {gaps[each].reason for each in (STUCK, PEERMEM)} == {Reason.UNSUPPORTED}
    process(host, 1)
    gaps = look(host)[1]
    assert gaps[STUCK].reason is Reason.MALFORMED, "processes are not counted, where before they were hidden"
    assert gaps[MANAGER].reason is Reason.UNSUPPORTED
    (host.proc / "driver/nvidia-nvswitch/devices/0000:c1:00.0").mkdir(parents=True)
    assert look(host)[0][MANAGER] == 0
    for command, running in (("nv-fabricmanage", 1), ("another", 0)):
        process(host, 900, command=command)
        assert look(host)[0][MANAGER] == running
    (host.sys / "class/infiniband/mlx5_0").mkdir(parents=True)
    (host.sys / "module/nvidia").mkdir(parents=True)
    assert look(host)[0][PEERMEM] == 0
    (host.sys / "module/nvidia_peermem").mkdir()
    assert look(host)[0][PEERMEM] == 1
