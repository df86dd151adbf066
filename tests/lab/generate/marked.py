"""Generated parts of documents that are otherwise written by hand: each between two marks."""

from __future__ import annotations


def put(document: str, name: str, content: str) -> str:
    """Return the document with this content between the marks of this name. Raises ValueError if it has none."""
    begin, end = f"<!-- {name}: made by `make generate` -->", f"<!-- {name}: end -->"
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"has no place for {name}; mark it with a line {begin} and a line {end}")
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"
