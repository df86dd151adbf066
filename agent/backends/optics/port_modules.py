"""Read the modules of all ports: each at most once a minute, a page at a time, and those of one card one after another.

Of a module are read: who it is, once what it measures and its limits, and what it measures now. The serial is read
again at the end: a module that was swapped in between, or whose bytes change, gives nothing rather than one module's
values under another's name.

The kernel allows the request for pages of modules only with CAP_NET_ADMIN. The bytes in it are all that is read from
the module: a driver turns each request into transfers of these bytes (Documentation/networking/ethtool-netlink.rst,
MODULE_EEPROM_GET, from Linux 5.13 on). It reads a module under the lock of network configuration, so that a module
that hangs would delay that, too: one that failed twice is left alone for ten minutes.
"""

import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, PathRead, UnansweredError
from agent.backends.firmware_files import FailurePause
from agent.backends.optics.ethernet_ports import PortList
from agent.backends.optics.ethtool_requests import COMPACT, MissingPortMetrics, PortValue, send_for_port, tried
from agent.backends.optics.modules import cmis, sff8636
from agent.backends.optics.modules.cmis import CmisModule, read_samples
from agent.backends.optics.modules.module_types import (
    HOST,
    MEDIA,
    WHOLE,
    Memory,
    ModuleSpan,
    Places,
    PluggedModule,
    read_span,
)
from agent.backends.optics.modules.sff8636 import Sff8636Module
from agent.backends.optics.netlink import Connect, u8, u32
from agent.backends.protocol import BackendSample, DeviceError
from agent.backends.sysfs import printable
from agent.catalogue import optics as rows
from agent.model import Gap, Metric, Node, Reading, Reason

HEAD = ModuleSpan(0, 0, 3)
"""Identifier, revision and status, in both maps."""


class ModuleReading(NamedTuple):
    """A module with its present values, and the rows that it should give and does not, with the reason."""

    module: PluggedModule
    values: Sequence[PortValue]
    lacking: Sequence[tuple[Metric, DeviceError]]


def read_module(memory: Memory, module: PluggedModule | None) -> ModuleReading:
    """Return the module behind `memory`; `module` is its earlier read. Raises as `memory`, and DeviceError."""
    head = read_span(memory, HEAD)
    kind = _kind_of(head[0])
    upper = read_span(memory, kind.identity_span)
    if upper[0] != head[0]:
        raise DeviceError(
            Reason.MALFORMED, f"changes while it is read: byte 0 is {head[0]:#04x}, and byte 128 {upper[0]:#04x}"
        )
    if module is None or (head[:2], upper) != (module.head[:2], module.upper) or not module.complete:
        module = _read_constants(kind(head, upper), memory)
    present = module.read_values(memory)
    diagnostics: Iterable[PortValue] | DeviceError = ()
    if present.ready:
        places = module.diagnosed
        diagnostics = places if isinstance(places, DeviceError) else tried(lambda: _diagnosed(memory, places))
    at = kind.serial_span.offset - kind.identity_span.offset
    if read_span(memory, kind.serial_span, blank=True) != upper[at : at + kind.serial_span.length]:
        raise DeviceError(Reason.MALFORMED, "changes while it is read: two serials")
    values = [module.info, *present.values]
    lacking = [(rows.RECEIVE_LOWEST, DeviceError(Reason.LOST, present.trouble))] if present.trouble else []
    for row, values_or_error in ((rows.RECEIVE_LIMIT, module.limits), (rows.ERRORS_HIGHEST, diagnostics)):
        if isinstance(values_or_error, DeviceError):
            lacking.append((row, values_or_error))
        else:
            values += values_or_error
    return ModuleReading(module, values, lacking)


def _read_constants(module: PluggedModule, memory: Memory) -> PluggedModule:
    """Return the module with all that is read once."""
    module.read_traits(memory)
    module.limits = tried(lambda: module.read_limits(memory))
    module.diagnosed = tried(lambda: module.find_diagnostics(memory))
    return module


def _kind_of(identifier: int) -> type[Sff8636Module | CmisModule]:
    if identifier in sff8636.FORM_FACTORS:
        return Sff8636Module
    if identifier in cmis.FORM_FACTORS:
        return CmisModule
    raise DeviceError(Reason.UNSUPPORTED, f"a module whose memory map is not known: identifier {identifier:#04x}")


EEPROM_REQUEST = "MODULE_EEPROM_GET"
_COMMANDS = (31, 32)
_HEADER, _OFFSET, _LENGTH, _PAGE, _BANK, _ADDRESS, _DATA = 1, 2, 3, 4, 5, 6, 7
_MODULE = 0x50
"""The address of a module's memory on its bus, in both memory maps."""
_DENIED = "needs CAP_NET_ADMIN, which docs/ports.md says how to allow, and what for"


def memory_of_port(connect: Connect, family: int, device: str) -> Memory:
    """Return the memory of a port's module; a read raises OSError as the kernel does, DeviceError if it is denied."""

    def read(span: ModuleSpan) -> bytes:
        span_attributes = (
            u32(_OFFSET, span.offset),
            u32(_LENGTH, span.length),
            u8(_PAGE, span.page),
            u8(_BANK, span.bank),
            u8(_ADDRESS, _MODULE),
        )
        try:
            reply = send_for_port(
                connect, family, _COMMANDS, *span_attributes, header=_HEADER, flags=COMPACT, device=device
            )
        except PermissionError as error:
            raise DeviceError(Reason.DENIED, _DENIED) from error
        return dict(reply).get(_DATA, b"")

    return read


