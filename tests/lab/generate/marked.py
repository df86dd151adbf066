"""Generated parts of documents that are otherwise written by hand: each between two marks."""

from __future__ import annotations

from tests.lab.bench.report import between


def put(document: str, name: str, content: str) -> str:
    """Return the document with this content between the marks of this name. Raises ValueError if it has none."""
    return between(document, f"<!-- {name}: made by `make generate` -->", f"<!-- {name}: end -->", content)
