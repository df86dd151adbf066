"""How lines are made for one terminal: its size, its signs, and the styles of ours that it may colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agent.commands.top.screen.glyphs import UNICODE, Glyphs
from exporters.markup import Tone

STYLES = {Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.CALM: "", Tone.GOOD: "green"}
DIM, BOLD, HEAD, BAR, SPARK, CHOSEN = "dim", "bold", "bold", "cyan", "cyan", "reverse"

Part = tuple[str, str]
"""A text and its style."""


@dataclass(frozen=True, slots=True)
class Look:
    """`height` None: as many lines as there are to show, as on paper."""

    width: int
    height: int | None = None
    glyphs: Glyphs = UNICODE

    def line(self, *parts: Part | str) -> Text:
        """One line, cut at the width; what others wrote is made harmless here."""
        text = Text(no_wrap=True, end="")
        left = self.width
        for part in parts:
            raw, style = (part, "") if isinstance(part, str) else part
            shown = self.cut(raw, left)
            text.append(shown, style or None)
            left -= cell_len(shown)
            if left <= 0:
                break
        return text

    def cut(self, text: str, width: int) -> str:
        """A text that fits into so many cells; one that is cut says so with its last sign."""
        shown = self.glyphs.text(text)
        if cell_len(shown) <= width:
            return shown
        if width <= 0:
            return ""
        return set_cell_size(shown, width - 1) + self.glyphs.text("…")

    def pad(self, text: str, width: int, right: bool = False) -> str:
        """The text in exactly so many cells."""
        shown = self.cut(text, width)
        blank = " " * (width - cell_len(shown))
        return blank + shown if right else shown + blank

    def wrapped(self, text: str, width: int, most: int) -> list[str]:
        """The text in at most so many lines, broken between words; the last one is cut."""
        lines: list[str] = []
        rest = self.glyphs.text(text)
        while rest and len(lines) < most - 1 and cell_len(rest) > width:
            head = set_cell_size(rest, width)
            place = head.rfind(" ")
            place = place if place > width // 3 else len(head)
            lines.append(rest[:place].rstrip())
            rest = rest[place:].lstrip()
        return [*lines, self.cut(rest, width)] if rest else lines

    def ends(self, left: Iterable[Part | str], *right: str) -> Text:
        """Parts at the left, and at the right edge the first of these texts for which there is room."""
        line = self.line(*left)
        room = self.width - line.cell_len
        for shown in map(self.glyphs.text, right):
            if shown and room > cell_len(shown):
                line.append(" " * (room - cell_len(shown)) + shown, DIM)
                break
        return line


def sentence(look: Look, tone: Tone, text: str, most: int = 2) -> Iterator[Text]:
    """A sentence behind the mark of its tone, in at most so many lines."""
    for place, part in enumerate(look.wrapped(text, max(look.width - 2, 1), most)):
        mark = look.glyphs.mark(tone) if place == 0 else " "
        yield look.line((f"{mark} ", STYLES[tone]), (part, STYLES[tone]))
