"""The one error of what make needs first."""

from __future__ import annotations


class ShortageError(Exception):
    """Something is not there and cannot be had; the text says what, and what to do."""
