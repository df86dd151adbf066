"""A kernel whose ethtool answers a test writes, a sysfs with its ports, and the backend that reads both.

Messages are packed here from the layouts of Documentation/networking/ethtool-netlink.rst, apart from the code that is
tested.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.backends.optics import OpticsBackend
from agent.backends.protocol import BackendSample
from agent.model import Gap, Instant, Lane, Reading, Reason
from tests.optics.stand_in_module import StandInModule

FAMILY = 21
FEC_GET, STATS_GET, LINKSTATE_GET, LINKMODES_GET, MODULE_EEPROM_GET = 29, 32, 6, 4, 31
REPLIES = {
    FEC_GET: (30, 1),
    STATS_GET: (33, 2),
    LINKSTATE_GET: (6, 1),
    LINKMODES_GET: (4, 1),
    MODULE_EEPROM_GET: (32, 1),
}
"""For each question the number of its answer, and of the attribute with the device."""

Answer = bytes | int
"""The attributes of an answer, or the errno with which the kernel refuses."""


def attr(number: int, content: bytes) -> bytes:
    """An attribute, filled up to four bytes."""
    return struct.pack("=HH", 4 + len(content), number) + content + bytes(-len(content) % 4)


def u32(number: int, value: int) -> bytes:
    return attr(number, struct.pack("=I", value))


def u64s(number: int, *values: int) -> bytes:
    return attr(number, struct.pack(f"={len(values)}Q", *values))


def fec(mode: int | None, *statistics: bytes) -> bytes:
    """The attributes of a FEC_GET answer; `mode` is the bit of the active code."""
    modes = attr(2, attr(1, b"") + u32(2, 92) + attr(4, bytes(12)))
    active = b"" if mode is None else u32(4, mode)
    return modes + attr(3, b"\1") + active + attr(5 | 0x8000, b"".join(statistics))


def group(number: int, **statistics: int) -> bytes:
    """One group of a STATS_GET answer: `_4=7` is the statistic 4 with the value 7. Each group has names of its own."""
    told = b"".join(attr(4 | 0x8000, u64s(int(name[1:]), value)) for name, value in statistics.items())
    return attr(4 | 0x8000, u32(2, number) + u32(3, 17 + number) + told)


def message(kind: int, payload: bytes, sequence: int = 1) -> bytes:
    """A netlink message, filled up to four bytes."""
    head = struct.pack("=IHHII", 16 + len(payload), kind, 0, sequence, 77)
    return head + payload + bytes(-len(payload) % 4)


def refused(number: int, question: bytes = b"") -> bytes:
    """An error message, which repeats the question."""
    return message(2, struct.pack("=i", -number) + question)


class StandInKernel:
    """What a netlink socket is connected to. `answers` are by device and command; the others are not supported."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Answer] = {}
        self.family: Answer = attr(2, b"ethtool\0") + attr(1, struct.pack("=H", FAMILY))
        self.raw: dict[tuple[str, int], list[bytes]] = {}
        """Datagrams in the place of an answer; after them the kernel says nothing."""
        self.refuses_sockets = 0
        self.asked: list[tuple[str, int]] = []
        self.flags: dict[int, int] = {}
        """The flags with which each command was last asked."""
        self.groups = b""
        """The groups that STATS_GET last asked for: the content of its bitset's value."""
        self.modules: dict[str, StandInModule | int] = {}
        """The module in each port, or the errno with which its driver refuses."""
        self.open = 0

    def connect(self) -> StandInSocket:
        if self.refuses_sockets:
            raise OSError(self.refuses_sockets, os.strerror(self.refuses_sockets))
        self.open += 1
        return StandInSocket(self)

    def reply(self, question: bytes) -> list[bytes]:
        """The datagrams with which it answers a question."""
        length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", question)
        command, version = struct.unpack_from("=BB", question, 16)
        assert (length, flags & 1) == (len(question), 1), "a whole message, and a request"
        told = dict(_attributes(question[20:]))
        if kind == 16:
            assert (command, told) == (3, {2: b"ethtool\0"})
            return [self._answer(16, bytes((1, 2, 0, 0)), self.family, question)]
        answer, header = REPLIES[command]
        about = dict(_attributes(told[header]))
        device = os.fsdecode(about[2].rstrip(b"\0"))
        assert (kind, version, sequence) == (FAMILY, 1, 1)
        self.asked.append((device, command))
        self.flags[command] = struct.unpack("=I", about.get(3, bytes(4)))[0]
        if command == STATS_GET:
            self.groups = dict(_attributes(told[3])).get(4, b"")
        if (device, command) in self.raw:
            return list(self.raw[device, command])
        if command == MODULE_EEPROM_GET:
            said = self._module_answer(device, told)
        else:
            said = self.answers.get((device, command), errno.EOPNOTSUPP)
        about_it = attr(header | 0x8000, u32(1, 2) + attr(2, about[2])) if isinstance(said, bytes) else b""
        return [self._answer(FAMILY, bytes((answer, 1, 0, 0)) + about_it, said, question)]

    def _module_answer(self, device: str, told: dict[int, bytes]) -> Answer:
        """As net/ethtool/eeprom.c: the half pages that it refuses, and an answer with the bytes alone."""
        module = self.modules.get(device, errno.EOPNOTSUPP)
        if isinstance(module, int):
            return module
        offset, length = (struct.unpack("=I", told[number])[0] for number in (2, 3))
        page, bank, address = (told[number][0] for number in (4, 5, 6))
        assert address == 0x50
        if offset < 128 and (page or offset + length > 128):
            return errno.ERANGE
        assert length <= 128
        assert offset + length <= 256
        said = module.transfer(page, offset, length, bank)
        return said if isinstance(said, int) else attr(7, said)

    @staticmethod
    def _answer(kind: int, head: bytes, said: Answer, question: bytes) -> bytes:
        return refused(said, question) if isinstance(said, int) else message(kind, head + said)


