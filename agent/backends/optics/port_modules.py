"""Read the modules of all ports: each at most once a minute, a page at a time, and those of one card one after another.

Of a module are read: who it is, once what it measures and its limits, and what it measures now. The serial is read
again at the end: a module that was swapped in between, or whose bytes change, gives nothing rather than one module's
values under another's name.

The kernel allows the request for pages of modules only with CAP_NET_ADMIN. The bytes in it are all that is read from
the module: a driver turns each request into transfers of these bytes (Documentation/networking/ethtool-netlink.rst,
MODULE_EEPROM_GET, from Linux 5.13 on). It reads a module under the lock of network configuration, so that a module
that hangs would delay that, too: one that failed twice is left alone for ten minutes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, PathRead, UnansweredError
from agent.backends.optics.ethernet_ports import PortList
from agent.backends.optics.ethtool_requests import (
    COMPACT,
    MissingPortMetrics,
    explain_failure,
    send_for_port,
    tried,
)
from agent.backends.optics.modules import cmis, sff8636
from agent.backends.optics.modules.cmis import HOST, MEDIA, WHOLE, Places, VdmObservable, VdmSample
from agent.backends.optics.modules.module_types import (
    AlarmWarningLimits,
    MemoryMap,
    ModuleCapabilities,
    ModuleIdentity,
    ModuleLimits,
    ModuleSpan,
    ModuleValues,
)
from agent.backends.optics.netlink import Connect, NetlinkFormatError, u8, u32
from agent.backends.protocol import BackendSample, DeviceError
from agent.backends.sysfs import printable
from agent.catalogue import optics as rows
from agent.model import Gap, Labels, Metric, Node, Reading, Reason, Series

HEAD = ModuleSpan(0, 0, 3)
"""Identifier, revision and status, in both maps."""
_UNWRITTEN = 0xFF
"""What an open bus reads as."""

Memory = Callable[[ModuleSpan], bytes]
"""Reads bytes of a module. Raises OSError, and NetlinkFormatError."""


class ModuleFacts(Struct, frozen=True):
    """Facts that are read once for each module. `limits` is None if the module has no page of limits.

    `limits` and `diagnosed`, the places of its diagnostics, may be the failure to read them.
    """

    layout: MemoryMap
    head: bytes
    upper: bytes
    identity: ModuleIdentity
    traits: ModuleCapabilities
    limits: ModuleLimits | DeviceError | None
    diagnosed: Places | DeviceError

    @property
    def complete(self) -> bool:
        """Whether no read of it failed, so that none must be repeated."""
        return not isinstance(self.limits, DeviceError) and not isinstance(self.diagnosed, DeviceError)


class ModuleReading(NamedTuple):
    """A module with its present values; `diagnostics` may be the failure to read them."""

    known: ModuleFacts
    values: ModuleValues
    diagnostics: Mapping[VdmSample, float] | DeviceError


def read_module(memory: Memory, known: ModuleFacts | None) -> ModuleReading:
    """Return the module behind `memory`, of which `known` was read before. Raises as `memory`, and DeviceError."""
    head = _read(memory, HEAD)
    layout = _layout_of(head[0])
    upper = _read(memory, layout.identity)
    if upper[0] != head[0]:
        raise DeviceError(
            Reason.MALFORMED, f"changes while it is read: byte 0 is {head[0]:#04x}, and byte 128 {upper[0]:#04x}"
        )
    if known is None or (head[:2], upper) != (known.head, known.upper) or not known.complete:
        known = _know(memory, layout, head, upper)
    parts = [_read(memory, span) for span in layout.values_spans(known.traits)]
    values = layout.values(known.traits, parts)
    diagnosed = _diagnose(memory, known.diagnosed) if values.ready else {}
    at = layout.serial.offset - layout.identity.offset
    if _read(memory, layout.serial, blank=True) != upper[at : at + layout.serial.length]:
        raise DeviceError(Reason.MALFORMED, "changes while it is read: two serials")
    return ModuleReading(known, values, diagnosed)


def _know(memory: Memory, layout: MemoryMap, head: bytes, upper: bytes) -> ModuleFacts:
    identity = layout.identify(head, upper)
    traits = layout.traits(head, upper, [_read(memory, span) for span in layout.traits_spans(head, upper)])
    limits: ModuleLimits | DeviceError | None = None
    span = layout.limits_span(head)
    if span is not None:
        limits = tried(lambda: layout.limits(traits, _read(memory, span, blank=True)))
    diagnosed = tried(lambda: _places(memory, traits)) if traits.diagnosed else {}
    return ModuleFacts(layout, head[:2], upper, identity, traits, limits, diagnosed)


def _places(memory: Memory, traits: ModuleCapabilities) -> Places:
    groups = _read(memory, cmis.VDM_GROUPS)
    pages = [_read(memory, span, blank=True) for span in cmis.description_spans(groups)]
    return cmis.find_samples(pages, traits.lanes, traits.host_lanes)


def _diagnose(memory: Memory, places: Places | DeviceError) -> Mapping[VdmSample, float] | DeviceError:
    if isinstance(places, DeviceError):
        return places
    spans = cmis.value_spans(places)
    return tried(lambda: cmis.decode_samples(places, [_read(memory, span) for span in spans]))


def _layout_of(identifier: int) -> MemoryMap:
    if identifier in sff8636.FORM_FACTORS:
        return sff8636.Sff8636()
    if identifier in cmis.FORM_FACTORS:
        return cmis.Cmis()
    raise DeviceError(Reason.UNSUPPORTED, f"a module whose memory map is not known: identifier {identifier:#04x}")


def _read(memory: Memory, span: ModuleSpan, *, blank: bool = False) -> bytes:
    """Return all bytes of a span. Only `blank` ones may be memory that was never written."""
    data = memory(span)
    if len(data) != span.length:
        raise DeviceError(Reason.MALFORMED, f"{span}: {len(data)} bytes, asked for {span.length}")
    if not blank and span.length > 1 and not data.strip(bytes((_UNWRITTEN,))):
        raise DeviceError(Reason.MALFORMED, f"{span}: all bytes are 0xff, as where no module answers")
    return data


EEPROM_REQUEST = "MODULE_EEPROM_GET"
_COMMANDS = (31, 32)
_HEADER, _OFFSET, _LENGTH, _PAGE, _BANK, _ADDRESS, _DATA = 1, 2, 3, 4, 5, 6, 7
_MODULE = 0x50
"""The address of a module's memory on its bus, in both memory maps."""
_DENIED = "needs CAP_NET_ADMIN, which docs/ports.md says how to allow, and what for"


