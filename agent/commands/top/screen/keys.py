"""Keys and mouse reports out of the bytes that a terminal sends: ECMA-48 sequences, xterm's keys and SGR mouse mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class KeyPress:
    """One key: a character, or a name such as `up`, `enter` and `page-down`."""

    name: str


@dataclass(frozen=True, slots=True)
class Click:
    """The first mouse button went down on this line and column of the screen, counted from 0."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scroll:
    """The wheel was turned; `lines` is below 0 upwards."""

    lines: int


Press = Union[KeyPress, Click, Scroll]

_SEQUENCE = re.compile(rb"\x1b(?:\[(?P<csi>[0-?]*[ -/]*[@-~])|O(?P<ss3>.))", re.DOTALL)
_MOUSE = re.compile(rb"<(\d{1,4});(\d{1,5});(\d{1,5})([Mm])")
_CSI = {
    b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end", b"1~": "home", b"7~": "home",
    b"4~": "end", b"8~": "end", b"5~": "page-up", b"6~": "page-down",
}  # fmt: skip
_PLAIN = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", " ": "space", "\x1b": "escape"}
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?")
_WHEEL_UP, _WHEEL_DOWN = 64, 65
_WHEEL_LINES = 3


class KeyReader:
    """Takes bytes as they come; a sequence may arrive in pieces."""

    def __init__(self) -> None:
        self._left = b""

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun: without more bytes soon, it was the escape key."""
        return bool(self._left)

    def feed(self, data: bytes) -> list[Press]:
        """What the bytes say, with those before."""
        found: list[Press] = []
        data, self._left = self._left + data, b""
        while data:
            if _BEGUN.fullmatch(data) or (data[0] >= 0xC0 and _is_cut(data)):
                self._left = data
                break
            event, data = _first(data)
            if event is not None:
                found.append(event)
        return found

    def flush(self) -> list[Press]:
        """What was left as it stands: nothing more came."""
        left, self._left = self._left, b""
        return [KeyPress("escape")] if left.startswith(b"\x1b") else []


def _first(data: bytes) -> tuple[Press | None, bytes]:
    """The first event, None for one that means nothing here, and the bytes behind it."""
    found = _SEQUENCE.match(data)
    if found is not None:
        return _sequence(found), data[found.end() :]
    size = next((size for size in range(1, 5) if _is_text(data[:size])), 1)
    text = data[:size].decode("utf-8", "replace")
    name = _PLAIN.get(text, text)
    return (KeyPress(name) if name.isprintable() else None), data[size:]


def _sequence(found: re.Match[bytes]) -> Press | None:
    csi = found["csi"]
    if csi is None:
        csi = found["ss3"]
    mouse = _MOUSE.fullmatch(csi)
    if mouse is None:
        name = _CSI.get(csi)
        return None if name is None else KeyPress(name)
    button, column, line = (int(each) for each in mouse.groups()[:3])
    if button in (_WHEEL_UP, _WHEEL_DOWN):
        return Scroll(-_WHEEL_LINES if button == _WHEEL_UP else _WHEEL_LINES)
    return Click(line - 1, column - 1) if button == 0 and mouse[4] == b"M" else None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_cut(data: bytes) -> bool:
    """Whether the bytes are the beginning of one character."""
    return len(data) < 2 + (data[0] >= 0xE0) + (data[0] >= 0xF0) and all(each & 0xC0 == 0x80 for each in data[1:])
