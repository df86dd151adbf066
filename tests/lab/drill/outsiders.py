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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
    os.close(sock.detach())


def failing(sock: socket.socket, good: bytes) -> None:
    sock.sendall(answer(b"no", "500 Internal Server Error"))


MANNERS: dict[str, Callable[[socket.socket, bytes], None]] = {
    each.__name__: each for each in (well, hang, garbage, reset, failing)
}


class _Answering(BaseHTTPRequestHandler):
    """One request or several; only who answers well goes on with the next one."""

    protocol_version = "HTTP/1.1"
    manner: Callable[[], str]
    good: Callable[[str], bytes]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        chosen = type(self).manner()
        self.close_connection = chosen != "well"
        with suppress(OSError):
            MANNERS[chosen](self.connection, type(self).good(self.path))

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


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

        def manner(name: str = name) -> str:
            return str(json.loads(file.read_text())[name])

        handler = type(name, (_Answering,), {"manner": staticmethod(manner), "good": staticmethod(reply)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(name, server.server_port, flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
