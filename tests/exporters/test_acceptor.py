"""The descriptor in reserve: given when there is no other, and taken back before anybody else gets it."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from agent.lib.logs import LogOnce
from exporters.listeners import Acceptor, open_listeners


class Short:
    """A listener at which descriptors run out as often as told."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.short = 0
        self.error = errno.EMFILE

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.short > 0:
            self.short -= 1
            raise OSError(self.error, os.strerror(self.error))
        return self._listener.accept()

    def fileno(self) -> int:
        return self._listener.fileno()

    def close(self) -> None:
        self._listener.close()


class Rig:
    def __init__(self, stack: ExitStack) -> None:
        (listener,) = open_listeners([("127.0.0.1", 0)])
        self.stack = stack
        self.listener = Short(listener)
        self.address = listener.getsockname()
        self.spared = 0
        self.acceptor = Acceptor([self.listener], self.make_room, LogOnce(logging.getLogger("t")))  # type: ignore[list-item]
        stack.callback(self.acceptor.close)

    def make_room(self, now: float) -> bool:
        self.spared -= 1
        return self.spared >= 0

    def client(self) -> None:
        self.stack.enter_context(closing(socket.create_connection(self.address)))

    def take(self) -> socket.socket | None:
        taken = self.acceptor.take(self.listener, 0.0)  # type: ignore[arg-type]
        return None if taken is None else taken[0]


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


def is_null(descriptor: int) -> bool:
    return os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_idle_clients_go_before_the_reserve_is_touched(rig: Rig, error: int) -> None:
    rig.client()
    rig.listener.error, rig.listener.short, rig.spared = error, 2, 2
    sock = rig.take()
    assert sock is not None
    rig.acceptor.hang_up(sock)
    assert sock.fileno() == -1  # it was closed, and not kept: the reserve was there


def test_the_reserve_is_given_once_and_comes_back_without_ever_being_free(rig: Rig) -> None:
    rig.client()
    rig.listener.short = 1
    first = rig.take()
    assert first is not None
    rig.client()
    rig.listener.short = 1
    assert rig.take() is None  # nothing is left to give
    assert rig.acceptor.paused_until is not None
    descriptor = first.fileno()
    rig.acceptor.hang_up(first)
    assert is_null(descriptor)
    rig.listener.short = 1
    second = rig.take()
    assert second is not None
    second.close()


def test_a_client_whose_socket_became_the_reserve_is_hung_up_on(rig: Rig) -> None:
    with closing(socket.create_connection(rig.address)) as client:
        rig.listener.short = 1
        sock = rig.take()
        assert sock is not None
        rig.acceptor.hang_up(sock)
        client.settimeout(5.0)
        assert client.recv(1) == b""


def test_if_no_client_waits_none_is_evicted(rig: Rig) -> None:
    """The kernel wants a descriptor before it looks whether there is a client."""
    rig.listener.short, rig.spared = 1, 1
    assert rig.take() is None
    assert rig.spared == 1
    assert rig.acceptor.paused_until is None


def test_nothing_is_left_open(rig: Rig) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        Rig(rig.stack).acceptor.close()
    assert len(os.listdir("/proc/self/fd")) == before
