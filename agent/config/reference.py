"""Reference of the configuration keys: a table for the documentation, and a file with every default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, get_origin

import msgspec

from agent.config import quantities
from agent.config.key import Notation
from agent.config.schema import Config, Section
from agent.config.schema_fields import SchemaField, entries, fields_of

BEGIN, END = "<!-- keys: made by `coldplate render configuration` -->", "<!-- keys: end -->"
"""The document has the table between these marks."""
_HEAD = """\
# Configuration of coldplate: every key with its default or an example. All keys are optional; to change one, remove
# its leading #. See docs/configuration.md. (restart): a reload does not apply the change.
"""
_WRITERS: dict[Notation | None, Callable[[float], str]] = {
    Notation.DURATION: quantities.duration_text,
    Notation.POWER: quantities.power_text,
    Notation.SIZE: quantities.size_text,
}
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_TYPES = {str: "text", bool: "true, false", int: "a whole number", float: "a number"}
_UNITS = {Notation.LIMIT: "power, apparent power or current", Notation.NUMBERS: "numbers to numbers"}


def table() -> str:
    """Every key in a table of Markdown, between the marks."""
    rows = ["| key | default | values | |", "|---|---|---|---|"]
    for path, field in entries():
        if field.key is None:
            rows.append(f"| `{path}` | | | **{_summary(field.section)}** |")
            continue
        restart = " *Restart.*" if field.key.restart else ""
        rows.append(f"| `{path}` | {_default(field)} | {_values(field)} | {field.key.what}{restart} |")
    return "\n".join([BEGIN, "", *rows, "", END, ""])


def splice(document: str) -> str:
    """A document with its table replaced by the current one. Raises ValueError if it has none."""
    before, begun, rest = document.partition(BEGIN)
    _, ended, after = rest.partition(f"{END}\n")
    if not begun or not ended:
        raise ValueError(f"has no place for the keys; mark it with a line {BEGIN} and a line {END}")
    return f"{before}{table()}{after}"


def default_file() -> str:
    """A configuration file that changes nothing, and names every key."""
    return "\n".join([_HEAD, *_lines(Config, False)]) + "\n"


def _lines(section: type[Section], bare: bool) -> Iterator[str]:
    """The lines of a section, not indented; its keys are comments unless they are `bare`."""
    for field in fields_of(section).values():
        below = field.section
        if below is None:
            yield f"# {_comment(field)}"
            yield f"{'' if bare else '#'}{field.name}: {_example(field)}"
            continue
        yield f"# {_comment(field) or _summary(below)}"
        if field.named:
            inner = [f"{field.name}:", "  NAME:", *(f"    {line}" for line in _lines(below, True))]
        else:
            inner = [f"{field.name}:", *(f"  {line}" for line in _lines(below, bare or field.optional))]
        hidden = not bare and (field.named or field.optional)
        yield from (f"#{line}" if hidden else line for line in inner)


def _summary(section: type[Section] | None) -> str:
    text = (section.__doc__ or "") if section is not None else ""
    return " ".join(text.split()).rstrip(".")


def _comment(field: SchemaField) -> str:
    key = field.key
    if key is None:
        return ""
    allowed = key.range or ", ".join(key.words)
    return f"{key.what}{f' [{allowed}]' if allowed else ''}{' (restart)' if key.restart else ''}"


def _values(field: SchemaField) -> str:
    key = field.key
    assert key is not None
    if key.range or key.words:
        return key.range or ", ".join(f"`{word}`" for word in key.words)
    if key.unit in _UNITS:
        return _UNITS[key.unit]
    if field.kind in _TYPES:
        return _TYPES[field.kind]
    return "a list" if get_origin(field.kind) is tuple else "a mapping"


def _default(field: SchemaField) -> str:
    if field.default is msgspec.NODEFAULT:
        return "required"
    return "" if field.default is None else f"`{_written(field.default, field)}`"


def _example(field: SchemaField) -> str:
    empty = field.default is msgspec.NODEFAULT or field.default in (None, (), {})
    if empty and field.key is not None and field.key.example:
        return field.key.example
    return "null" if field.default is None else _written(field.default, field)


def _written(value: Any, field: SchemaField) -> str:
    """A default as written in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        write = _WRITERS.get(field.key.unit if field.key is not None else None)
        return f"{value:g}" if write is None else write(value)
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_written(each, field) for each in value)}]"
    return "{}"
