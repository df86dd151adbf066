"""Requests to the kernel about a port, and what its answers say, in the units of the catalogue.

Commands, attributes and their meanings are those of Documentation/networking/ethtool-netlink.rst and
include/uapi/linux/ethtool_netlink.h; the histogram's are in the kernel from 6.18 on. None of these requests needs a
privilege.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from msgspec import Struct

from agent.backends.file_reader_pool import UnansweredError
from agent.backends.optics.netlink import (
    Connect,
    NetlinkFormatError,
    attribute,
    attributes_in,
    nest,
    send_request,
    u32,
    whole_number,
)
from agent.backends.protocol import DeviceError, describe_error, reason_of
from agent.catalogue import optics
from agent.model import Gap, Labels, Metric, Node, Reading, Reason, Series

T = TypeVar("T")
LONGEST_NAME = 15
"""Most bytes of an interface's name (IFNAMSIZ, with the 0 behind it)."""

_VERSION = 1
_DEVICE_NAME, _FLAGS = 2, 3
COMPACT, _STATISTICS = 1, 4

_FEC_ACTIVE, _FEC_STATISTICS = 4, 5
_FEC_MODES = {49: "none", 50: "rs", 51: "baser", 74: "llrs"}
"""Bits of link modes (include/uapi/linux/ethtool.h): Reed-Solomon, Firecode, and Reed-Solomon of low latency."""
_FEC_COUNTERS = {
    2: (optics.CORRECTED_BLOCKS, optics.LANE_CORRECTED_BLOCKS),
    3: (optics.UNCORRECTABLE_BLOCKS, optics.LANE_UNCORRECTABLE_BLOCKS),
    4: (optics.CORRECTED_BIT_ERRORS, optics.LANE_CORRECTED_BIT_ERRORS),
}
_FEC_HISTOGRAM, _BIN_LOW, _BIN_HIGH, _BIN_VALUE = 5, 2, 3, 4
_COUNTER_BYTES = 8
MOST_LANES = 16
"""A port has eight (ETHTOOL_MAX_LANES); twice as many are sold next."""
MOST_BINS = 64
"""Of a histogram. A code that corrects 15 symbols has 16."""

_PHY, _MAC = 0, 1
_GROUPS_WANTED = 1 << _PHY | 1 << _MAC
_BITSET_NO_MASK, _BITSET_SIZE, _BITSET_VALUE = 1, 2, 4
_GROUPS, _GROUP, _GROUP_ID, _GROUP_STATISTIC = 3, 4, 2, 4
_STATISTIC_ROWS = {(_PHY, 0): optics.SYMBOL_ERRORS, (_MAC, 4): optics.FCS_ERRORS}

_DOWN_EVENTS = 7
_SPEED = 5
_MEGABIT_BYTES = 1e6 / 8
_SPEEDS_UNKNOWN = (0, 0xFFFFFFFF)


@lru_cache(maxsize=16_384)  # 64 ports with all their lanes, bins and limits; interfaces, modules and bins come and go
def _series(row: Metric, labels: Labels) -> Series:
    return Series(row, Node(), labels)


class PortValue(NamedTuple):
    """One value of a port or of its module, with its labels beside `device`."""

    row: Metric
    labels: Labels
    value: float

    def reading(self, device: str) -> Reading:
        return Reading(_series(self.row, (("device", device), *self.labels)), self.value)


Attributes = Sequence[tuple[int, bytes]]


class EthtoolRequest(Struct, frozen=True):
    """A question, by the name that ethtool's documentation gives it.

    `rows` are missing without an answer. Those in `offered` are missing, too, if the answer does not have them: the
    driver does not count this. `header` is the number of the attribute that names the device.
    """

    name: str
    command: int
    answer: int
    header: int
    flags: int
    read: Callable[[Attributes], Iterator[PortValue]]
    rows: tuple[Metric, ...]
    offered: tuple[Metric, ...]
    more: tuple[bytes, ...] = ()

    def ask(self, connect: Connect, family: int, device: str) -> list[PortValue]:
        """Return what the kernel says about a port. Raises as `send_request`."""
        reply = send_for_port(
            connect,
            family,
            (self.command, self.answer),
            *self.more,
            header=self.header,
            flags=self.flags,
            device=device,
        )
        return list(self.read(reply))


