"""A file or a filesystem that hangs costs its own group of figures, and odd files cost theirs."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest

from agent.backends.host import HostBackend
from agent.backends.host.disks_and_network import MAX_DEVICES, MAX_FILESYSTEMS
from agent.model import Instant, Lane, Reason
from tests.fakes.trees import KINDS
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ROWS_OF = {
    "stat": {"cpu_seconds_total", "boot_timestamp_seconds"},
    "loadavg": {"load1", "load5", "load15"},
    "meminfo": {"memory_total_bytes", "memory_available_bytes", "memory_used_bytes", "swap_used_bytes"},
    "vmstat": {"swap_used_bytes"},
    "diskstats": {"disk_read_bytes_total", "disk_written_bytes_total"},
    "net/dev": {
        f"network_{what}_total"
        for what in (
            "receive_bytes",
            "transmit_bytes",
            "receive_errors",
            "transmit_errors",
            "receive_drops",
            "transmit_drops",
        )
    },
    "self/mounts": {"filesystem_size_bytes", "filesystem_used_bytes"},
    "filesystems": {"filesystem_size_bytes", "filesystem_used_bytes"},
    "pressure/memory": {"pressure_waiting_seconds_total", "pressure_stalled_seconds_total"},
}
"""The rows that are read from each file, without their prefix."""


def rows(names: set[str]) -> set[str]:
    return {f"coldplate_node_{name}" for name in names}


def read(backend: HostBackend, second: float = 1.0) -> tuple[set[str], dict[str, Reason]]:
    """The rows that are shown, and the reasons of those that are not."""
    sample = backend.read(Lane.SLOW, Instant(second, 1.7e9))
    return {each.metric.name for each in sample.readings}, {each.metric.name: each.reason for each in sample.gaps}


@pytest.mark.parametrize("file", sorted(ROWS_OF))
def test_a_file_of_procfs_that_hangs_affects_only_its_own_group(host, odd, file: str) -> None:
    whole, _ = read(host.backend)
    text = (host.proc / file).read_text()
    fresh = HostBackend(str(host.proc), str(host.sys))
    odd.hang(host.proc / file)
    shown, missing = read(fresh)
    assert set(missing) == rows(ROWS_OF[file])
    assert set(missing.values()) == {Reason.TIMEOUT}
    # Of the pressure files, the other two are shown in the same rows.
    assert shown == whole - (rows(ROWS_OF[file]) if file != "pressure/memory" else set())
    odd.release()
    (host.proc / file).unlink()
    host.write(file, text)
    wait_until(lambda: not read(fresh)[1])
    assert read(fresh)[0] == whole
    fresh.close()


CHILD = """
    import os, sys
    from pathlib import Path
    from agent.backends.host import HostBackend
    from agent.model import Instant, Lane
    proc, sysfs, *files = sys.argv[1:]
    writers = [os.open(Path(proc, file), os.O_RDWR) for file in files]  # so that opening returns, and reading does not
    sample = HostBackend(proc, sysfs).read(Lane.SLOW, Instant(1.0, 1.7e9))
    print(*sorted({each.metric.name for each in sample.gaps}), flush=True)
    os._exit(0)
"""


def test_a_read_that_hangs_holds_no_lock_that_the_rest_of_the_process_needs(host, odd) -> None:
    """A library that reads in C may keep the interpreter's lock meanwhile, and then the process stands still."""
    for file in ROWS_OF:
        odd.hang(host.proc / file)
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(host.proc), str(host.sys), *ROWS_OF],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    assert set(child.stdout.split()) == rows(set().union(*ROWS_OF.values()))


@pytest.mark.parametrize("kind", ["endless", "huge"])
@pytest.mark.parametrize("file", ["self/mounts", "filesystems"])
def test_a_list_of_mounts_is_read_within_bounds(host, odd, file: str, kind: str) -> None:
    odd.spoil(host.proc / file, kind)
    assert any('filesystem_size_bytes{mountpoint="/"}' in name for name in host.values())


