"""Those whom a daemon asks and tells: a receiver of alerts, a peer, a management controller. They may answer badly.

`python -m tests.lab.drill.outsiders FILE` serves all until it is ended, and prints their ports. FILE has JSON with the
manner of each (`MANNERS`), and is read anew for each request.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent.backends.redfish_service import ROOT
from agent.backends.synthetic.rack_service import Collection, Linked, documents_below
from tests.http_client.conftest import Server
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


class Outsider(Server):
    """Answers as the file has it for its name, where it answers well with what `good` gives for a path."""

    def __init__(self, name: str, manners: Path, good: Callable[[str], bytes]) -> None:
        self._name, self._manners, self._good = name, manners, good
        super().__init__(lambda held, number: None)

    def take(self, held: socket.socket, question: bytes, body: bytes) -> None:
        manner = json.loads(self._manners.read_text())[self._name]
        MANNERS[manner](held, self._good(question.split()[1].decode()))
        if manner != "well":
            raise ConnectionAbortedError("only who answers well goes on with the next request")


_CHASSIS = {
    "Id": "1",
    "ChassisType": "RackMount",
    "Power": Linked(PowerControl=[{"PowerConsumedWatts": 6000}]),
    "LeakDetectors": Collection({"manifold": {"Id": "manifold", "DetectorState": "OK"}}),
}
DOCUMENTS = documents_below(ROOT, {"Chassis": Collection({"1": _CHASSIS})})


def controller(path: str) -> bytes:
    """What a management controller says of the node's power, and of its leak detector."""
    document = DOCUMENTS.get(path.rstrip("/"))
    return answer(json.dumps(document).encode()) if document else answer(b"{}", "404 Not Found")


def main(manners: Path) -> None:
    os.nice(NICE)
    report = tell()
    good: dict[str, Callable[[str], bytes]] = {
        "receiver": lambda path: answer(b"{}"),
        "peer": lambda path: report(),
        "controller": controller,
    }
    for name, reply in good.items():
        print(name, Outsider(name, manners, reply).port, flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)  # its threads wait for requests


if __name__ == "__main__":
    main(Path(sys.argv[1]))
