"""Names of tests, as pytest gives them."""

from __future__ import annotations


def file_of(test: str) -> str:
    """The file that a test is in."""
    return test.partition("::")[0]