def send_for_port(
    connect: Connect, family: int, commands: tuple[int, int], *more: bytes, header: int, flags: int, device: str
) -> Attributes:
    """Return the answer to a question about a port. `commands` are the numbers of both. Raises as `send_request`."""
    name = os.fsencode(device)
    about = nest(header, attribute(_DEVICE_NAME, name + b"\0"), u32(_FLAGS, flags))
    reply = send_request(connect, family, *commands, _VERSION, about, *more)
    answered = dict(attributes_in(dict(reply).get(header, b""))).get(_DEVICE_NAME, name).rstrip(b"\0")
    if answered != name:
        raise NetlinkFormatError(f"an answer about {os.fsdecode(answered)!a}")
    return reply


def _read_fec(attributes: Attributes) -> Iterator[PortValue]:
    content_of = dict(attributes)
    if _FEC_ACTIVE in content_of:
        mode = _FEC_MODES.get(whole_number(content_of[_FEC_ACTIVE]), "other")
        yield PortValue(optics.FEC_INFO, (("mode", mode),), 1)
    bins = 0
    for number, content in attributes_in(content_of.get(_FEC_STATISTICS, b"")):
        if number in _FEC_COUNTERS:
            yield from _read_lanes(*_FEC_COUNTERS[number], content)
        elif number == _FEC_HISTOGRAM:
            bins += 1
            if bins > MOST_BINS:
                raise NetlinkFormatError(f"a histogram of more than {MOST_BINS} bins")
            yield _read_bin(dict(attributes_in(content)))


def _read_lanes(total: Metric, lane: Metric, content: bytes) -> Iterator[PortValue]:
    """Yield the counter of the port, and those of its lanes behind it; no content if the driver does not count."""
    count, odd = divmod(len(content), _COUNTER_BYTES)
    if odd or count > MOST_LANES + 1:
        raise NetlinkFormatError(f"{len(content)} bytes of counters")
    values = [whole_number(content[at : at + _COUNTER_BYTES]) for at in range(0, len(content), _COUNTER_BYTES)]
    for place, value in enumerate(values):
        yield PortValue(lane, (("lane", str(place - 1)),), value) if place else PortValue(total, (), value)


def _read_bin(content_of: dict[int, bytes]) -> PortValue:
    try:
        low, high, value = (whole_number(content_of[number]) for number in (_BIN_LOW, _BIN_HIGH, _BIN_VALUE))
    except KeyError:
        raise NetlinkFormatError("a bin without its bounds or its value") from None
    return PortValue(optics.FEC_BINS, (("low", str(low)), ("high", str(high))), value)


def _read_statistics(attributes: Attributes) -> Iterator[PortValue]:
    for number, content in attributes:
        if number != _GROUP:
            continue
        members = list(attributes_in(content))
        group = next((whole_number(value) for kind, value in members if kind == _GROUP_ID), None)
        for kind, value in members:
            for statistic, count in attributes_in(value) if kind == _GROUP_STATISTIC else ():
                row = _STATISTIC_ROWS.get((group, statistic)) if group is not None else None
                if row is not None:
                    yield PortValue(row, (), whole_number(count))


def _read_link_state(attributes: Attributes) -> Iterator[PortValue]:
    content_of = dict(attributes)
    if _DOWN_EVENTS in content_of:
        yield PortValue(optics.LINK_DOWN_EVENTS, (), whole_number(content_of[_DOWN_EVENTS]))


def _read_link_modes(attributes: Attributes) -> Iterator[PortValue]:
    content_of = dict(attributes)
    speed = whole_number(content_of[_SPEED]) if _SPEED in content_of else 0
    if speed not in _SPEEDS_UNKNOWN:
        yield PortValue(optics.RATE, (), speed * _MEGABIT_BYTES)


