"""Files as accidents and attackers leave them: changed bytes, lost and doubled lines, and what YAML has of traps.

Everything comes from a seed, so that what was found once is found again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

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
        "2020-99-99", "yes", "no", "~", "null", "''", '""',
        "9" * 30, "9" * 5000, "0x" + "f" * 5000, "a" * 3000, "A" * 70_000,
        "0-99999999999", "1x99999999999", "999999999999999d", "5m" * 50, "\u0663",
        # what queries and templates are made of
        "{{", "}}", "{{ $x", "{{ if }}", "{{ range }}", '{{ printf "%999999999d" 1 }}', '{{ "\\ud800" }}',
        "{{ 0x" + "f" * 50 + " }}",
        "((((", "a+" * 50, "-" * 50, '{a=~"', "user:secret@host:1", "http://user:secret@host:1/", "../",
        "/dev/zero", "*",
    )
)  # fmt: skip
"""What is put into a file somewhere."""


def mutations(seed: int, sources: list[bytes], count: int) -> Iterator[tuple[int, bytes]]:
    """The number of a source, and what became of it; `count` times."""
    chance = random.Random(seed)
    for _ in range(count):
        number = chance.randrange(len(sources))
        content = sources[number]
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            content = chance.choice(WAYS)(chance, content)
        yield number, content


def _insert(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + chance.choice(FRAGMENTS) + content[at:]


def _replace_value(chance: random.Random, content: bytes) -> bytes:
    """Something else after some colon, dash, comma or bracket, up to the end of its line or the next one of them."""
    places = [at for at, byte in enumerate(content) if byte in b":-,[{("]
    if not places:
        return content
    begin = chance.choice(places) + 1
    end = begin
    while end < len(content) and content[end] not in b"\n,]}":
        end += 1
    return content[:begin] + b" " + chance.choice(FRAGMENTS) + content[end:]


def _flip(chance: random.Random, content: bytes) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 4))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut_out(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + content[at + chance.choice((1, 2, 5, 30)) :]


def _cut_off(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randint(0, len(content))]


def _move_line(chance: random.Random, content: bytes) -> bytes:
    """A line doubled elsewhere, or taken away."""
    lines = content.split(b"\n")
    line = chance.choice(lines)
    if chance.random() < 0.5:
        lines.remove(line)
    else:
        lines.insert(chance.randint(0, len(lines)), line)
    return b"\n".join(lines)


def _name_and_refer(chance: random.Random, content: bytes) -> bytes:
    """An anchor after one colon or dash, and aliases or merges of it after others."""
    places = [at + 1 for at, byte in enumerate(content) if byte in b":-" and content[at + 1 : at + 2] == b" "]
    if len(places) < 2:
        return content
    chosen = sorted(chance.sample(places, min(len(places), chance.randint(2, 5))))
    for at in reversed(chosen[1:]):
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        content = content[:at] + chance.choice((b" *z", b" {<<: *z}", b" [*z, *z]", b" *z ")) + content[end:]
    return content[: chosen[0]] + b" &z" + content[chosen[0] :]


WAYS = (_insert, _insert, _replace_value, _replace_value, _flip, _cut_out, _cut_off, _move_line, _name_and_refer)
