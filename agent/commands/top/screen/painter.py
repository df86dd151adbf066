"""Makes the bytes of a picture: only the lines that changed, in one synchronized update, so that nothing flickers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output (DEC private mode 2026): a terminal without it ignores both."""


def styled(console: Console, line: Text) -> str:
    """A line with the console's way of colouring: none where NO_COLOR is set or the terminal is dumb."""
    with console.capture() as capture:
        console.print(line, end="", soft_wrap=True, markup=False, highlight=False, emoji=False)
    return capture.get()


class Painter:
    """Remembers what each line of the screen shows."""

    def __init__(self, console: Console, encoding: str) -> None:
        self._console = console
        self._encoding = encoding
        self._shown: list[str] = []

    def forget(self) -> None:
        """The screen was changed by others, or has another size: everything is to be drawn again."""
        self._shown = []

    def paint(self, lines: Sequence[Text]) -> bytes:
        """What to write so that the screen shows these lines; nothing if it does."""
        fresh = [styled(self._console, line) for line in lines]
        out = [] if self._shown else ["\x1b[2J"]
        for place, line in enumerate(fresh):
            if place >= len(self._shown) or self._shown[place] != line:
                out.append(f"\x1b[{place + 1};1H\x1b[0m\x1b[K{line}")
        self._shown = fresh
        return f"{BEGIN}{''.join(out)}{END}".encode(self._encoding, "replace") if out else b""
