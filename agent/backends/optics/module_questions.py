"""Asks the kernel for pages of modules, which it allows only with CAP_NET_ADMIN.

The bytes asked for are all that is read from the module: a driver turns each question into transfers of these bytes
(Documentation/networking/ethtool-netlink.rst, MODULE_EEPROM_GET, from Linux 5.13 on).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from agent.backends.optics.ethtool_questions import COMPACT, ask_port
from agent.backends.optics.kernel_asking import Connect
from agent.backends.optics.modules.module_figures import ModuleSpan
from agent.backends.optics.modules.module_reading import KnownModule, ModuleReading, read_module
from agent.backends.optics.netlink_codec import NetlinkFormatError, u8, u32
from agent.backends.optics.relayed_questions import NoAnswer, no_answer
from agent.backends.protocol import DeviceError
from agent.model import Reason

QUESTION = "MODULE_EEPROM_GET"
_COMMANDS = (31, 32)
_HEADER, _OFFSET, _LENGTH, _PAGE, _BANK, _ADDRESS, _DATA = 1, 2, 3, 4, 5, 6, 7
_MODULE = 0x50
"""The address of a module's memory on its bus, in both memory maps."""
_DENIED = "needs CAP_NET_ADMIN, which docs/ports.md says how to allow, and what for"


class PortMemory:
    """The memory of the module in one port, as `Memory`."""

    def __init__(self, connect: Connect, family: int, device: str) -> None:
        self._connect = connect
        self._family = family
        self._device = device

    def __call__(self, span: ModuleSpan) -> bytes:
        """Raises OSError with what the kernel refuses it with, and NetlinkFormatError."""
        wanted = (
            u32(_OFFSET, span.offset),
            u32(_LENGTH, span.length),
            u8(_PAGE, span.page),
            u8(_BANK, span.bank),
            u8(_ADDRESS, _MODULE),
        )
        told = ask_port(self._connect, self._family, _COMMANDS, _HEADER, COMPACT, self._device, *wanted)
        return dict(told).get(_DATA, b"")


class CardModules:
    """The modules of one card, one after another, as one item of the relay: a card has one bus, or one firmware."""

    def __init__(self, card: str, modules: Sequence[tuple[PortMemory, KnownModule | None]]) -> None:
        self.path = f"modules of {card}"
        self._modules = modules

    def read(self) -> list[ModuleReading | NoAnswer]:
        """For each module, in order, what it says or why it says nothing."""
        return [_answer_of(memory, known) for memory, known in self._modules]


def _answer_of(memory: PortMemory, known: KnownModule | None) -> ModuleReading | NoAnswer:
    try:
        return read_module(memory, known)
    except DeviceError as error:
        return NoAnswer(error.reason, error.detail)
    except NetlinkFormatError as error:
        return no_answer(error)
    except OSError as error:
        why = no_answer(error)
        if error.errno == errno.EPERM:
            return NoAnswer(why.reason, _DENIED)
        if why.reason is Reason.LOST and known is None:  # an empty cage, which no driver tells from a silent module
            return NoAnswer(Reason.UNSUPPORTED, f"no module answers: {why.detail}")
        return why
