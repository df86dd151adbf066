"""Opens the sockets that the server listens on, and reports in one line why one could not be opened."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress

from agent.lib.user_error import UserError

_BACKLOG = 2048

_SEND_BUFFER = 128 * 1024
_RECEIVE_BUFFER = 32 * 1024
"""Bytes that the kernel buffers for a client (it doubles them for its own needs). Otherwise it would buffer up to 4 MiB
of a page for one that does not read, which count towards the service's memory limit. Every client inherits this."""


class BindError(UserError):
    """An address cannot be listened on; the text names it and the remedy."""


def open_listeners(addresses: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """A listening, non-blocking socket for each (host, port). All or none. Raises BindError."""
    sockets: list[socket.socket] = []
    try:
        for host, port in addresses:
            sockets.append(_open(host.strip("[]"), port))
    except BindError:
        for each in sockets:
            each.close()
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
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BindError(
            f"cannot listen on {_spell(host, port)}: the host cannot be resolved ({error});"
            " give an address of this node with --web.listen-address"
        ) from error
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)  # localhost: IPv4 first
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
    if host == "::":
        return f":{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
