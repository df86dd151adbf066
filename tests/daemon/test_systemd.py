"""What systemd is told, where it listens; the watchdog is fed by a heart that beats."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from agent.daemon.reloading import Notifier


class Listener:
    """The end of a datagram socket at which systemd would listen."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.notifier = Notifier({"NOTIFY_SOCKET": address})

    def heard(self) -> list[bytes]:
        heard = []
        while True:
            try:
                heard.append(self.socket.recv(4096))
            except BlockingIOError:
                return heard


@pytest.fixture(params=["a file", "an abstract name"])
def listener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    file = str(tmp_path_factory.mktemp("s") / "n")
    made = Listener(file if request.param == "a file" else f"@coldplate-test-{os.getpid()}")
    with made.socket:
        yield made


def test_assignments_are_lines_of_one_message(listener: Listener) -> None:
    listener.notifier.send(READY=1, STATUS="8 GPUs")
    assert listener.heard() == [b"READY=1\nSTATUS=8 GPUs"]


def test_a_listener_that_is_gone_is_no_reason_to_stop(listener: Listener) -> None:
    listener.socket.close()
    listener.notifier.send(READY=1)


def test_without_systemd_no_socket_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    for environment in ({}, {"NOTIFY_SOCKET": ""}):
        Notifier(environment).send(READY=1)
