"""A configuration file with every key and its default."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agent.config.quantities import UNITS
from agent.config.reading import SchemaField, fields_of
from agent.config.schema import Config, Section

_HEAD = """\
# Configuration of coldplate: every key with its default or an example. All keys are optional; to change one, remove
# its leading #. See docs/configuration.md. (restart): a reload does not apply the change.
"""
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")


def default_file() -> str:
    """Return a configuration file that changes nothing, and names every key."""
    return "\n".join([_HEAD, *_lines(Config, False)]) + "\n"


def _lines(section: type[Section], bare: bool) -> Iterator[str]:
    """Yield the lines of a section, not indented; its keys are comments unless they are `bare`."""
    for field in fields_of(section).values():
        below = field.section
        if below is None:
            yield f"# {_comment(field)}"
            yield f"{'' if bare else '#'}{field.name}: {_example(field)}"
            continue
        yield f"# {_comment(field) or summary(below)}"
        if field.named:
            inner = [f"{field.name}:", "  NAME:", *(f"    {line}" for line in _lines(below, True))]
        else:
            inner = [f"{field.name}:", *(f"  {line}" for line in _lines(below, bare or field.optional))]
        hidden = not bare and (field.named or field.optional)
        yield from (f"#{line}" if hidden else line for line in inner)


def summary(section: type[Section] | None) -> str:
    """Return what a section is for, in one line without a full stop."""
    text = (section.__doc__ or "") if section is not None else ""
    return " ".join(text.split()).rstrip(".")


def _comment(field: SchemaField) -> str:
    key = field.key
    if key is None:
        return ""
    allowed = key.range or ", ".join(key.words)
    return f"{key.what}{f' [{allowed}]' if allowed else ''}{' (restart)' if key.restart else ''}"


def _example(field: SchemaField) -> str:
    empty = field.default is msgspec.NODEFAULT or field.default in (None, (), {})
    if empty and field.key is not None and field.key.example:
        return field.key.example
    return "null" if field.default is None else written(field.default, field)


def written(value: Any, field: SchemaField) -> str:
    """Return a default as a configuration file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        units = UNITS.get(field.key.unit if field.key is not None else None)
        return f"{value:g}" if units is None else units.text(value)
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(written(item, field) for item in value)}]"
    return "{}"
