"""The pieces of HTML that the sections of the page at `/` share."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import IntEnum


class Tone(IntEnum):
    """How bad something is, the worst first. Each tone has a sign of its own: colour is never the only sign."""

    BAD = 0
    WARN = 1
    CALM = 2
    GOOD = 3

    @property
    def css(self) -> str:
        """The class that colours it; empty if no colour is needed."""
        return {Tone.BAD: "bad", Tone.WARN: "warn", Tone.CALM: "", Tone.GOOD: "good"}[self]

    @property
    def sign(self) -> str:
        return {Tone.BAD: "✖", Tone.WARN: "▲", Tone.CALM: "·", Tone.GOOD: "✔"}[self]


ABSENT = "–"
"""Shown where there is no value: never a 0."""

TEXT_MAX = 400
"""Most characters of a foreign text."""


def escape(text: str) -> str:
    """As html.escape; that module would load a table of two thousand entities."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(raw, safe)
    return text


def cut(text: str) -> str:
    """A foreign text, escaped and of bounded length; a dash if it is empty."""
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    return escape(text) or ABSENT


def span(tone: Tone, text: str) -> str:
    """Markup in the tone's colour; the text has to be clear without it."""
    return f'<span class="{tone.css}">{text}</span>' if tone.css else text


def badge(tone: Tone, word: str) -> str:
    """A word with the tone's sign before it; `word` is plain text."""
    return f'<b class="badge {tone.css}">{tone.sign} {escape(word)}</b>'


def cell(head: str, content: str, css: str = "") -> str:
    """A cell with its heading, which narrow screens show beside it."""
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
    """A value, with its maximum if that is known: 690/700 W."""
    if value is None:
        return ABSENT
    of = "" if most is None else f"<small>/{most * factor:.{digits}f}</small>"
    return f"{value * factor:.{digits}f}{of} {unit}"


def age(seconds: float) -> str:
    """A time span in its two largest units; never below zero, even if the wall clock was set back."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 0:
        return f"{days} d {hours} h"
    if hours > 0:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes > 0 else f"{rest} s"


def numbers(indexes: list[int]) -> str:
    """Whole numbers in short form, with runs joined by a dash."""
    runs: list[list[int]] = []
    for each in sorted(set(indexes)):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ", ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in runs)
