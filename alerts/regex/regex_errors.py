"""Errors of a regular expression: when it is compiled, or when it is applied to a text."""

from __future__ import annotations


class RegexError(ValueError):
    """The text is not a regular expression, or not one supported here; says why, and what to write instead."""


class RegexLimitError(RegexError):
    """A regular expression that Go would accept, but that takes more than is allowed here."""


class TextTooLongError(Exception):
    """A text is too long to be matched with this expression in a reasonable time."""
