"""Errors of a template: when it is loaded, or when it is rendered."""

from __future__ import annotations


class TemplateError(Exception):
    """The text is not a valid template; names the construct, its place and the remedy.

    `there` is Prometheus's message, with the line first, as far as it is known.
    """

    def __init__(self, problem: str, there: str = "") -> None:
        super().__init__(problem)
        self.there = there or f"1: {problem}"


class UnknownQueryError(TemplateError):
    """What a template reads by `query` is unknown until an alert fires: Prometheus loads it, and a node does not."""


class RenderError(Exception):
    """A template met a value that it cannot handle, such as a percentage of a word."""
