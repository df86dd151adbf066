"""Accepts clients from the kernel's queues, even when no file descriptors are left.

When descriptors run out an idle client is evicted, and if none is connected the acceptor uses
one that it keeps in reserve: whatever else in the process holds descriptors, one scraper at a time is served.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from exporters.complaints import Complaints

_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_PAUSE_SECONDS = 0.02
"""Seconds for which clients are left in the queue when none can be accepted."""


def has_gone(sock: socket.socket) -> bool:
    """Whether a client has closed its connection without asking for anything."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


class Acceptor:
    """The listeners. `make_room` evicts a client that can be spared, and says whether there was one.

    `now` is always the server's clock, in seconds.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], make_room: Callable[[float], bool], complaints: Complaints
    ) -> None:
        self.listeners = list(listeners)
        self.paused_until: float | None = None
        self._make_room = make_room
        self._complaints = complaints
        self._selector: selectors.BaseSelector | None = None
        self._filler: int | None = None
        self._spare: int | None = None
        if self.listeners:
            with suppress(OSError):
                self._filler = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                self._spare = os.dup(self._filler)

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Use this selector to wait for clients from now on."""
        self._selector = selector
        self._listen()

    def somebody_waits(self, listener: socket.socket) -> bool:
        """Whether a client is in the queue, to know before room is made for it."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        return bool(poll.poll(0))

    def take(self, listener: socket.socket, now: float) -> tuple[socket.socket, str] | None:
        """A client and its address. None if no client waits, or none can be accepted at the moment."""
        while True:
            try:
                sock, address = listener.accept()
                return sock, str(address[0])
            except (BlockingIOError, InterruptedError, ConnectionError):
                return None
            except OSError as error:
                if not self.somebody_waits(listener):  # the kernel takes a descriptor before it looks for a client
                    return None
                self._complain(error, now)
                if error.errno not in _SHORTAGE or not (self._make_room(now) or self._give_spare()):
                    self.pause(now)
                    return None

    def hang_up(self, sock: socket.socket) -> None:
        """Close a client's socket; its descriptor is kept if there is none in reserve.

        The descriptor is never free in between: something else in the process may be waiting for one.
        """
        if self._spare is not None or self._filler is None:
            sock.close()
            return
        self._spare = sock.detach()
        os.dup2(self._filler, self._spare, inheritable=False)

    def pause(self, now: float) -> None:
        """Leave new clients in the kernel's queue for a moment, instead of spinning."""
        if self.paused_until is None and self._selector is not None:
            for listener in self.listeners:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(listener)
        self.paused_until = now + _PAUSE_SECONDS

    def resume(self, now: float) -> None:
        """Listen again if the pause is over."""
        if self.paused_until is not None and now >= self.paused_until:
            self.paused_until = None
            self._listen()

    def close(self) -> None:
        """Accept no more clients."""
        for listener in self.listeners:
            if self.paused_until is None and self._selector is not None:
                with suppress(Exception):  # even if the selector fails, it must be closed
                    self._selector.unregister(listener)
            listener.close()
        self.listeners = []
        self.paused_until = None
        self._give_spare()
        if self._filler is not None:
            os.close(self._filler)
            self._filler = None

    def _listen(self) -> None:
        if self.paused_until is None and self._selector is not None:
            for listener in self.listeners:
                self._selector.register(listener, selectors.EVENT_READ)

    def _give_spare(self) -> bool:
        if self._spare is None:
            return False
        with suppress(OSError):
            os.close(self._spare)
        self._spare = None
        return True

    def _complain(self, error: OSError, now: float) -> None:
        if error.errno in _SHORTAGE:
            self._complaints.say(
                now, "shortage", "cannot accept connections (%s): idle clients are disconnected; if it persists,"
                " find out what uses the descriptors, or raise LimitNOFILE", error.strerror,
                relief="connections can be accepted again",
            )  # fmt: skip
        else:
            self._complaints.say(
                now, "accept", "cannot accept connections: %s", error, relief="connections can be accepted again"
            )
