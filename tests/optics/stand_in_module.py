"""Modules with a memory of our own, written after the tables of SFF-8636 and CMIS, apart from the code that is tested.

A read of flags would clear them for others, so each module has all its flags set, and counts which bytes were read.
"""

import errno
import struct
from collections.abc import Callable, Sequence

LOWER = -1
"""The key of the lower half of page 0."""


class StandInModule:
    """128 bytes for each half page; pages that it does not have read as errors."""

    def __init__(self, *pages: int) -> None:
        self.halves: dict[tuple[int, int], bytearray] = {
            (bank, page): bytearray(128) for bank in (0, 1) for page in (LOWER, 0, *pages)
        }
        self.transfers: list[tuple[int, int, int, int]] = []
        """Page, offset, length and bank of each read."""
        self.fault = 0
        """The errno with which its bus fails."""
        self.cut = 128
        """Most bytes that it gives at once."""
        self.before: Callable[[int, int], None] = lambda page, offset: None
        """Called before each read."""

    def set(self, page: int, offset: int, content: bytes, bank: int = 0) -> None:
        """Write bytes; an offset below 128 is in the lower half."""
        half = self.halves[bank, LOWER if offset < 128 else page]
        at = offset % 128
        half[at : at + len(content)] = content

    def words(self, page: int, offset: int, values: Sequence[int], bank: int = 0) -> None:
        self.set(page, offset, struct.pack(f">{len(values)}H", *(value & 0xFFFF for value in values)), bank)

    def transfer(self, page: int, offset: int, length: int, bank: int) -> bytes | int:
        """The bytes, or an errno."""
        self.before(page, offset)
        self.transfers.append((page, offset, length, bank))
        half = self.halves.get((bank, LOWER if offset < 128 else page))
        if self.fault or half is None:
            return self.fault or errno.EIO
        return bytes(half[offset % 128 :][: min(length, self.cut)])


def name(module: StandInModule, vendor: int, part: int, serial: int, *, as_serial: bytes = b"SN0001") -> None:
    """Identity at the offsets of a map, filled with spaces as the specifications want."""
    for offset, said in ((vendor, b"COLDPLATE OPTICS"), (part, b"CP-TEST-1"), (serial, as_serial)):
        module.set(0, offset, said.ljust(16))


def applications(module: StandInModule, *listed: tuple[int, int, int, int]) -> None:
    """List applications of CMIS: lanes of the host and of the medium, and the bits of where an instance may begin on
    each. The ninth and further ones are in page 01h, and the list ends after the last."""
    for number in range(15):
        at = (0, 86 + 4 * number) if number < 8 else (1, 223 + 4 * (number - 8))
        if number < len(listed):
            host, media, host_begins, media_begins = listed[number]
            module.set(*at, bytes((0x11, 0x1C, host << 4 | media, host_begins)))
            module.set(1, 176 + number, bytes((media_begins,)))
        else:
            module.set(*at, b"\xff\x1c\x88\x01")


def qsfp28(serial: bytes = b"SN0001") -> StandInModule:
    """100GBASE-SR4-like: 40.5 degrees, 3.3 V, four lanes of 0.5 to 0.8 mW received, 0.9 mW sent, 7 mA."""
    module = StandInModule(3)
    module.set(0, 0, bytes((0x11, 8, 0)))
    module.set(0, 3, b"\xff" * 19)
    module.words(0, 22, [40 * 256 + 128])
    module.words(0, 26, [33_000])
    module.words(0, 34, [5000, 6000, 7000, 8000])
    module.words(0, 42, [3500, 3500, 3500, 3600])
    module.words(0, 50, [9000, 9000, 9000, 8900])
    module.set(0, 128, b"\x11")
    name(module, 148, 168, 196, as_serial=serial)
    module.set(0, 220, b"\x34")
    module.words(3, 128, [75 * 256, -5 * 256, 70 * 256, 0])
    module.words(3, 176, [21_878, 466, 17_378, 933])
    module.words(3, 184, [5000, 1000, 4500, 1500])
    module.words(3, 192, [21_878, 1000, 17_378, 2000])
    return module


