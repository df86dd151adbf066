"""What somebody who took over the broker would try first; its exit status says what came of it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

NOTHING = 100
"""The status with which it ends where all was refused; else 10 and the number of what was not."""
BREAKPOINT = b"\xcc"


def memory() -> None:
    """Write into another process, where its program lies."""
    at = int(Path("/proc/1/maps").read_bytes().partition(b"-")[0], 16)
    file = os.open("/proc/1/mem", os.O_RDWR)
    try:
        os.pwrite(file, BREAKPOINT, at)
    except OSError:
        os.lseek(file, at, os.SEEK_SET)
        os.write(file, BREAKPOINT)


def write_to(path: str) -> None:
    os.write(os.open(path, os.O_RDWR | os.O_CREAT), b"x")


def speak_to(path: str) -> None:
    socket.socket(socket.AF_UNIX).connect(path)


# /proc/1/root leads out of the broker's own file system.
TRIED: tuple[Callable[[], object], ...] = (
    memory,
    lambda: write_to("/proc/1/root/tmp/taken-over"),
    lambda: write_to("/proc/1/root/etc/taken-over"),
    lambda: write_to("/proc/1/root/proc/sys/kernel/core_pattern"),
    lambda: write_to("/proc/1/root/dev/kmsg"),
    lambda: speak_to("/proc/1/root/run/systemd/private"),
    lambda: speak_to("/run/coldplate-broker.sock"),
    lambda: os.open("/proc/1/root/etc/hostname", os.O_WRONLY | os.O_TRUNC),
    lambda: os.rename("/proc/1/root/etc/hostname", "/proc/1/root/etc/hostname.old"),
    lambda: os.unlink("/proc/1/root/etc/hostname"),
    lambda: os.mkdir("/proc/1/root/etc/taken-over.d"),
    lambda: os.chmod("/proc/1/root/bin/sh", 0o4755),
    lambda: socket.socket(socket.AF_INET),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    lambda: os.kill(1, 0),
    lambda: os.setuid(0),
    lambda: os.listdir("/home"),
    lambda: Path("/etc/passwd").read_bytes(),
)

for number, attempt in enumerate(TRIED, 11):
    try:
        attempt()
    except OSError:
        continue
    sys.exit(number)
sys.exit(NOTHING)
