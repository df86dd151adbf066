"""What can go wrong with a regular expression: when it is compiled, or when it meets a text."""

from __future__ import annotations


class RegexError(ValueError):
    """The text is no regular expression, or none that can be had here; says why, and what to write instead."""


class TextTooLongError(Exception):
    """A text is too long to be matched with this expression in a time that anybody would wait for."""
