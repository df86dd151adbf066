"""Those whom a daemon asks and tells: a receiver of alerts, a peer, a management controller. They may answer badly.

`python -m tests.lab.drill.outsiders FILE` serves all until it is ended, and prints their ports. FILE has JSON with the
manner of each (`MANNERS`), and is read anew for each request.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.rack.conftest import answer, tell

NICE = 19
PATIENCE = 60.0
"""Seconds that one who does not answer keeps a connection."""


def well(sock: socket.socket, good: bytes) -> None:
    sock.sendall(good)


def hang(sock: socket.socket, good: bytes) -> None:
    """No answer, until the other one hangs up."""
    sock.settimeout(PATIENCE)
    with suppress(TimeoutError):
        sock.recv(1)


def garbage(sock: socket.socket, good: bytes) -> None:
    """The right form, and nothing in it that anybody could mean."""
    sock.sendall(answer(b'{"version": 1, "watts": [' + b"[" * 5000 + b"\xff\xfe\x00"))


def reset(sock: socket.socket, good: bytes) -> None:
    """The connection ends with a reset, in the place of an answer."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def failing(sock: socket.socket, good: bytes) -> None:
    sock.sendall(answer(b"no", "500 Internal Server Error"))


MANNERS: dict[str, Callable[[socket.socket, bytes], None]] = {
    each.__name__: each for each in (well, hang, garbage, reset, failing)
}


def serve(listener: socket.socket, manner: Callable[[], str], good: Callable[[str], bytes]) -> None:
    """Each connection has a thread, and mostly one request; who answers well goes on with the next one."""

    def attend(sock: socket.socket) -> None:
        with sock, suppress(OSError, ValueError):
            while (path := _read_request(sock)) is not None:
                chosen = manner()
                MANNERS[chosen](sock, good(path))
                if chosen != "well":
                    return

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=attend, args=(sock,), daemon=True).start()


def _read_request(sock: socket.socket) -> str | None:
    """Take a whole request; the path that it is for, None if there was none."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(1 << 16)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    left = length - len(body)
    while left > 0:
        left -= len(sock.recv(1 << 16)) or left
    return head.split(b" ")[1].decode()


CHASSIS = "/redfish/v1/Chassis"
DOCUMENTS: dict[str, Any] = {
    CHASSIS: {"Members": [{"@odata.id": f"{CHASSIS}/1"}]},
    f"{CHASSIS}/1": {
        "Id": "1", "ChassisType": "RackMount", "Power": {"@odata.id": f"{CHASSIS}/1/Power"},
        "LeakDetectors": {"@odata.id": f"{CHASSIS}/1/LeakDetectors"},
    },
    f"{CHASSIS}/1/LeakDetectors": {"Members": [{"@odata.id": f"{CHASSIS}/1/LeakDetectors/manifold"}]},
    f"{CHASSIS}/1/LeakDetectors/manifold": {"Id": "manifold", "DetectorState": "OK"},
    f"{CHASSIS}/1/Power": {"PowerControl": [{"PowerConsumedWatts": 6000}]},
}  # fmt: skip


def controller(path: str) -> bytes:
    """What a management controller says of the node's power, and of its leak detector."""
    document = DOCUMENTS.get(path.rstrip("/"))
    return answer(json.dumps(document).encode()) if document else answer(b"{}", "404 Not Found")


def main(file: Path) -> None:
    os.nice(NICE)
    report = tell()
    good: dict[str, Callable[[str], bytes]] = {
        "receiver": lambda path: answer(b"{}"),
        "peer": lambda path: report(),
        "controller": controller,
    }
    for name, reply in good.items():
        listener = socket.create_server(("127.0.0.1", 0))

        def manner(name: str = name) -> str:
            return str(json.loads(file.read_text())[name])

        threading.Thread(target=serve, args=(listener, manner, reply), daemon=True).start()
        print(name, listener.getsockname()[1], flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
