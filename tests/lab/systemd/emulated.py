"""The full machine: a Debian of its own with its own kernel, under QEMU, built without mounting anything.

Software emulation, so it runs anywhere and slowly: ten times slower than the machine that it is on. It has a kernel log
and a cgroup v2 of its own, and udev.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab.systemd.lines import Report, follow
from tests.lab.systemd.places import place

WHAT = "Debian with a kernel of its own, under QEMU"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLACE = ROOT / ".programs" / "machine"
"""What is fetched and built once: the programs, and the root file system before anything of ours is put into it."""
PATIENCE = 2400.0
"""Seconds for the boot and all checks."""
CONSOLE = "console=ttyS0 quiet loglevel=1 systemd.show_status=0 mitigations=off"


def unavailable() -> str:
    """Why this machine cannot be had here; "" if it can. Fetches what it needs."""
    if platform.machine() != "x86_64":
        return f"it is an x86-64 machine, and this is {platform.machine()}"
    if os.geteuid() != 0:
        return "it needs root, to make the files of a root file system"
    if shutil.which("apt-get") is None or shutil.which("mke2fs") is None:
        return "apt-get and mke2fs are needed to build its root file system"
    built = subprocess.run(["bash", str(HERE / "build.sh"), str(PLACE)], check=False, stdout=sys.stderr)
    return "" if built.returncode == 0 else "its programs or its root file system could not be fetched"


def run(library: Path, keep: float = 0.0) -> Report:
    """Boot the machine with the stand-in `library` for the driver, and run the checks in it."""
    del keep  # it switches itself off
    began = time.monotonic()
    with place() as folder:
        disk = _disk(folder, library)
        print(f"root file system after {time.monotonic() - began:.0f} s", file=sys.stderr)
        with _booted(folder, disk) as process:
            report = follow(folder / "checks", PATIENCE, lambda: process.poll() is None)
        if not report.complete:
            for name in ("qemu", "console"):
                print((folder / name).read_text(errors="replace")[-3000:], file=sys.stderr)
        return report


def _disk(folder: Path, library: Path) -> Path:
    """A file system with the agent installed in it."""
    root = folder / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(PLACE / "root"), str(root)], check=True)
    subprocess.run(["bash", str(HERE / "prepare.sh"), str(root), str(ROOT), str(library), "emulated"], check=True)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "checks.service").symlink_to("../checks.service")
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(4 * 2**30)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-F", "-d", str(root), str(disk)], check=True)
    shutil.rmtree(root)
    return disk


@contextlib.contextmanager
def _booted(folder: Path, disk: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Without cx16: the emulation of cmpxchg16b by QEMU 7.2 damages flags and memory under a 6.12 kernel.
    command = [
        str(PLACE / "qemu"), "-accel", os.environ.get("ACCEL", "tcg,thread=multi"), "-cpu", "Nehalem,-cx16",
        "-m", "1536", "-smp", "2", "-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot",
        "-serial", f"file:{folder}/console", "-serial", f"file:{folder}/checks",
        "-kernel", str(PLACE / "vmlinuz"), "-initrd", str(PLACE / "initrd"), "-append", f"root=/dev/vda rw {CONSOLE}",
        "-drive", f"file={disk},if=virtio,format=raw",
    ]  # fmt: skip
    with (folder / "qemu").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
