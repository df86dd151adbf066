"""Quotes foreign texts in messages: always in one line, and never too long to read."""

from __future__ import annotations

MOST = 400


def one_line(text: str, most: int = MOST) -> str:
    """A text in which anything that would break a line or a terminal is escaped, cut after `most` characters."""
    cut = text[: most + 1]
    if not cut.isprintable():
        cut = "".join(each if each.isprintable() else _escaped(each) for each in cut)
    return cut if len(cut) <= most else f"{cut[: most - 3]}..."


def shown(value: object, most: int = 80) -> str:
    """A value as quoted in a message."""
    if isinstance(value, str):
        return repr(value[: most + 1]) if len(value) <= most else f"{value[:most]!r}..."
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return one_line(repr(value), most)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
