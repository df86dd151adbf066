"""docs/configuration.md: the table of the keys, between two marks."""

from collections.abc import Iterator
from typing import NamedTuple, get_origin

import msgspec

from agent.config.default_file import summary, written
from agent.config.quantities import Notation
from agent.config.reading import SchemaField, fields_of
from agent.config.schema import Config, Section
from tests.lab.bench.report import put_generated

_TYPES = {str: "text", bool: "true, false", int: "a whole number", float: "a number"}
_UNITS = {
    **dict.fromkeys((Notation.LIMIT, Notation.LIMITS), "power, apparent power or current"),
    Notation.NUMBERS: "numbers to numbers",
}


class KeyEntry(NamedTuple):
    """A key with its path in the file, with `*` for names that the author of the file chooses."""

    path: str
    field: SchemaField


def entries(section: type[Section] = Config, path: str = "") -> Iterator[KeyEntry]:
    """Yield every key of the file; those of a section follow it."""
    for field in fields_of(section).values():
        inner = f"{path}.{field.name}".lstrip(".")
        yield KeyEntry(inner, field)
        if field.section is not None:
            yield from entries(field.section, f"{inner}.*" if field.named else inner)


def table() -> str:
    rows = ["| key | default | values | |", "|---|---|---|---|"]
    for path, field in entries():
        if field.key is None:
            rows.append(f"| `{path}` | | | **{summary(field.section)}** |")
            continue
        restart = " *Restart.*" if field.key.restart else ""
        rows.append(f"| `{path}` | {_default(field)} | {_values(field)} | {field.key.what}{restart} |")
    return "\n".join(rows)


def splice(document: str) -> str:
    """Return the document with the current table in place of its own. Raises ValueError if it has none."""
    return put_generated(document, "keys", table())


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
    return "" if field.default is None else f"`{written(field.default, field)}`"
