"""Reads the configuration: one YAML file in which every key is optional.

An unknown key is an error that names file, line, key path and the nearest valid key: an ignored typo would silently
leave the default in place. A key of a feature that this version does not have is an error that says so. A value of the
wrong type is explained in an operator's terms, with the remedy.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import msgspec

from agent.config import quantities
from agent.config.checks import check_texts, check_values
from agent.config.key import READERS, Key, Notation
from agent.config.places import Places
from agent.config.schema import POWER_FACTOR, Config, ConfigError, ConfigSource, Section
from agent.lib import textfile, yamltree
from agent.lib.commandline import nearest


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
    """Return the keys of a section, by name."""
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
    """Yield every key of the file; those of a section follow it."""
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


_MISMATCH = re.compile(r"Expected `([^`]+)`, got `(\w+)`")
_WANTED = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "null": "nothing",
}
_FOUND = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "bool": "true or false",
    "int": "a number",
    "float": "a number with a fraction",
    "null": "nothing",
}
_PLAIN = re.compile(r"[A-Za-z0-9_./-]{1,60}")


def in_words(problem: str, key: str, raw: object) -> str:
    """Return what msgspec says of the value at the key path `key`, in plain words, with what to write instead."""
    match = _MISMATCH.match(problem)
    if match is None:
        return f"{problem[0].lower()}{problem[1:]}"
    kinds, found = match[1].split(" | "), match[2]
    expected = " or ".join(_WANTED.get(kind, kind) for kind in kinds if kind != "null")
    message = f"must be {expected}, found {_FOUND.get(found, found)}"
    remedy = _remedy(kinds[0], key.rpartition(".")[2], _at(raw, key))
    return f"{message}; {remedy}" if remedy else message


def _remedy(expected: str, name: str, value: object) -> str:
    shown = _written(value)
    if expected == "array":
        return f"write {name}: [{shown}]" if shown else f"write {name}: [ONE, TWO]"
    if expected == "object":
        return "write its keys below it, each on a line of its own and indented"
    if expected == "str" and shown:
        return f'put it in quotes: "{shown}"'
    if expected == "bool":
        return f"write {name}: true or {name}: false, without quotes"
    if expected in ("int", "float") and isinstance(value, str):
        return f"write {name}: 5, without quotes and without a unit"
    return ""


def _written(value: object) -> str:
    """Return a scalar as written in a file, if that takes a few plain characters; empty otherwise."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, (str, int, float)) else ""
    if _PLAIN.fullmatch(text):
        return text
    return f'"{text}"' if text and len(text) <= 100 and text.isprintable() and '"' not in text else ""


def _at(raw: Any, key: str) -> object:
    """Return the value at a key path; None if the path does not lead to one, such as through a list."""
    for part in key.split("."):
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw


def load(path: Path, must_exist: bool = True, *, handed: bool = False) -> Config:
    """Return the configuration in a file; the defaults if the file is missing and need not exist. Raises ConfigError.

    `handed` allows a pipe from the command line, which can be read only once (see `read_text`).
    """
    try:
        text = textfile.read_text(path, textfile.CONFIGURATION, handed=handed)
    except textfile.ReadError as error:
        if error.missing and not must_exist:
            return Config()
        remedy = "" if ";" in error.problem else "; give another file with --config.file"
        raise ConfigError(f"{error}{remedy}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Config:
    """Return the configuration in a text; errors show `name`. Raises ConfigError."""
    try:
        tree = yamltree.compose(text, yamltree.Bounds()).root
        raw = yamltree.plain(tree)
        place = Places(name, tree)
    except yamltree.YamlError as error:
        raise ConfigError(f"{name}:{error.line}: {error.problem}") from None
    if raw is None:
        return Config()
    if not isinstance(raw, dict):
        raise ConfigError(f"{name}:1: must be a mapping of sections, such as `sampling: {{fast: 1s}}`")
    _check_keys(raw, Config, "", place)
    check_texts(raw, "", place.fail)
    converted = _Quantities(place, _power_factor(raw)).of(raw, Config, "")
    try:
        config = msgspec.convert(converted, Config)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `")
        if where.startswith("key"):
            problem = "a key in it is not a string; put it in quotes"
        key = where.rpartition("$")[2].rstrip("`").lstrip(".")
        place.fail(key, in_words(problem, key, raw))
    _check_ranges(config, "", place)
    check_values(config, place.fail)
    return msgspec.structs.replace(config, source=ConfigSource(name, text))


def _check_keys(raw: Mapping[Any, Any], section: type[Section], path: str, place: Places) -> None:
    fields = fields_of(section)
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if key not in fields:
            place.fail(inner, _unknown(str(key), list(fields)))
        below = fields[key].section
        if below is None or not isinstance(value, dict):
            continue
        if not fields[key].named:
            _check_keys(value, below, inner, place)
            continue
        for name, each in value.items():
            if isinstance(each, dict):
                _check_keys(each, below, f"{inner}.{name}", place)


def _unknown(key: str, valid: list[str]) -> str:
    return f"unknown key{nearest(key, valid) or '; valid here: ' + ', '.join(valid)}"


def _power_factor(raw: dict[Any, Any]) -> float:
    """Return the power factor of the rack, which is needed to read its limits."""
    rack = raw.get("rack")
    factor = rack.get("power_factor") if isinstance(rack, dict) else None
    # An invalid value is rejected when its own key is checked.
    return factor if isinstance(factor, (int, float)) and 0 < factor <= 1 else POWER_FACTOR


class _Quantities:
    """Converts values written with units to numbers in base units."""

    def __init__(self, place: Places, power_factor: float) -> None:
        self._place = place
        self._readers: dict[Notation, Callable[[object], object]] = {
            **READERS,
            Notation.NUMBERS: quantities.numbers,
            Notation.LIMIT: partial(quantities.limit, power_factor=power_factor),
        }

    def of(self, raw: Mapping[Any, Any], section: type[Section], path: str) -> dict[Any, Any]:
        """Return the section with its quantities as numbers. An empty section has the defaults."""
        fields = fields_of(section)
        made = {}
        for key, value in raw.items():
            field, inner = fields[key], f"{path}.{key}".lstrip(".")
            if value is None and field.section is not None and not field.optional:
                continue
            made[key] = self._value(value, field, inner)
        return made

    def _value(self, value: Any, field: SchemaField, path: str) -> Any:
        if field.section is not None and isinstance(value, dict):
            if not field.named:
                return self.of(value, field.section, path)
            below = field.section
            return {
                name: self.of(each, below, f"{path}.{name}") if isinstance(each, dict) else each
                for name, each in value.items()
            }
        unit = None if field.key is None else field.key.unit
        if unit is None or value is None:
            return value
        if unit is Notation.LIMIT and get_origin(field.kind) is dict and isinstance(value, dict):
            return {name: self._number(each, unit, f"{path}.{name}") for name, each in value.items()}
        return self._number(value, unit, path)

    def _number(self, value: Any, unit: Notation, path: str) -> Any:
        try:
            return self._readers[unit](value)
        except ValueError as error:
            self._place.fail(path, str(error))


def _check_ranges(section: Section, path: str, place: Places) -> None:
    for field in fields_of(type(section)).values():
        value, inner = getattr(section, field.attribute), f"{path}.{field.name}".lstrip(".")
        if value is None:
            continue
        if field.section is not None:
            named = value.items() if field.named else [("", value)]
            for name, each in named:
                _check_ranges(each, f"{inner}.{name}".rstrip("."), place)
        elif field.key is not None:
            problem = field.key.problem(value)
            if problem is not None:
                place.fail(inner, problem)