def test_a_filesystem_whose_disk_is_gone_affects_only_itself_and_is_named(host, monkeypatch) -> None:
    dead = host.root / "dead"
    dead.mkdir()
    host.write("self/mounts", f"/dev/a / ext4 rw 0 0\n/dev/b {dead} xfs rw 0 0\n/dev/c {host.root} xfs rw 0 0\n")
    gate = threading.Event()
    asked: list[str] = []
    usage = psutil.disk_usage

    def hang(path: str) -> object:
        asked.append(path)
        if path == str(dead):
            gate.wait(60)
        return usage(path)

    monkeypatch.setattr(psutil, "disk_usage", hang)
    for second in range(3):
        sample = host.backend.read(Lane.SLOW, Instant(float(second), 1.7e9))
        shown = {dict(each.labels)["mountpoint"] for each in sample.readings if "filesystem" in each.metric.name}
        assert shown == {"/", str(host.root)}
        assert {gap.metric.name for gap in sample.gaps} == rows(ROWS_OF["self/mounts"])
        assert all(f"{dead}: no answer for" in gap.detail for gap in sample.gaps)
        assert any("memory" in each.metric.name for each in sample.readings)
    assert asked.count(str(dead)) == 1, "never more than one in flight"
    gate.set()
    wait_until(lambda: not host.read().gaps)


def test_every_filesystem_may_hang_and_the_rest_of_the_host_is_shown(host, monkeypatch) -> None:
    mounts = [host.root / f"data{number}" for number in range(MAX_FILESYSTEMS + 2)]
    for each in mounts:
        each.mkdir()
    lines = [f"/dev/{number} {each} xfs rw 0 0" for number, each in enumerate(mounts)]
    host.write("self/mounts", "\n".join(["/dev/a / ext4 rw 0 0", *lines, ""]))
    whole, _ = read(host.backend)
    gate = threading.Event()
    monkeypatch.setattr(psutil, "disk_usage", lambda path: gate.wait(60))
    for second in range(2):
        shown, missing = read(host.backend, float(second))
        assert shown == whole - rows(ROWS_OF["self/mounts"])
        assert set(missing.values()) == {Reason.TIMEOUT}
    gate.set()


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"endless", "huge"}))
@pytest.mark.parametrize("file", sorted(ROWS_OF))
def test_whatever_is_in_the_place_of_a_file_affects_only_its_own_group(host, odd, caplog, file: str, kind: str) -> None:
    """Endless and huge files are left out: procfs has none, and psutil reads them whole; lists of mounts are below."""
    whole, _ = read(host.backend)
    fresh = HostBackend(str(host.proc), str(host.sys))
    odd.spoil(host.proc / file, kind)
    shown, missing = read(fresh)
    assert whole - shown <= rows(ROWS_OF[file])
    assert set(missing) <= rows(ROWS_OF[file])
    assert not caplog.records, "an odd file is foreseen"
    no_disks = file == "diskstats" and kind in ("empty", "blank")
    assert whole - shown == (rows(ROWS_OF[file]) if no_disks else set(missing) - shown)
    fresh.close()


def test_hardware_is_recognized_even_where_sysfs_may_not_be_searched(host, odd) -> None:
    """One disk's folder that is odd costs that disk."""
    host.write("diskstats", (host.proc / "diskstats").read_text().replace("loop0", "sda"))
    (host.sys / "block/sda").mkdir()
    odd.spoil(host.sys / "block/sda", "loop")
    odd.spoil(host.sys / "class/net/veth12", "loop")
    values = host.values()
    assert any('disk_read_bytes_total{device="nvme0n1"}' in name for name in values)
    assert not any("sda" in name for name in values)
    assert any('device="eth0"' in name for name in values)


def test_more_devices_than_are_shown_are_counted_and_logged_once(host, caplog) -> None:
    number = MAX_DEVICES + 20
    line = "eth{0}: 1000 10 1 2 0 0 0 0 3000 30 3 4 0 0 0 0\n"
    head = "\n".join((host.proc / "net/dev").read_text().splitlines()[:2])
    host.write("net/dev", head + "\n" + "".join(line.format(each) for each in range(number)))
    for each in range(number):
        (host.sys / f"class/net/eth{each}/device").mkdir(parents=True, exist_ok=True)
    with caplog.at_level("INFO", "coldplate.host"):
        for _ in range(3):
            sample = host.read()
            assert sample.left_out == 6 * 20
            shown = {dict(each.labels)["device"] for each in sample.readings if "network" in each.metric.name}
            assert len(shown) == MAX_DEVICES
    assert len(caplog.records) == 1


def test_mount_points_of_any_bytes_become_labels_that_can_be_shown(host) -> None:
    odd = os.fsencode(host.root) + b"/new\nline\xff"
    os.mkdir(odd)
    written = odd.replace(b"\n", b"\\012")  # as the kernel writes it in /proc/self/mounts
    (host.proc / "self/mounts").write_bytes(b"/dev/a / ext4 rw 0 0\n/dev/b " + written + b" xfs rw 0 0\n")
    labels = [dict(each.labels)["mountpoint"] for each in host.read().readings if "filesystem" in each.metric.name]
    assert len(labels) == 4
    assert all(label.isprintable() for label in labels)
