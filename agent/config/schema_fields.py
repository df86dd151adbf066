"""The schema as data: the keys of each section, in order."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from agent.config.key import Key
from agent.config.schema import Config, ConfigSource, Section


class SchemaField(NamedTuple):
    """One key of a section. `kind` is its type without None; `default` is msgspec.NODEFAULT if it is required.

    `section` is the type of what is below it; `named` says that there may be many, each under a name of its own.
    """

    name: str
    attribute: str
    kind: Any
    optional: bool
    key: Key | None
    section: type[Section] | None
    named: bool
    default: Any


class KeyEntry(NamedTuple):
    """A key with its path in the file, with `*` for names that the author of the file chooses."""

    path: str
    field: SchemaField


@functools.cache
def fields_of(section: type[Section]) -> dict[str, SchemaField]:
    """The keys of a section, by name."""
    made = {}
    for each in msgspec.structs.fields(section):
        if each.type is ConfigSource:
            continue
        key, kind, optional = _parts(each.type)
        below = kind if _is_section(kind) else next(filter(_is_section, typing.get_args(kind)), None)
        default = each.default_factory() if each.default_factory is not msgspec.NODEFAULT else each.default
        made[each.encode_name] = SchemaField(
            each.encode_name, each.name, kind, optional, key, below, below is not None and below is not kind, default
        )
    return made


def entries(section: type[Section] = Config, path: str = "") -> Iterator[KeyEntry]:
    """Every key of the file; those of a section follow it."""
    for field in fields_of(section).values():
        inner = f"{path}.{field.name}".lstrip(".")
        yield KeyEntry(inner, field)
        if field.section is not None:
            yield from entries(field.section, f"{inner}.*" if field.named else inner)


def _parts(annotation: Any) -> tuple[Key | None, Any, bool]:
    key = None
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *notes = typing.get_args(annotation)
        key = next((each for each in notes if isinstance(each, Key)), None)
    optional = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    if optional:
        (annotation,) = (each for each in typing.get_args(annotation) if each is not type(None))
    return key, annotation, optional


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