_REQUESTED_GROUPS = nest(
    _GROUPS, attribute(_BITSET_NO_MASK, b""), u32(_BITSET_SIZE, 2), u32(_BITSET_VALUE, _GROUPS_WANTED)
)
_COUNTED = (optics.CORRECTED_BLOCKS, optics.UNCORRECTABLE_BLOCKS, optics.CORRECTED_BIT_ERRORS)
_ERRORS = (optics.SYMBOL_ERRORS, optics.FCS_ERRORS)
_DOWNS = (optics.LINK_DOWN_EVENTS,)

QUESTIONS = (
    EthtoolRequest("FEC_GET", 29, 30, 1, COMPACT | _STATISTICS, _read_fec, (optics.FEC_INFO, *_COUNTED), _COUNTED),
    EthtoolRequest("STATS_GET", 32, 33, 2, COMPACT, _read_statistics, _ERRORS, _ERRORS, (_REQUESTED_GROUPS,)),
    EthtoolRequest("LINKSTATE_GET", 6, 6, 1, _STATISTICS, _read_link_state, _DOWNS, _DOWNS),
    # A link that is down has no rate, which is no gap.
    EthtoolRequest("LINKMODES_GET", 4, 4, 1, COMPACT, _read_link_modes, (optics.RATE,), ()),
)
"""All that is asked of each port."""


_WORDS = {
    errno.EOPNOTSUPP: "not offered by this driver or this kernel",
    errno.EINVAL: "not known to this kernel or driver",
    errno.EAFNOSUPPORT: "netlink is not allowed: add AF_NETLINK to RestrictAddressFamilies= of the unit",
    errno.ENODEV: "the interface is gone",
}


def tried(read: Callable[[], T]) -> T | DeviceError:
    """Return what is read, or why it cannot be."""
    try:
        return read()
    except (OSError, NetlinkFormatError) as error:
        return explain_failure(error)
    except DeviceError as error:
        return error


def explain_failure(error: OSError | NetlinkFormatError) -> DeviceError:
    """Return what an error means, with the remedy where there is one."""
    if isinstance(error, NetlinkFormatError):
        return DeviceError(Reason.MALFORMED, f"the kernel's answer cannot be understood: {error}")
    if isinstance(error, TimeoutError):
        return DeviceError(Reason.TIMEOUT, "no answer from the kernel")
    return DeviceError(reason_of(error), _WORDS.get(error.errno or errno.EIO, describe_error(error)))


class MissingPortMetrics:
    """Which rows are missing, of which ports, and why. What only some drivers do not offer is not missing."""

    def __init__(self) -> None:
        self._answered: set[Metric] = set()
        self._missing: dict[tuple[Metric, Reason], list[str]] = {}

    def record_answer(self, question: EthtoolRequest, device: str, answer: list[PortValue] | DeviceError) -> None:
        if isinstance(answer, list):
            answered = {v.row for v in answer}
            self.mark_answered(answered)
            rows: Iterable[Metric] = (row for row in question.offered if row not in answered)
            error = DeviceError(Reason.UNSUPPORTED, "not counted by this driver")
        else:
            rows, error = question.rows, answer
        detail = error.detail if isinstance(error, UnansweredError) else f"{question.name} {device}: {error.detail}"
        for row in rows:
            self.add_missing(row, error.reason, detail)

    def mark_answered(self, rows: Iterable[Metric]) -> None:
        self._answered.update(rows)

    def add_missing(self, row: Metric, reason: Reason, detail: str) -> None:
        """Note that a port lacks a row; `detail` names the port and the reason."""
        self._missing.setdefault((row, reason), []).append(detail)

    def gaps(self) -> Iterator[Gap]:
        """Yield one for each row and reason; it names one port, and how many there are."""
        for (row, reason), details in self._missing.items():
            if reason is not Reason.UNSUPPORTED or row not in self._answered:
                more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
                yield Gap(row, Node(), reason, f"{details[0]}{more}")
