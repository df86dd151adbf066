"""Asks the kernel one question over generic netlink, and waits for its answer.

Each question has a socket of its own, which costs some 20 microseconds: there is no answer to an earlier question to
be taken for this one's, and one in which the kernel hangs holds nothing that another needs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Protocol

from agent.backends.optics.netlink_codec import (
    ERROR,
    LONGEST,
    NetlinkFormatError,
    NetlinkMessage,
    attribute,
    messages_in,
    question,
    whole_number,
)

ANSWER_SECONDS = 0.4
"""The kernel answers before `send` returns; this is for one that never does."""
MOST_MESSAGES = 16
"""Messages that are looked at for one answer. It is the first one, unless the kernel sends what was not asked for."""
_SEQUENCE = 1
_GENERIC = 16
"""NETLINK_GENERIC: include/uapi/linux/netlink.h."""

_CONTROLLER, _GET_FAMILY, _NEW_FAMILY, _CONTROLLER_VERSION = 16, 3, 1, 2
_FAMILY_ID, _FAMILY_NAME = 1, 2
"""GENL_ID_CTRL, its commands and attributes: include/uapi/linux/genetlink.h."""


class KernelSocket(Protocol):
    """What is needed of a netlink socket. Each method raises OSError; `recv` gives one datagram."""

    def send(self, data: bytes, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


Connect = Callable[[], KernelSocket]
"""Opens a socket to the kernel. Raises OSError."""


def connect_netlink() -> KernelSocket:
    """A socket to generic netlink, whose answers are waited for ANSWER_SECONDS. Raises OSError."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _GENERIC)
    opened.settimeout(ANSWER_SECONDS)
    return opened


def ask_kernel(
    connect: Connect, family: int, command: int, answer: int, version: int, *attributes: bytes
) -> list[tuple[int, bytes]]:
    """The attributes of the message `answer` with which the kernel answers `command`.

    Raises OSError with what the kernel refuses it with, TimeoutError if it says nothing, and NetlinkFormatError.
    """
    talk = connect()
    try:
        talk.send(question(family, command, version, _SEQUENCE, *attributes))
        for message in _heard(talk):
            if message.type == ERROR:
                number = message.errno()
                raise OSError(number, "refused") if number > 0 else NetlinkFormatError("an acknowledgement, no answer")
            if message.type == family and message.command() == answer:
                return list(message.attributes())
    finally:
        talk.close()
    raise NetlinkFormatError(f"no answer among {MOST_MESSAGES} messages")


def find_family(connect: Connect, name: str) -> int:
    """The number that this kernel gave to a generic family. Raises as `ask_kernel`; FileNotFoundError: it has none."""
    wanted = attribute(_FAMILY_NAME, name.encode() + b"\0")
    told = dict(ask_kernel(connect, _CONTROLLER, _GET_FAMILY, _NEW_FAMILY, _CONTROLLER_VERSION, wanted))
    if _FAMILY_ID not in told:
        raise NetlinkFormatError(f"the family {name} has no number")
    return whole_number(told[_FAMILY_ID])


def _heard(talk: KernelSocket) -> Iterator[NetlinkMessage]:
    """The first messages that belong to the question."""
    seen = 0
    while seen < MOST_MESSAGES:
        datagram = talk.recv(LONGEST)
        for message in messages_in(datagram):
            seen += 1
            if message.sequence == _SEQUENCE:
                yield message
        seen += not datagram
