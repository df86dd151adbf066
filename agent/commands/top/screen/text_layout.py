"""Lay out lines for one terminal: its size, its signs in Unicode or ASCII, its styles, and values in narrow columns.

What is absent is a dash, and zero is a value.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from exporters.markup import Tone

ABSENT = "-"
"""What stands where there is no value: never a 0."""

_PLAIN = str.maketrans({"°": "", "–": "-", "—": "-", "…": "~", "×": "x", "µ": "u"})


class Glyphs(Struct, frozen=True):
    """A set of signs: `marks` by tone, since colour is never alone; `eighths` from the left, `levels` upwards."""

    marks: str
    eighths: str
    full: str
    track: str
    levels: str
    rule: str
    degree: str
    enter_key: str
    arrows: str
    is_ascii: bool = False

    def text(self, text: str) -> str:
        """Return any text as this terminal can show it, on one line and without control characters."""
        printable = "".join(character if character.isprintable() else "?" for character in text)
        return printable.translate(_PLAIN).encode("ascii", "replace").decode() if self.is_ascii else printable

    def bar(self, share: float | None, width: int) -> str:
        """Return a share of 0 to 1 as a bar of `width` cells; blank without a value."""
        if share is None or width <= 0:
            return " " * max(width, 0)
        steps = len(self.eighths) + 1
        filled = round(min(max(share, 0.0), 1.0) * width * steps)
        cells, rest = divmod(filled, steps)
        bar = self.full * cells + (self.eighths[rest - 1] if rest else "")
        return bar + self.track * (width - len(bar))

    def sparkline(self, values: Sequence[float | None], most: float, width: int) -> str:
        """Return the last values, one in each cell and the newest at the right; a blank for a missing one."""
        levels = [self._level(value, most) for value in values[-width:]] if width > 0 else []
        return "".join(levels).rjust(max(width, 0))

    def _level(self, value: float | None, most: float) -> str:
        if value is None or most <= 0:
            return " "
        return self.levels[min(int(max(value, 0.0) / most * len(self.levels)), len(self.levels) - 1)]


UNICODE = Glyphs("".join(tone.sign for tone in Tone), "▏▎▍▌▋▊▉", "█", " ", "▁▂▃▄▅▆▇█", "─", "°", "⏎", "↑↓")
ASCII = Glyphs("x!o?. ", "", "#", ".", "_.-=+*#", "-", "C", "Enter", "Up/Down", True)


def glyphs_for(encoding: str | None, environment: Mapping[str, str], *, is_ascii: bool = False) -> Glyphs:
    """Return those that an output of this encoding can show, and ASCII in the locale C, where Python writes UTF-8."""
    if is_ascii or next(filter(None, map(environment.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "") in ("C", "POSIX"):
        return ASCII
    try:
        "✖○▏▁─°".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


STYLES = {**dict.fromkeys(Tone, ""), Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.GOOD: "green"}
DIM, BOLD, HEAD, BAR, SPARK, CHOSEN = "dim", "bold", "bold", "cyan", "cyan", "reverse"

Part = tuple[str, str]
"""A text and its style."""


def with_style(part: Part | str) -> Part:
    """Return a part; a text alone gets no style."""
    return (part, "") if isinstance(part, str) else part


class TextLayout(Struct, frozen=True):
    """The width and height of what is drawn, in characters, and its signs; no height: as many lines as needed."""

    width: int
    height: int | None = None
    glyphs: Glyphs = UNICODE

    def line(self, *parts: Part | str) -> Text:
        """Return one line, cut at the width; what others wrote is made harmless here."""
        line = Text(no_wrap=True, end="")
        room = self.width
        for part in parts:
            raw, style = with_style(part)
            text = self.cut(raw, room)
            line.append(text, style or None)
            room -= cell_len(text)
            if room <= 0:
                break
        return line

    def cut(self, text: str, width: int) -> str:
        """Return the text cut to `width` cells; the last sign shows a cut."""
        printable = self.glyphs.text(text)
        if cell_len(printable) <= width:
            return printable
        if width <= 0:
            return ""
        return set_cell_size(printable, width - 1) + self.glyphs.text("…")

    def pad(self, text: str, width: int, right: bool = False) -> str:
        """Return the text in exactly `width` cells."""
        cut = self.cut(text, width)
        blank = " " * (width - cell_len(cut))
        return blank + cut if right else cut + blank

    def wrap(self, text: str, width: int, most: int) -> list[str]:
        """Return the text in a limited number of lines, broken between words; the last one is cut."""
        lines: list[str] = []
        rest = self.glyphs.text(text)
        while rest and len(lines) < most - 1 and cell_len(rest) > width:
            head = set_cell_size(rest, width)
            place = head.rfind(" ")
            place = place if place > width // 3 else len(head)
            lines.append(rest[:place].rstrip())
            rest = rest[place:].lstrip()
        return [*lines, self.cut(rest, width)] if rest else lines

    def left_and_right(self, parts: Iterable[Part | str], *right: str) -> Text:
        """Return parts at the left, and at the right edge the first of these texts for which there is room."""
        line = self.line(*parts)
        room = self.width - line.cell_len
        for text in map(self.glyphs.text, right):
            if text and room > cell_len(text):
                line.append(" " * (room - cell_len(text)) + text, DIM)
                break
        return line


def sentence(layout: TextLayout, tone: Tone, text: str, most: int = 2) -> Iterator[Text]:
    """Return a sentence after the mark of its tone, in a limited number of lines."""
    for place, part in enumerate(layout.wrap(text, max(layout.width - 2, 1), most)):
        mark = layout.glyphs.marks[tone] if place == 0 else " "
        yield layout.line((f"{mark} ", STYLES[tone]), (part, STYLES[tone]))


def panel(title: str, lines: Sequence[Text], most: int | None, layout: TextLayout) -> list[Text]:
    """Return a title and its lines, in `most` lines: the last says how many had no room, if it is not the only one.

    Returns nothing where not even one line fits.
    """
    if not lines or (most is not None and most < 2):
        return []
    head = layout.line((f"{title} ", HEAD), (layout.glyphs.rule * max(layout.width - len(title) - 1, 0), DIM))
    if most is None or len(lines) <= most - 1:
        return [head, *lines]
    if most == 2:
        return [head, lines[0]]
    count = most - 2
    return [head, *lines[:count], layout.line((f"  and {len(lines) - count} more", DIM))]


_PREFIXES = ("", "k", "M", "G", "T", "P")


def percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def plain(value: float | None, factor: float = 1.0, unit: str = "") -> str:
    return ABSENT if value is None else f"{value * factor:.0f}{unit}"


def value_of_limit(value: float | None, most: float | None, factor: float = 1.0, unit: str = "") -> str:
    """Return a value, of the most that there can be where that is known: 641/700W."""
    if value is None or most is None:
        return plain(value, factor, unit)
    return f"{value * factor:.0f}/{most * factor:.0f}{unit}"


def rate(value: float | None) -> str:
    """Return bytes per second with a decimal prefix: 12.3GB/s."""
    if value is None:
        return ABSENT
    steps = 0
    while value >= 999.5 and steps < len(_PREFIXES) - 1:
        value, steps = value / 1000.0, steps + 1
    digits = 0 if value >= 99.5 or steps == 0 else 1
    return f"{value:.{digits}f}{_PREFIXES[steps]}B/s"


def gigabits(value: float | None) -> str:
    """Return bytes per second in the unit of networks, Gb/s, without it."""
    if value is None:
        return ABSENT
    amount = value * 8e-9
    return f"{amount:.0f}" if amount >= 99.5 or amount == 0 else f"{amount:.1f}"


def kilowatts(value: float | None) -> str:
    return ABSENT if value is None else f"{value / 1000.0:.1f}"
