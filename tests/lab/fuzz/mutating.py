"""Changes inputs: bytes, numbers, words, lines, fields and nesting, in one way after another."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from tests.lib.mutations import FRAGMENTS, WAYS

NUMBERS = (
    b"0", b"-1", b"1", b"255", b"256", b"65536", b"2147483648", b"4294967296", b"9223372036854775808", b"1e400",
    b"18446744073709551615", b"18446744073709551616", b"nan", b"-inf", b"0x10", b"1_000", b"N/A", b"[N/A]", b"",
    b"3.4028235e38", b"-0", b"00", b"\xd9\xa3", b"\xc2\xb2", b"9" * 400, b"1" * 4301,
)  # fmt: skip
"""What stands where a number was: limits of types, and what Python takes for a number and others do not."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_FIELD = re.compile(rb"[ \t,;:=|/]+")


class Mutator:
    """All ways, those of text files among them. `longest` bounds an input in bytes."""

    def __init__(self, dice: random.Random, words: Sequence[bytes], longest: int) -> None:
        self._dice = dice
        self._words = [*words] or [b"\0"]
        self._longest = longest
        self._ways = (
            self._flip, self._byte, self._insert, self._cut, self._double, self._number, self._number, self._word,
            self._word, self._over, self._field, self._nest, self._ordinary, self._ordinary,
        )  # fmt: skip

    def changed(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """The input after some changes; now and then joined with another one."""
        dice = self._dice
        if dice.random() < 0.1:
            other = dice.choice(others)
            data = data[: dice.randint(0, len(data))] + other[dice.randint(0, len(other)) :]
        for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5, 8))):
            data = dice.choice(self._ways)(data)
        return data[: self._longest]

    def _at(self, data: bytes) -> int:
        return self._dice.randint(0, len(data))

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self._dice.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self._dice.randrange(8))]) + data[at + 1 :]

    def _byte(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + bytes([self._dice.choice((0, 1, 9, 10, 13, 32, 127, 128, 255, 34, 92))]) + data[at + 1 :]

    def _insert(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self._dice.randbytes(self._dice.choice((1, 1, 2, 4, 8))) + data[at:]

    def _cut(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + data[at + self._dice.choice((1, 1, 2, 4, 8, 32, 128, 4096)) :]

    def _double(self, data: bytes) -> bytes:
        at = self._at(data)
        part = data[at : at + self._dice.choice((1, 4, 16, 64, 512))]
        return data[:at] + part * self._dice.choice((2, 2, 3, 50)) + data[at + len(part) :]

    def _number(self, data: bytes) -> bytes:
        places = list(_NUMBER.finditer(data))
        if not places:
            return self._over(data)
        place = self._dice.choice(places)
        return data[: place.start()] + self._dice.choice(NUMBERS) + data[place.end() :]

    def _word(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self._dice.choice(self._words) + data[at:]

    def _over(self, data: bytes) -> bytes:
        at, word = self._at(data), self._dice.choice((*self._words[:50], *NUMBERS, *FRAGMENTS[:20]))
        return data[:at] + word + data[at + len(word) :]

    def _field(self, data: bytes) -> bytes:
        """A field left out, emptied or exchanged for another one."""
        places = [0, *(each.end() for each in _FIELD.finditer(data)), len(data)]
        if len(places) < 4:
            return data
        one, other = sorted(self._dice.sample(range(len(places) - 1), 2))
        a, b = data[places[one] : places[one + 1]], data[places[other] : places[other + 1]]
        if self._dice.random() < 0.5:
            a = b""
        return data[: places[one]] + b + data[places[one + 1] : places[other]] + a + data[places[other + 1] :]

    def _nest(self, data: bytes) -> bytes:
        begin, end = self._dice.choice(((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b'{"a":', b"}"), (b"-", b"")))
        at, depth = self._at(data), self._dice.choice((1, 3, 60, 1500))
        until = self._dice.randint(at, len(data))
        return data[:at] + begin * depth + data[at:until] + end * depth + data[until:]

    def _ordinary(self, data: bytes) -> bytes:
        return self._dice.choice(WAYS)(self._dice, data)