def memory_of_port(connect: Connect, family: int, device: str) -> Memory:
    """Return the memory of the module in a port. A read of it raises OSError with what the kernel refuses it with."""

    def read(span: ModuleSpan) -> bytes:
        span_attributes = (
            u32(_OFFSET, span.offset),
            u32(_LENGTH, span.length),
            u8(_PAGE, span.page),
            u8(_BANK, span.bank),
            u8(_ADDRESS, _MODULE),
        )
        reply = send_for_port(
            connect, family, _COMMANDS, *span_attributes, header=_HEADER, flags=COMPACT, device=device
        )
        return dict(reply).get(_DATA, b"")

    return read


def _read_modules(modules: Sequence[tuple[Memory, ModuleFacts | None]], _: str) -> list[ModuleReading | DeviceError]:
    return [_answer_of(memory, known) for memory, known in modules]


def _answer_of(memory: Memory, known: ModuleFacts | None) -> ModuleReading | DeviceError:
    try:
        return read_module(memory, known)
    except DeviceError as error:
        return error
    except NetlinkFormatError as error:
        return explain_failure(error)
    except OSError as error:
        why = explain_failure(error)
        if error.errno == errno.EPERM:
            return DeviceError(why.reason, _DENIED)
        if (
            why.reason is Reason.LOST and known is None
        ):  # an empty cage, which no driver distinguishes from a silent module
            return DeviceError(Reason.UNSUPPORTED, f"no module answers: {why.detail}")
        return why


