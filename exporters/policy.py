"""What browsers may do with the agent's pages: apply their one style sheet, and nothing else."""

from __future__ import annotations


def page_headers(style_hash: str, caching: str) -> tuple[tuple[str, str], ...]:
    """The headers of a page; `style_hash` is the hash of its style sheet, as Content-Security-Policy writes it."""
    policy = (
        f"default-src 'none'; style-src '{style_hash}'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    return (("Content-Security-Policy", policy), ("Referrer-Policy", "no-referrer"), ("Cache-Control", caching))