def _read_modules(modules: Sequence[tuple[Memory, PluggedModule | None]], _: str) -> list[ModuleReading | DeviceError]:
    return [_answer_of(memory, module) for memory, module in modules]


def _answer_of(memory: Memory, module: PluggedModule | None) -> ModuleReading | DeviceError:
    answer = tried(lambda: read_module(memory, module))
    if isinstance(answer, DeviceError) and answer.reason is Reason.LOST and module is None:
        # An empty cage, which no driver distinguishes from a silent module.
        return DeviceError(Reason.UNSUPPORTED, f"no module answers: {answer.detail}")
    return answer


MODULE_SECONDS = 59.0
"""Least seconds between two reads of a module: a minute, less what the lane's tick may be early."""
TIMEOUT_SECONDS = 2.0
"""Seconds that the modules of one card may take: each is read within 0.2 s, by what operators report of ethtool -m."""
_FUNCTION = re.compile(r"\.[0-7]$")


class PortModule(Struct):
    """One port, its module, and the latest answer."""

    module: PluggedModule | None = None
    latest: ModuleReading | DeviceError | None = None
    due: float = float("-inf")
    pause: FailurePause = field(default_factory=FailurePause)

    def store_answer(self, answer: ModuleReading | DeviceError, mono: float) -> None:
        """Note an answer, and when to ask again."""
        self.latest = answer
        if isinstance(answer, ModuleReading):
            self.module = answer.module
        self.pause.record(None if isinstance(answer, ModuleReading) else answer.reason, mono)
        self.due = max(mono + MODULE_SECONDS, self.pause.end)


class TransceiverReader:
    """The module in every port of the census. `connect` opens a socket to the kernel."""

    def __init__(self, sysfs: str, census: PortList, connect: Connect) -> None:
        self._sysfs = sysfs
        self._census = census
        self._connect = connect
        self._pool = FileReaderPool("optics-modules", TIMEOUT_SECONDS)
        self._ports: dict[str, PortModule] = {}

    def read(self, mono: float) -> BackendSample:
        """Return the modules' latest answers. Raises AbsentError without ports or without the kernel's interface."""
        try:
            ports = self._census.find_ports(mono)
            family = self._census.find_family(mono)
        except DeviceError as fault:
            return BackendSample(gaps=[Gap(rows.INFO, Node(), fault.reason, fault.detail)])
        self._ports = {port: self._ports.get(port) or PortModule() for port in ports}
        polled = self._poll(family, mono)
        readings: list[Reading] = []
        missing = MissingPortMetrics()
        for port, module in self._ports.items():
            device = printable(port)
            if isinstance(module.latest, ModuleReading):
                readings += [v.reading(device) for v in module.latest.values]
                missing.mark_answered(v.row for v in module.latest.values)
                for row, error in module.latest.lacking:
                    missing.add_missing(row, error.reason, f"{EEPROM_REQUEST} {device}: {error.detail}")
            elif module.latest is not None:  # the row that names the module stands for all of them
                missing.add_missing(
                    rows.INFO, module.latest.reason, f"{EEPROM_REQUEST} {device}: {module.latest.detail}"
                )
        return BackendSample(readings, list(missing.gaps()), calls=polled)

    def close(self) -> None:
        self._pool.close()

    def _poll(self, family: int, mono: float) -> int:
        """Ask those that are due; how many there were."""
        cards: dict[str, list[str]] = {}
        for port, module in self._ports.items():
            if mono >= module.due:
                cards.setdefault(self._card_of(port), []).append(port)
        batches = []
        for card, ports in cards.items():
            modules = [(memory_of_port(self._connect, family, port), self._ports[port].module) for port in ports]
            # One after another: a card has one bus, or one firmware.
            read = PathRead(f"modules of {card}", partial(_read_modules, modules))
            batches.append(DeviceReads(card, [read]))
        for ports, (answer,) in zip(cards.values(), self._pool.round(batches, mono), strict=True):
            for place, port in enumerate(ports):
                result = answer if isinstance(answer, UnansweredError) else answer[place]
                self._ports[port].store_answer(result, mono)
        return sum(map(len, cards.values()))

    def _card_of(self, port: str) -> str:
        """Return the card that a port is on: its PCI device without the function."""
        return _FUNCTION.sub("", os.path.realpath(f"{self._sysfs}/class/net/{port}/device"))


def _diagnosed(memory: Memory, places: Places) -> list[PortValue]:
    """Return what a module diagnoses: of each side the worst, and each lane. Raises as `read_span`."""
    values = read_samples(memory, places)
    diagnostics = []
    for lane_row, worst, choose in (
        (rows.ERRORS_LANE, rows.ERRORS_HIGHEST, max),
        (rows.SIGNAL_LANE, rows.SIGNAL_LOWEST, min),
    ):
        for side in (MEDIA, HOST):
            lanes = {one.lane: value for one, value in values.items() if (one.row, one.side) == (lane_row, side)}
            if lanes:
                diagnostics.append(PortValue(worst, (("side", side),), choose(lanes.values())))
            for lane, value in sorted(lanes.items()):
                if lane != WHOLE:
                    diagnostics.append(PortValue(lane_row, (("side", side), ("lane", str(lane))), value))
    return diagnostics