MODULE_SECONDS = 59.0
"""Least seconds between two reads of a module: a minute, less what the lane's tick may be early."""
PAUSE_SECONDS = 600.0
FAILURES = 2
"""After as many failures in a row a module is left alone for PAUSE_SECONDS."""
PATIENCE_SECONDS = 2.0
"""Seconds that the modules of one card may take: each is read within 0.2 s, by what operators report of ethtool -m."""
_FUNCTION = re.compile(r"\.[0-7]$")


class PortModule(Struct):
    """One port, what is known of its module, and what was said last."""

    known: ModuleFacts | None = None
    said: ModuleReading | DeviceError | None = None
    due: float = float("-inf")
    failures: int = 0

    def take(self, answer: ModuleReading | DeviceError, mono: float) -> None:
        """Note an answer, and when to ask again."""
        self.said = answer
        self.due = mono + MODULE_SECONDS
        if isinstance(answer, ModuleReading):
            self.known, self.failures = answer.known, 0
            return
        # A refusal costs nothing. What a module answers with nonsense, or not at all, costs its bus each time.
        self.failures += answer.reason is not Reason.DENIED
        if self.failures >= FAILURES:
            self.due = mono + PAUSE_SECONDS


class TransceiverReader:
    """The module in every port of the census. `connect` opens a socket to the kernel."""

    def __init__(self, sysfs: str, census: PortList, connect: Connect) -> None:
        self._sysfs = sysfs
        self._census = census
        self._connect = connect
        self._pool = FileReaderPool("optics-modules", PATIENCE_SECONDS)
        self._ports: dict[str, PortModule] = {}

    def read(self, mono: float) -> BackendSample:
        """Return what all modules said last. Raises AbsentError without ports or without the kernel's interface."""
        try:
            ports = self._census.find_ports(mono)
            family = self._census.find_family(mono)
        except DeviceError as fault:
            return BackendSample(gaps=[Gap(rows.INFO, Node(), fault.reason, fault.detail)])
        self._ports = {port: self._ports.get(port) or PortModule() for port in ports}
        asked = self._ask(family, mono)
        readings: list[Reading] = []
        missing = MissingPortMetrics()
        for port, module in self._ports.items():
            device = printable(port)
            if isinstance(module.said, ModuleReading):
                given = list(_readings_of(device, module.said))
                readings += given
                missing.give(each.metric for each in given)
                for row, why in _lacking(module.said):
                    missing.miss(row, why.reason, f"{EEPROM_REQUEST} {device}: {why.detail}")
            elif module.said is not None:  # the row that names the module stands for all of them
                missing.miss(rows.INFO, module.said.reason, f"{EEPROM_REQUEST} {device}: {module.said.detail}")
        return BackendSample(readings, list(missing.gaps()), calls=asked)

    def close(self) -> None:
        self._pool.close()

    def _ask(self, family: int, mono: float) -> int:
        """Ask those that are due; how many there were."""
        cards: dict[str, list[str]] = {}
        for port, module in self._ports.items():
            if mono >= module.due:
                cards.setdefault(self._card_of(port), []).append(port)
        batches = []
        for card, ports in cards.items():
            modules = [(memory_of_port(self._connect, family, port), self._ports[port].known) for port in ports]
            # One after another: a card has one bus, or one firmware.
            read = PathRead(f"modules of {card}", partial(_read_modules, modules))
            batches.append(DeviceReads(card, [read]))
        for ports, (answer,) in zip(cards.values(), self._pool.round(batches, mono), strict=True):
            for place, port in enumerate(ports):
                said = answer if isinstance(answer, UnansweredError) else answer[place]
                self._ports[port].take(said, mono)
        return sum(map(len, cards.values()))

    def _card_of(self, port: str) -> str:
        """Return the card that a port is on: its PCI device without the function."""
        return _FUNCTION.sub("", os.path.realpath(f"{self._sysfs}/class/net/{port}/device"))


