"""Plain text within a width: tables, wrapped paragraphs, headings. Everything is ASCII but what the recording says."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

NARROWEST = 20


class TextStyle:
    """How wide the text may be, in columns, and whether it may be coloured."""

    def __init__(self, width: int = 80, *, colour: bool = False) -> None:
        self.width = max(width, NARROWEST)
        self._colour = colour

    def heading(self, text: str) -> list[str]:
        """A heading behind an empty line."""
        return ["", *(f"\x1b[1m{line}\x1b[0m" if self._colour else line for line in self.wrapped(text))]

    def marked(self, text: str, rank: str) -> str:
        """A word that is about a fault, or about lost time."""
        code = {"fault": "31;1", "slow": "33;1"}.get(rank)
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def wrapped(self, text: str, first: str = "", later: str = "") -> list[str]:
        """A paragraph, with what its first line and the others begin with."""
        lines = textwrap.wrap(text, self.width - len(later), break_on_hyphens=False) or [""]
        return [(first if place == 0 else later) + line for place, line in enumerate(lines)]

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Columns to the right below their heads, the first one to the left; a list of each row where it does not fit.

        A head may have two lines.
        """
        pairs = [head.split("\n") if "\n" in head else ["", head] for head in heads]
        widths = [max(len(cell) for cell in (*pair, *(row[place] for row in rows))) for place, pair in enumerate(pairs)]
        if sum(widths) + 2 * (len(widths) - 1) > self.width:
            return self._listed([" ".join(filter(None, pair)) for pair in pairs], rows)
        lines = [[pair[line] for pair in pairs] for line in (0, 1)]
        return [self._row(line, widths) for line in (*lines, *rows) if any(line)]

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()

    def _listed(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        lines = []
        for row in rows:
            lines += self.wrapped(f"{heads[0]} {row[0]}".strip(), later="  ")
            for head, cell in zip(heads[1:], row[1:], strict=True):
                lines += self.wrapped(f"{head}: {cell}", "  ", "    ")
        return lines
