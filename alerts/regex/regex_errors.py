"""Errors of a regular expression: when it is compiled, or when it is applied to a text."""

from __future__ import annotations


class RegexError(ValueError):
    """The text is no regular expression, or none that can be had here; says why, and what to write instead."""


class RegexLimitError(RegexError):
    """A regular expression that Go would take, and that takes more than can be had here."""


class TextTooLongError(Exception):
    """A text is too long to be matched with this expression in a time that anybody would wait for."""
