"""Changes inputs: bytes, numbers, words, lines, fields, nesting and YAML's traps, in one way after another."""

import random
import re
from collections.abc import Sequence

FRAGMENTS = tuple(
    each.encode("utf-8", "surrogatepass")
    for each in (
        # what parsers stumble over
        "\t", "\0", "\ufeff", "\x85", "\u2028", "\r", "\r\n", "\x1b[2J", "\x7f", "\xa0", "\ud800", "é", "😀", "\n\n",
        "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%TAG ! x\n---\n", "%FOO\n", "\n---\n", "\n...\n", "--- ",
        # anchors, aliases, merges and tags
        "&a ", "&a", "*a", "*a ", "&a [*a]", "&a {<<: *a}", "<<: *a\n", "<<: ", "{<<: [*a, *a], b: *a}", "<<: 1\n",
        "! ", "!!str ", "!!int ", "!!float ", "!!null ", "!!binary ", "!!timestamp ", "!!set ",
        "!!python/name:os.system ",
        "!foo ", "!<x> ", "!!map ", "!!seq ",
        # indicators
        "? ", ": ", ":", "- ", "-", "|", ">", "|2\n", ">+1\n", "[", "]", "{", "}", ",", "'", '"', "\\", "#", " #",
        "@", "`",
        "%", "*", "&", '"\\x"', '"\\ud800"', '"\\U00110000"', '"\\/"', '"\\0"', "[" * 200, "{a: " * 200, "- " * 200,
        # values
        "1e999", "1.0e+999", "-1", "0", ".nan", ".inf", "-.inf", "1_0", "0x1f", "0o10", "010", "1:30", "2020-01-01",
        "2020-99-99", "yes", "no", "true", "~", "null", "''", '""', "[]", "{}", "NaN", '"NaN"', "1e308",
        "9" * 30, "9" * 5000, "0x" + "f" * 5000, "a" * 3000, "A" * 70_000,
        "0-99999999999", "1x99999999999", "999999999999999d", "5m" * 50, "\u0663",
        # what queries and templates are made of
        "{{", "}}", "{{ $x", "{{ if }}", "{{ range }}", '{{ printf "%999999999d" 1 }}', '{{ "\\ud800" }}',
        "{{ 0x" + "f" * 50 + " }}",
        "((((", "a+" * 50, "-" * 50, '{a=~"', "user:secret@host:1", "http://user:secret@host:1/", "../",
        "/dev/zero", "*",
    )
)  # fmt: skip

NUMBERS = (
    b"0", b"-1", b"1", b"255", b"256", b"65536", b"2147483648", b"4294967296", b"9223372036854775808", b"1e400",
    b"18446744073709551615", b"18446744073709551616", b"nan", b"-inf", b"0x10", b"1_000", b"N/A", b"[N/A]", b"",
    b"3.4028235e38", b"-0", b"00", b"\xd9\xa3", b"\xc2\xb2", b"9" * 400, b"1" * 4301,
)  # fmt: skip
"""What stands where a number was: limits of types, and what Python takes for a number and others do not."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_FIELD = re.compile(rb"[ \t,;:=|/]+")
_VALUE = re.compile(rb"[:\-,\[{(][^\n,\]}]*")


class Mutator:
    """All ways, those of text files among them. `longest` bounds an input in bytes."""

    def __init__(self, dice: random.Random, words: Sequence[bytes], longest: int) -> None:
        self._dice = dice
        self._words = [*words] or [b"\0"]
        self._longest = longest
        self._ways = (
            self._flip, self._insert, self._insert, self._cut, self._double, self._number, self._number, self._word,
            self._word, self._over, self._field, self._nest, self._value, self._value, self._move_line, self._refer,
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
        changed = bytearray(data)
        for _ in range(self._dice.choice((1, 1, 4)) if data else 0):
            changed[self._dice.randrange(len(changed))] ^= 1 << self._dice.randrange(8)
        return bytes(changed)

    def _insert(self, data: bytes) -> bytes:
        at, dice = self._at(data), self._dice
        return data[:at] + dice.choice((dice.choice(FRAGMENTS), dice.randbytes(dice.choice((1, 2, 8))))) + data[at:]

    def _cut(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + data[at + self._dice.choice((1, 1, 2, 4, 8, 32, 128, 1 << 30)) :]

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

    def _value(self, data: bytes) -> bytes:
        """Something else after some colon, dash, comma or bracket, up to the end of its line or the next one."""
        places = list(_VALUE.finditer(data))
        if not places:
            return data
        place = self._dice.choice(places)
        return data[: place.start() + 1] + b" " + self._dice.choice(FRAGMENTS) + data[place.end() :]

    def _move_line(self, data: bytes) -> bytes:
        """A line doubled elsewhere, or taken away."""
        lines = data.split(b"\n")
        line = self._dice.choice(lines)
        if self._dice.random() < 0.5:
            lines.remove(line)
        else:
            lines.insert(self._dice.randint(0, len(lines)), line)
        return b"\n".join(lines)

    def _refer(self, data: bytes) -> bytes:
        """An anchor after one colon or dash, and aliases or merges of it in the place of other values."""
        places = [each for each in _VALUE.finditer(data) if each[0][:2] in (b": ", b"- ")]
        if len(places) < 2:
            return data
        first, *others = sorted(self._dice.sample(places, min(len(places), 3)), key=lambda each: each.start())
        for each in reversed(others):
            alias = self._dice.choice((b" *z", b" {<<: *z}", b" [*z, *z]", b" *z "))
            data = data[: each.start() + 1] + alias + data[each.end() :]
        return data[: first.start() + 1] + b" &z" + data[first.start() + 1 :]
