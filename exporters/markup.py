"""The pieces of HTML that the sections of the page at `/` share."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import IntEnum


class Tone(IntEnum):
    """How bad something is, the worst first. Each tone has a sign of its own: colour is never the only one."""

    BAD = 0
    WARN = 1
    CALM = 2
    GOOD = 3

    @property
    def css(self) -> str:
        """The class that colours it; empty for what needs no colour."""
        return {Tone.BAD: "bad", Tone.WARN: "warn", Tone.CALM: "", Tone.GOOD: "good"}[self]

    @property
    def sign(self) -> str:
        return {Tone.BAD: "✖", Tone.WARN: "▲", Tone.CALM: "·", Tone.GOOD: "✔"}[self]


ABSENT = "–"
"""What stands where there is no value: never a 0."""

TEXT_MAX = 400
"""Characters of a text that others wrote."""


def escape(text: str) -> str:
    """As html.escape; that module brings a table of two thousand entities along."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(raw, safe)
    return text


def cut(text: str) -> str:
    """A text that others wrote, escaped and of a bounded length; a dash where it is empty."""
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    return escape(text) or ABSENT


def span(tone: Tone, text: str) -> str:
    """Markup in the tone's colour; the text has to tell by itself what it is."""
    return f'<span class="{tone.css}">{text}</span>' if tone.css else text


def badge(tone: Tone, word: str) -> str:
    """A word with the tone's sign before it; `word` is plain text."""
    return f'<b class="badge {tone.css}">{tone.sign} {escape(word)}</b>'


def cell(head: str, content: str, css: str = "") -> str:
    """A cell that brings its heading along, which narrow screens show beside it."""
    attribute = f' class="{css}"' if css else ""
    return f'<td data-h="{escape(head)}"{attribute}>{content}</td>'


def table_head(title: str, heads: Sequence[str], kind: str, numeric: Container[str] = ()) -> str:
    """A section's heading and the beginning of its table; `title` is markup, `kind` a class of the table."""
    names = "".join(f"<th{' class=n' if head in numeric else ''}>{head}</th>" for head in heads)
    return f'<h2>{title}</h2>\n<div class="scroll"><table class="{kind}">\n<thead><tr>{names}</tr></thead>\n'


TABLE_END = "</table></div>\n"


def row(tone: Tone, *rows: str) -> str:
    """Rows that belong together: on narrow screens they are one card."""
    return f'<tbody class="{tone.css}">{"".join(f"<tr>{cells}</tr>" for cells in rows)}</tbody>\n'


def quantity(value: float | None, factor: float, unit: str, most: float | None = None, digits: int = 0) -> str:
    """A value, of the most that there can be where that is known: 690/700 W."""
    if value is None:
        return ABSENT
    of = "" if most is None else f"<small>/{most * factor:.{digits}f}</small>"
    return f"{value * factor:.{digits}f}{of} {unit}"


def age(seconds: float) -> str:
    """A span in the two units that matter; never below zero, where the wall clock was set back."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 0:
        return f"{days} d {hours} h"
    if hours > 0:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes > 0 else f"{rest} s"


def numbers(indexes: list[int]) -> str:
    """Whole numbers in short, runs joined by a dash."""
    runs: list[list[int]] = []
    for each in sorted(set(indexes)):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ", ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in runs)