def osfp(serial: bytes = b"SN0001", *, revision: int = 0x50, banks: int = 0) -> StandInModule:
    """800GBASE-DR8-like: 52.25 degrees, 3.3 V, eight lanes of 1.0 to 1.7 mW received, 1.5 mW sent, 4 x 2 x 15 mA."""
    module = StandInModule(1, 2, 0x11)
    module.set(0, 0, bytes((0x19, revision, 0, 3 << 1)))
    module.set(0, 8, b"\xff" * 6)
    module.words(0, 14, [52 * 256 + 64, 33_000])
    module.set(0, 128, b"\x19")
    name(module, 129, 148, 166, as_serial=serial)
    module.set(0, 212, b"\x06")
    applications(module, (8, 8, 0x01, 0x01), (4, 4, 0x11, 0x11), (1, 1, 0xFF, 0xFF))
    module.set(1, 142, bytes((banks,)))
    module.set(1, 159, b"\x03\x17")
    module.words(2, 128, [80 * 256, -10 * 256, 75 * 256, -5 * 256])
    module.words(2, 176, [50_118, 2000, 39_810, 3000])
    module.words(2, 184, [25_000, 5000, 22_500, 7500])
    module.words(2, 192, [50_118, 1000, 39_810, 2570])
    for bank in (0, 1):
        module.set(0x11, 134, b"\xff" * 20, bank)
        module.words(0x11, 154, [15_000 + bank] * 8, bank)
        module.words(0x11, 170, [15_000] * 8, bank)
        module.words(0x11, 186, [10_000 + 1000 * lane + bank for lane in range(8)], bank)
    return module


def diagnosed_osfp(groups: int = 2) -> StandInModule:
    """The same with diagnostics: errors 1e-8 and 21 dB at the fibre, 1e-9 and 23 dB at the port, lane 3 the worst.

    Each observable of a lane is described; the signal to noise is in the last page, the rest in the first.
    """
    module = osfp()
    last = groups - 1
    for page in (*range(0x20, 0x20 + groups), *range(0x24, 0x24 + groups), 0x2C, 0x2F):
        module.halves[0, page] = bytearray(128)
    module.set(1, 142, bytes((1 << 6,)))
    module.set(0x2F, 128, bytes((last,)) + b"\xff" * 127)
    module.set(0x2C, 128, b"\xff" * 128)
    described = {0x20: (9, 11, 13, 15, 10, 12, 14, 16), 0x20 + last: (5, 6)}
    errors = {9: 0x0801, 15: 0x8001, 16: 0x7801}
    for page, types in described.items():
        for place, (kind, lane) in enumerate((kind, lane) for kind in types for lane in range(8)):
            module.set(page, 128 + 2 * place, bytes((0x30 | lane, kind)))
            word = {5: 21 * 256, 6: 23 * 256}.get(kind, errors.get(kind, 0xF801)) + (kind in (15, 16) and lane == 2)
            module.words(page + 4, 128 + 2 * place, [word])
    return module


def copper_qsfp() -> StandInModule:
    """A passive cable with a flat memory."""
    module = StandInModule()
    module.set(0, 0, bytes((0x11, 7, 1 << 2)))
    module.set(0, 128, b"\x11")
    module.set(0, 147, b"\xa0")
    name(module, 148, 168, 196)
    return module


def copper_osfp() -> StandInModule:
    """Likewise, by CMIS."""
    module = StandInModule()
    module.set(0, 0, bytes((0x19, 0x40, 1 << 7, 3 << 1)))
    module.set(0, 128, b"\x19")
    module.set(0, 212, b"\x0a")
    name(module, 129, 148, 166)
    return module
