"""Descriptors: within a budget that follows the process's limit, the fast lane first, and given back."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.backends.infiniband.infiniband_backend import DESCRIPTORS, descriptor_budget
from agent.model import Lane, Reason

FAST_FILES = 9
"""Of a port of mlx5."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("budget", [0, 5, 9 * FAST_FILES, 9 * FAST_FILES + 5, 10_000])
def test_descriptors_are_kept_within_the_budget_and_given_back(tree, opened, page, now, held, budget: int) -> None:
    sysfs = tree("dgx-h100")
    backend = opened(sysfs, descriptors=lambda: budget)
    first, second = page(backend), page(backend)
    assert first.readings == second.readings
    files = sum(1 for lane in (Lane.FAST, Lane.SLOW) for _ in backend.read(lane, now).readings) - 2 * 9
    assert len(held(sysfs)) == min(budget, files)
    backend.close()
    backend.close()
    assert held(sysfs) == []
    assert backend.read(Lane.FAST, now).readings, "a closed backend opens again"


def test_the_fast_lane_comes_first(tree, opened, page, held) -> None:
    sysfs = tree("dgx-h100")
    page(opened(sysfs, descriptors=lambda: 9 * FAST_FILES))
    fast = {"state", "port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets", "link_downed",
            "link_error_recovery", "symbol_error", "port_xmit_wait"}  # fmt: skip
    assert {Path(file).name for file in held(sysfs)} == fast


def test_a_budget_that_shrinks_and_grows_is_followed(tree, opened, page, held) -> None:
    sysfs = tree("dgx-h100")
    budget = 50
    backend = opened(sysfs, descriptors=lambda: budget)
    page(backend)
    assert len(held(sysfs)) == 50
    budget = 7
    page(backend)
    assert len(held(sysfs)) == 7
    budget = 20
    page(backend)
    page(backend)
    assert len(held(sysfs)) == 20


@pytest.mark.parametrize(
    ("limit", "spare"), [(256, 128), (1024, 512), (8192, DESCRIPTORS), (resource.RLIM_INFINITY, DESCRIPTORS)]
)
def test_half_of_the_limit_is_left_to_the_rest_of_the_agent(monkeypatch, limit: int, spare: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert descriptor_budget() == spare


def test_a_process_out_of_descriptors_loses_that_sample_of_that_file_and_heals(tree, opened, now) -> None:
    backend = opened(tree("dgx-h100"), descriptors=lambda: 9 * FAST_FILES - 1)
    good = backend.read(Lane.FAST, now)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        short = backend.read(Lane.FAST, now)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    (gap,) = short.gaps
    assert gap.reason is Reason.DENIED
    assert "Too many open files: raise LimitNOFILE" in gap.detail
    assert len(short.readings) == len(good.readings) - 1
    assert backend.read(Lane.FAST, now).readings == good.readings


STALE = (errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOENT, errno.EBADF)


@pytest.mark.parametrize("code", STALE)
def test_a_file_that_says_it_is_stale_whenever_it_is_read_is_tried_twice_and_heals(tree, opened, now, code) -> None:
    sick = False
    tries = 0

    def pread(fd: int, size: int, offset: int) -> bytes:
        nonlocal tries
        if sick and os.readlink(f"/proc/self/fd/{fd}").endswith("mlx5_0/ports/1/state"):
            tries += 1
            raise OSError(code, os.strerror(code))
        return os.pread(fd, size, offset)

    backend = opened(tree("dgx-h100"), pread=pread)
    good = backend.read(Lane.FAST, now)
    sick = True
    short = backend.read(Lane.FAST, now)
    assert tries == 2, "through the descriptor, and by the path"
    assert len(short.readings) == len(good.readings) - 2, "its state, and whether it is up"
    sick = False
    assert backend.read(Lane.FAST, now).readings == good.readings


def test_a_descriptor_that_was_closed_elsewhere_costs_nothing(tree, opened, now, held) -> None:
    sysfs = tree("dgx-h100")
    backend = opened(sysfs)
    good = backend.read(Lane.FAST, now)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").endswith("mlx5_0/ports/1/state"):
                os.close(int(name))
                break
    again = backend.read(Lane.FAST, now)
    assert (again.readings, again.gaps) == (good.readings, [])
    backend.close()
    assert held(sysfs) == []


CHILD = """
    import os, resource, socket, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    from agent.backends.infiniband import InfinibandBackend
    from agent.model import Instant, Lane
    backend = InfinibandBackend(sys.argv[1])
    sockets = [socket.socket() for _ in range(400)]
    for second in range(3):
        for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
            sample = backend.read(lane, Instant(float(second), 0.0))
            ports = {each.entity for each in sample.readings}
            print(lane.value, len(ports), len(sample.readings), len(sample.gaps))
    print("open", len(os.listdir("/proc/self/fd")) < 512 + 400 + 20)
"""


def test_a_thousand_ports_are_read_with_the_usual_limit(tmp_path: Path) -> None:
    """8 adapters with 127 virtual functions each, in a process that may have 1,024 descriptors and uses 400."""
    for number in range(8 * 127):
        port = tmp_path / f"class/infiniband/mlx5_{number}/ports/1"
        (port / "counters").mkdir(parents=True)
        for name, content in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "400 Gb/sec (4X NDR)")):
            (port / name).write_text(content)
        for name in ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "link_downed", "port_rcv_errors"):
            (port / "counters" / name).write_text("7")
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.stderr == ""
    *lines, last = child.stdout.splitlines()
    assert lines == ["fast 1016 7112 0", "slow 1016 3048 0", "cold 0 0 1016"] * 3
    assert last == "open True"
