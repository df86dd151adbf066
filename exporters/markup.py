"""The pieces of HTML that the sections of the page at `/` share."""

from __future__ import annotations


def escape(text: str) -> str:
    """As html.escape; that module brings a table of two thousand entities along."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(raw, safe)
    return text


def table(title: str, heads: str, rows: str) -> str:
    """A section with a heading and a table; all three are markup already."""
    return f'<h2>{title}</h2>\n<div class="scroll"><table>\n<tr>{heads}</tr>\n{rows}</table></div>\n'