class StandInSocket:
    def __init__(self, kernel: StandInKernel) -> None:
        self._kernel = kernel
        self._waiting: list[bytes] = []

    def send(self, data: bytes, /) -> int:
        self._waiting = self._kernel.reply(data)
        return len(data)

    def recv(self, size: int, /) -> bytes:
        if not self._waiting:
            raise TimeoutError("timed out")
        return self._waiting.pop(0)[:size]

    def close(self) -> None:
        self._kernel.open -= 1


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, number = struct.unpack_from("=HH", data)
        yield number & 0x3FFF, data[4:length]
        data = data[length + -length % 4 :]


class Ports:
    """A node with Ethernet ports, and what the backend says of them."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.kernel = StandInKernel()
        self.backend = OpticsBackend(sysfs, self.kernel.connect)
        self.now = 100.0
        self.last = BackendSample()

    def add(self, name: str, kind: str = "1", *, device: bool = True, physfn: bool = False, port: str = "p0") -> None:
        folder = self.sysfs / "class" / "net" / name
        folder.mkdir(parents=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "phys_port_name").write_text(f"{port}\n")
        if device:
            (folder / "device").mkdir()
        if physfn:
            (folder / "device" / "physfn").mkdir()

    def healthy(self, name: str) -> Ports:
        """A port that counts everything, without an error."""
        self.add(name)
        answers = self.kernel.answers
        answers[name, FEC_GET] = fec(50, u64s(2, 900), u64s(3, 0), u64s(4, 1000))
        answers[name, STATS_GET] = group(0, _0=0) + group(1, _3=10**9, _4=0)
        answers[name, LINKSTATE_GET] = attr(2, b"\1") + u32(7, 2)
        answers[name, LINKMODES_GET] = attr(2, b"\1") + u32(5, 400_000) + attr(6, b"\1") + u32(9, 4)
        return self

    def read(self) -> dict[str, float]:
        self.now += 15.0
        self.last = self.backend.read(Lane.SLOW, Instant(self.now, 1e9 + self.now))
        shown = {}
        for each in self.last.readings:
            key = _key(each, "coldplate_ethernet_")
            assert key not in shown, "a series has one value"
            shown[key] = each.value
        return shown

    def modules(self, seconds: float = 60.0) -> dict[str, float]:
        """All values of a read of the modules, likewise, `seconds` after the last read."""
        self.now += seconds
        self.last = self.backend.read(Lane.COLD, Instant(self.now, 1e9 + self.now))
        return {_key(each, "coldplate_transceiver_"): each.value for each in self.last.readings}

    def gaps(self) -> dict[str, tuple[Reason, str]]:
        found: dict[str, Gap] = {}
        for gap in self.last.gaps:
            name = gap.metric.name.removeprefix("coldplate_ethernet_")
            assert name not in found, "a row is said once"
            found[name] = gap
        return {name: (gap.reason, gap.detail) for name, gap in found.items()}


def _key(reading: Reading, prefix: str) -> str:
    labels = " ".join(value for _, value in reading.labels)
    return f"{reading.metric.name.removeprefix(prefix)} {labels}".strip()


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[Ports]:
    made = Ports(tmp_path)
    yield made
    made.backend.close()
    assert made.kernel.open == 0, "every socket is closed"
