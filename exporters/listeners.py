"""The sockets on which the server listens, and the clients that it accepts from the kernel's queues.

When descriptors run out an idle client is evicted, and if none is connected the acceptor uses one that it keeps in
reserve: whatever else in the process holds descriptors, one scraper at a time is served.
"""

import errno
import os
import select
import selectors
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from agent.lib.logs import LogOnce
from agent.lib.wording import UserError, show_address

_BACKLOG = 2048

_SEND_BUFFER = 128 * 1024
_RECEIVE_BUFFER = 32 * 1024
"""Bytes that the kernel buffers for a client (it doubles them for its own needs). Otherwise it would buffer up to 4 MiB
of a page for one that does not read, which count towards the service's memory limit. Every client inherits this."""


class BindError(UserError):
    """An address cannot be listened on; the text names it and the remedy."""


def open_listeners(addresses: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Return a listening, non-blocking socket for each (host, port). All or none. Raises BindError."""
    sockets: list[socket.socket] = []
    try:
        for host, port in addresses:
            sockets.append(_open(host.strip("[]"), port))
    except BindError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Host and port, the real one if 0 was configured."""
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def _open(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BindError(
            f"cannot listen on {_spell(host, port)}: a port is a number from 0 to 65535;"
            " choose another with --web.listen-address"
        )
    if host:
        return _bind(*_resolve(host, port))
    try:
        return _bind(socket.AF_INET6, ("::", port))
    except BindError as error:
        # A kernel without IPv6, or with it disabled: then only IPv4 is used.
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in (
            errno.EAFNOSUPPORT,
            errno.EADDRNOTAVAIL,
        ):
            raise
        return _bind(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104  # all interfaces is what was asked for


def _resolve(host: str, port: int) -> tuple[int, tuple[object, ...]]:
    name = host.encode() if host.isascii() else host  # a string loads the tables of international names
    try:
        addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BindError(
            f"cannot listen on {_spell(host, port)}: the host cannot be resolved ({reason});"
            " give an address of this node with --web.listen-address"
        ) from error
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)  # localhost: IPv4 first
    return family, address


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    host, port = str(address[0]), int(str(address[1]))
    listener: socket.socket | None = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # responses are sent at once; inherited as well
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        if listener is not None:
            with suppress(OSError):
                listener.close()
        raise BindError(f"cannot listen on {_spell(host, port)}: {_remedy(error, port)}") from error
    return listener


def _spell(host: str, port: int) -> str:
    return f":{port}" if host == "::" else show_address(host, port)


def _remedy(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"the port is in use (\"ss -ltnp 'sport = :{port}'\" shows the process);"
            " stop that program, or choose another address with --web.listen-address"
        )
    if error.errno == errno.EACCES:
        return (
            "permission denied: ports below 1024 need CAP_NET_BIND_SERVICE;"
            " choose a higher port with --web.listen-address"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this node has that address; choose another with --web.listen-address"
    return f"{error}; choose another address with --web.listen-address"


_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_PAUSE_SECONDS = 0.02
"""Seconds for which clients are left in the queue when none can be accepted."""


def is_closed_by_peer(sock: socket.socket) -> bool:
    """Return whether a client has closed its connection without asking for anything."""
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

    def __init__(self, listeners: Sequence[socket.socket], make_room: Callable[[float], bool], once: LogOnce) -> None:
        self.listeners = list(listeners)
        self.paused_until: float | None = None
        self._make_room = make_room
        self._once = once
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

    def has_pending_client(self, listener: socket.socket) -> bool:
        """Return whether a client is in the queue, to know before room is made for it."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        return bool(poll.poll(0))

    def accept(self, listener: socket.socket, now: float) -> tuple[socket.socket, str] | None:
        """Return a client and its address. None if no client waits, or none can be accepted at the moment."""
        while True:
            try:
                sock, address = listener.accept()
                return sock, str(address[0])
            except (BlockingIOError, InterruptedError, ConnectionError):
                return None
            except OSError as error:
                if not self.has_pending_client(listener):  # the kernel takes a descriptor before it looks for a client
                    return None
                self._complain(error, now)
                if error.errno not in _SHORTAGE or not (self._make_room(now) or self._give_spare()):
                    self.pause(now)
                    return None

    def hang_up(self, sock: socket.socket) -> None:
        """Close a client's socket; keep its descriptor if the reserve is empty.

        The descriptor is never free in between: another part of the process may be waiting for one.
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
        key, problem = "accept", f"cannot accept connections: {error}"
        if error.errno in _SHORTAGE:
            remedy = "if it persists, find out what uses the descriptors, or raise LimitNOFILE"
            key = "shortage"
            problem = f"cannot accept connections ({error.strerror}): idle clients are disconnected; {remedy}"
        self._once.passing(now, key, "%s", problem, over="connections can be accepted again")
