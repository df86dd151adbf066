"""Tries what a service should and should not be able to do, and writes down what came of it. probe.py FILE"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER_NAMESPACE = 0x10000000
WRITES = (
    "/etc/x", "/usr/x", "/opt/coldplate/x", "/var/x", "/var/log/x", "/run/x", "/sys/kernel/mm/ksm/run",
    "/proc/sys/vm/swappiness", "/dev/kmsg",
)  # fmt: skip
FAMILIES = {"AF_INET": socket.SOCK_STREAM, "AF_INET6": socket.SOCK_STREAM, "AF_UNIX": socket.SOCK_STREAM,
            "AF_NETLINK": socket.SOCK_RAW, "AF_PACKET": socket.SOCK_RAW, "AF_VSOCK": socket.SOCK_STREAM}  # fmt: skip
seen: dict[str, str] = {}


def can(name: str, act: Callable[[], object]) -> None:
    """`yes`, `empty` for a directory or file with nothing in it, or what the kernel said."""
    try:
        result = act()
    except (OSError, ValueError) as error:
        seen[name] = getattr(error, "strerror", None) or str(error)
    else:
        seen[name] = "empty" if result in ([], b"", False) else "yes"


def call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def append(path: str) -> None:
    Path(path).open("a").close()


def reads() -> None:
    can("list /home", lambda: os.listdir("/home"))
    can("list /root", lambda: os.listdir("/root"))
    can("read environment of 1", Path("/proc/1/environ").read_bytes)
    can("read memory of 1", lambda: os.open("/proc/1/mem", os.O_RDONLY))
    can("read cgroup of 1", Path("/proc/1/cgroup").read_bytes)
    can("read /etc/shadow", Path("/etc/shadow").read_bytes)
    can("read the configuration", lambda: os.stat("/etc/coldplate"))
    can("read kernel log handed over", lambda: os.fstat(0).st_rdev == os.makedev(1, 11))
    can("open the management controller", lambda: os.open("/dev/ipmi0", os.O_RDWR))
    can("open /dev/kmsg itself", lambda: Path("/dev/kmsg").open("rb").close())


def deeds() -> None:
    for path in WRITES:
        can(f"write {path}", lambda path=path: append(path))
    can("write its state", lambda: append(sys.argv[1]))
    can("write /tmp of its own", lambda: append("/tmp/probe"))
    for name, kind in FAMILIES.items():
        can(f"socket {name}", lambda name=name, kind=kind: socket.socket(getattr(socket, name), kind).close())
    can("namespace of its own", lambda: call(LIBC.unshare, NEW_USER_NAMESPACE))
    can("mount", lambda: call(LIBC.mount, b"x", b"/tmp", b"tmpfs", 0, None))
    can("become root", lambda: os.setuid(0))
    can("signal 1", lambda: os.kill(1, 0))
    can("writable memory to execute", lambda: mmap.mmap(-1, 4096, prot=7).close())
    can("setuid file", lambda: os.chmod("/tmp/probe", 0o4755))


reads()
deeds()
Path(sys.argv[1]).write_text(json.dumps(seen))
