"""Faults of the host that stop jobs: dead filesystems, stuck processes, Fabric Manager, the module for RDMA."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

import pytest

from agent.backends.host.host_faults import MAX_MOUNTS
from agent.model import Gap, Instant, Lane, Reason

LEFT_OUT = "coldplate_backend_series_left_out"
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
    for _ in range(200):
        if look(host, 300.0)[0]["/a"]:
            break
        threading.Event().wait(0.02)
    assert look(host, 301.0)[0]["/a"] == 1


def test_a_filesystem_whose_server_is_gone_is_down_and_one_that_may_not_be_seen_is_absent(
    host: Any, dead: dict[str, Any]
) -> None:
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
    readings = dict(host.backend.read(Lane.SLOW, Instant(2.0, 1.7e9)).readings)
    assert {value for series, value in readings.items() if series.metric.name == LEFT_OUT} == {3}


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


def test_nothing_is_said_of_processes_that_are_hidden_or_not_counted(host: Any) -> None:
    assert look(host)[1][STUCK].reason is Reason.UNSUPPORTED
    process(host, 1)
    assert look(host)[1][STUCK].reason is Reason.MALFORMED


def test_fabric_manager_is_looked_for_where_there_are_switches(host: Any) -> None:
    process(host, 1)
    assert look(host)[1][MANAGER].reason is Reason.UNSUPPORTED
    (host.proc / "driver/nvidia-nvswitch/devices/0000:c1:00.0").mkdir(parents=True)
    assert look(host)[0][MANAGER] == 0
    process(host, 900, command="nv-fabricmanage")
    assert look(host)[0][MANAGER] == 1
    process(host, 900, command="another")
    assert look(host)[0][MANAGER] == 0


def test_the_module_for_rdma_is_looked_for_where_there_is_infiniband(host: Any) -> None:
    assert look(host)[1][PEERMEM].reason is Reason.UNSUPPORTED
    (host.sys / "class/infiniband/mlx5_0").mkdir(parents=True)
    (host.sys / "module/nvidia").mkdir(parents=True)
    assert look(host)[0][PEERMEM] == 0
    (host.sys / "module/nvidia_peermem").mkdir()
    assert look(host)[0][PEERMEM] == 1
