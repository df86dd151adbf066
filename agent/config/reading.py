"""Read the configuration: one YAML file in which every key is optional.

An unknown key is an error that names file, line, key path and the nearest valid key: an ignored typo would silently
leave the default in place. A key of a feature that this version does not have is an error that says so. A value of the
wrong type is explained in an operator's terms, with the remedy. Errors that are found later also name the place:
FILE:LINE: key: problem; remedy.
"""

import functools
import re
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from agent.config import quantities
from agent.config.checks import check_texts, check_values
from agent.config.quantities import UNITS, Key, Notation
from agent.config.schema import POWER_FACTOR, Config, ConfigError, ConfigSource, Section
from agent.lib import textfile, yamltree
from agent.lib.typed_yaml import YamlFile, field_type, is_struct
from agent.lib.wording import without_login


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


@functools.cache
def fields_of(section: type[Section]) -> dict[str, SchemaField]:
    fields = {}
    for field in msgspec.structs.fields(section):
        if field.type is ConfigSource:
            continue
        kind, optional, notes = field_type(field.type)
        key = next((note for note in notes if isinstance(note, Key)), None)
        below = kind if is_struct(kind) else next(filter(is_struct, typing.get_args(kind)), None)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        fields[field.encode_name] = SchemaField(
            field.encode_name, field.name, kind, optional, key, below, below is not None and below is not kind, default
        )
    return fields


def keys_for_a_restart(old: Section, new: Section, path: str = "") -> list[str]:
    """Return keys that differ but that a reload cannot apply: they determine processes, sockets and files."""
    changed = []
    for field in fields_of(type(old)).values():
        before, after = getattr(old, field.attribute), getattr(new, field.attribute)
        if field.key is not None and field.key.restart and before != after:
            changed.append(f"{path}{field.name}")
        elif isinstance(before, Section) and isinstance(after, Section):
            changed += keys_for_a_restart(before, after, f"{path}{field.name}.")
    return changed


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


_REMOVED = {
    "push": "was removed: packaging/push has configurations of programs that send what they scrape",
    "overhead.cpu": "is overhead.cpu_cores now",
    "rack.shelves.number": "is rack.shelves.count now",
    "recorder.flight": "is recorder.history now",
    "recorder.keep": "is recorder.max_size now",
}
"""Keys of before the first release."""


def parse(text: str, name: str) -> Config:
    """Return the configuration in a text; errors show `name`. Raises ConfigError."""
    file = YamlFile.parse(text, name, ConfigError, yamltree.Bounds())
    for path in file:
        if path in _REMOVED:
            file.fail(path, _REMOVED[path])
    check_texts(file.raw, "", file.fail)
    config = file.convert(Config, partial(_quantity, _power_factor(file.raw)))
    _check_ranges(config, "", file)
    check_values(config, file.fail)
    return msgspec.structs.replace(config, source=ConfigSource(name, text))


def _power_factor(raw: Any) -> float:
    """Return the power factor of the rack, which is needed to read its limits."""
    rack = raw.get("rack") if isinstance(raw, dict) else None
    factor = rack.get("power_factor") if isinstance(rack, dict) else None
    # An invalid value is rejected when its own key is checked.
    return factor if isinstance(factor, (int, float)) and 0 < factor <= 1 else POWER_FACTOR


def _quantity(power_factor: float, note: Key | Notation, value: Any) -> Any:
    """Return a value written with a unit as a number in base units. Raises ValueError."""
    unit = note.unit if isinstance(note, Key) else note
    if unit is Notation.LIMIT:
        return quantities.limit(value, power_factor)
    if unit is Notation.NUMBERS:
        return quantities.numbers(value)
    return UNITS[unit].read(value) if unit in UNITS else value


def _check_ranges(section: Section, path: str, file: YamlFile) -> None:
    for field in fields_of(type(section)).values():
        value, inner = getattr(section, field.attribute), f"{path}.{field.name}".lstrip(".")
        if value is None:
            continue
        if field.section is not None:
            named = value.items() if field.named else [("", value)]
            for name, items in named:
                _check_ranges(items, f"{inner}.{name}".rstrip("."), file)
        elif field.key is not None:
            problem = field.key.problem(value)
            if problem is not None:
                file.fail(inner, problem)


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ITEM = re.compile(r"\[[0-9.]+\]$")


def placed(config: Config, problem: str) -> ConfigError:
    """Return an error found after the reading of a configuration, whose text begins with its key, with file and line.

    A key that is not in the file, or that the command line has replaced, has no line there.
    """
    problem = without_login(problem)
    if not config.source.text:
        return ConfigError(problem)
    places = YamlFile.parse(config.source.text, config.source.name, ConfigError, yamltree.Bounds())
    key = max((place for place in places if problem.startswith(f"{place}:")), key=len, default="")
    key_path = _ITEM.sub("", key)
    if not key:  # the problem is of a key that only its mapping has a line for
        parent = max((place for place in places if place and problem.startswith(f"{place}.")), key=len, default="")
        return ConfigError(f"{places.place(parent)}: {problem}" if parent else problem)
    if any(f"{key_path}.".startswith(f"{path}.") for path in config.source.replaced):
        return ConfigError(problem)
    return ConfigError(f"{places.place(key)}: {key_path}{problem[len(key) :]}")


def with_places(
    function: Callable[Concatenate[Config, _Parameters], _Result],
) -> Callable[Concatenate[Config, _Parameters], _Result]:
    """Make a function name file and line in each ConfigError that it raises about the configuration it is given."""

    @functools.wraps(function)
    def named(config: Config, *arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        try:
            return function(config, *arguments, **options)
        except ConfigError as error:
            raise placed(config, str(error)) from error

    return cast("Callable[Concatenate[Config, _Parameters], _Result]", named)
