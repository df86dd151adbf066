"""Questions as items of a relay: each gives what the kernel says, or why it says nothing."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from agent.backends.optics.ethtool_questions import FAMILY, EthtoolQuestion, PortValue
from agent.backends.optics.kernel_asking import Connect, find_family
from agent.backends.optics.netlink_codec import NetlinkFormatError
from agent.model import Reason

_REASONS = {
    errno.EOPNOTSUPP: Reason.UNSUPPORTED,
    errno.EINVAL: Reason.UNSUPPORTED,  # what a kernel says to a flag that it does not know yet
    errno.EPERM: Reason.DENIED,
    errno.EACCES: Reason.DENIED,
    errno.EAFNOSUPPORT: Reason.DENIED,
    errno.EMFILE: Reason.DENIED,
    errno.ENFILE: Reason.DENIED,
}
_WORDS = {
    errno.EOPNOTSUPP: "not offered by this driver or this kernel",
    errno.EINVAL: "not known to this kernel or driver",
    errno.EMFILE: "too many open files: raise LimitNOFILE in the unit, or ulimit -n",
    errno.ENFILE: "too many open files on the node: raise the sysctl fs.file-max",
    errno.EAFNOSUPPORT: "netlink is not allowed: add AF_NETLINK to RestrictAddressFamilies= of the unit",
    errno.ENODEV: "the interface is gone",
}


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a question has no answer."""

    reason: Reason
    detail: str


class PortQuestion:
    """One question about one port, as an item of the relay."""

    __slots__ = ("_connect", "_device", "_family", "_question", "path")

    def __init__(self, connect: Connect, family: int, device: str, question: EthtoolQuestion) -> None:
        self._connect = connect
        self._family = family
        self._device = device
        self._question = question
        self.path = f"{question.name} {device}"

    def read(self) -> list[PortValue] | NoAnswer:
        try:
            return self._question.ask(self._connect, self._family, self._device)
        except (OSError, NetlinkFormatError) as error:
            return no_answer(error)


class FamilyQuestion:
    """The question for the number of ethtool's family, likewise."""

    path = f"GETFAMILY {FAMILY}"

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    def read(self) -> int | NoAnswer | None:
        """None if the kernel has no such family."""
        try:
            return find_family(self._connect, FAMILY)
        except FileNotFoundError:
            return None
        except (OSError, NetlinkFormatError) as error:
            return no_answer(error)


def no_answer(error: OSError | NetlinkFormatError) -> NoAnswer:
    """What an error means, with the remedy where there is one."""
    if isinstance(error, NetlinkFormatError):
        return NoAnswer(Reason.MALFORMED, f"the kernel's answer cannot be understood: {error}")
    if isinstance(error, TimeoutError):
        return NoAnswer(Reason.TIMEOUT, "no answer from the kernel")
    number = error.errno or errno.EIO
    return NoAnswer(_REASONS.get(number, Reason.LOST), _WORDS.get(number, os.strerror(number)))