def _readings_of(device: str, said: ModuleReading) -> Iterator[Reading]:
    identity, values, limits = said.known.identity, said.values, said.known.limits
    media = "copper" if identity.copper else "optical"
    yield _reading(rows.INFO, device, 1, ("form_factor", identity.form_factor), ("media", media),
                   ("vendor", identity.vendor), ("part_number", identity.part_number),
                   ("serial", identity.serial))  # fmt: skip
    if values.temperature is not None:
        yield _reading(rows.TEMPERATURE, device, values.temperature)
    if values.supply is not None:
        yield _reading(rows.SUPPLY, device, values.supply)
    yield from _lanes(device, values.receive_power, rows.RECEIVE_LANE, rows.RECEIVE_LOWEST, rows.RECEIVE_HIGHEST)
    yield from _lanes(device, values.transmit_power, rows.TRANSMIT_LANE, rows.TRANSMIT_LOWEST, None)
    yield from _lanes(device, values.transmit_bias, rows.BIAS_LANE, None, rows.BIAS_HIGHEST)
    if not isinstance(said.diagnostics, DeviceError):
        yield from _diagnosed(device, said.diagnostics)
    if limits is not None and not isinstance(limits, DeviceError):
        yield from _bounds(device, rows.TEMPERATURE_LIMIT, limits.temperature)
        if said.known.traits.lanes:
            yield from _bounds(device, rows.RECEIVE_LIMIT, limits.receive_power)
            yield from _bounds(device, rows.TRANSMIT_LIMIT, limits.transmit_power)
            yield from _bounds(device, rows.BIAS_LIMIT, limits.transmit_bias)


def _lanes(
    device: str, values: Mapping[int, float], each: Metric, lowest: Metric | None, highest: Metric | None
) -> Iterator[Reading]:
    if values and lowest:
        yield _reading(lowest, device, min(values.values()))
    if values and highest:
        yield _reading(highest, device, max(values.values()))
    for lane, value in values.items():
        yield _reading(each, device, value, ("lane", str(lane)))


def _diagnosed(device: str, values: Mapping[VdmSample, float]) -> Iterator[Reading]:
    for measure, each, worst, choose in (
        (VdmObservable.ERRORS, rows.ERRORS_LANE, rows.ERRORS_HIGHEST, max),
        (VdmObservable.SIGNAL, rows.SIGNAL_LANE, rows.SIGNAL_LOWEST, min),
    ):
        for side in (MEDIA, HOST):
            lanes = {one.lane: value for one, value in values.items() if (one.measure, one.side) == (measure, side)}
            if lanes:
                yield _reading(worst, device, choose(lanes.values()), ("side", side))
            for lane, value in sorted(lanes.items()):
                if lane != WHOLE:
                    yield _reading(each, device, value, ("side", side), ("lane", str(lane)))


def _bounds(device: str, row: Metric, bounds: AlarmWarningLimits) -> Iterator[Reading]:
    for level, value in bounds._asdict().items():
        if value is not None:
            yield _reading(row, device, value, ("level", level))


def _reading(row: Metric, device: str, value: float, *labels: tuple[str, str]) -> Reading:
    every: Labels = (("device", device), *labels)
    return Reading(Series(row, Node(), every), value)


def _lacking(said: ModuleReading) -> Iterator[tuple[Metric, DeviceError]]:
    """Yield the rows that a module should give and does not, and why."""
    if said.values.trouble:
        yield rows.RECEIVE_LOWEST, DeviceError(Reason.LOST, said.values.trouble)
    if isinstance(said.known.limits, DeviceError):
        yield rows.RECEIVE_LIMIT, said.known.limits
    if isinstance(said.diagnostics, DeviceError):
        yield rows.ERRORS_HIGHEST, said.diagnostics
