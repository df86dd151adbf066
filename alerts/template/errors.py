"""What can go wrong with a template: when it is read, or when it is rendered."""

from __future__ import annotations


class TemplateError(Exception):
    """The text is no template that coldplate renders; names the construct, its place and the remedy."""


class RenderError(Exception):
    """A template met a value that it cannot handle, such as a percentage of a word."""
