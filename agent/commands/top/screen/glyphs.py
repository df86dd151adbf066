"""The signs that a terminal can show: bars, sparklines and marks, in Unicode or in ASCII."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporters.markup import Tone

ABSENT = "-"
"""What stands where there is no value: never a 0."""

_PLAIN = str.maketrans({"°": "", "–": "-", "—": "-", "…": "~", "×": "x", "µ": "u"})


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs. `eighths` fill a cell from the left, `levels` from below; both begin with the least."""

    marks: tuple[str, str, str, str]
    eighths: str
    full: str
    track: str
    levels: str
    rule: str
    degree: str
    enter: str
    arrows: str
    is_ascii: bool = False

    def mark(self, tone: Tone) -> str:
        """The sign of a tone: colour is never the only one."""
        return self.marks[tone]

    def text(self, text: str) -> str:
        """A text of ours or of others as this terminal can show it, on one line and without control characters."""
        shown = "".join(each if each.isprintable() else "?" for each in text)
        return shown.translate(_PLAIN).encode("ascii", "replace").decode() if self.is_ascii else shown

    def bar(self, share: float | None, width: int) -> str:
        """A share of 0 to 1 as a bar of so many cells; blank where there is no value."""
        if share is None or width <= 0:
            return " " * max(width, 0)
        steps = len(self.eighths) + 1
        filled = round(min(max(share, 0.0), 1.0) * width * steps)
        cells, rest = divmod(filled, steps)
        bar = self.full * cells + (self.eighths[rest - 1] if rest else "")
        return bar + self.track * (width - len(bar))

    def sparkline(self, values: Sequence[float | None], most: float, width: int) -> str:
        """The last values, one in each cell and the newest at the right; a blank where there was none."""
        shown = [self._level(value, most) for value in values[-width:]] if width > 0 else []
        return "".join(shown).rjust(max(width, 0))

    def _level(self, value: float | None, most: float) -> str:
        if value is None or most <= 0:
            return " "
        return self.levels[min(int(max(value, 0.0) / most * len(self.levels)), len(self.levels) - 1)]


UNICODE = Glyphs(("✖", "▲", "·", "✔"), "▏▎▍▌▋▊▉", "█", " ", "▁▂▃▄▅▆▇█", "─", "°", "⏎", "↑↓")
ASCII = Glyphs(("x", "!", ".", " "), "", "#", ".", "_.-=+*#", "-", "C", "Enter", "Up/Down", True)


def glyphs_for(encoding: str | None, environment: Mapping[str, str]) -> Glyphs:
    """Those that an output of this encoding can show, ASCII where the locale is C: Python writes UTF-8 even there."""
    if next(filter(None, map(environment.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "") in ("C", "POSIX"):
        return ASCII
    try:
        "✖▏▁─°".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE
