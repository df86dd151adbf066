"""The keys of the configuration file as a JSON schema: helm refuses a misspelt one before anything is rolled out."""

import typing
from collections.abc import Set as AbstractSet
from typing import Any

from agent.config.reading import SchemaField, fields_of
from agent.config.schema import Config, RackConfig, Section

OF_THE_CHART = frozenset(
    {"node.name", "node.rack", "rack.name", "rack.peers", "web.listen", "web.config_file", "state_dir"}
)
"""What the chart itself writes into the file."""
_TYPES = {bool: ["boolean"], int: ["integer"], float: ["number"], str: ["string"]}


def of_config() -> dict[str, Any]:
    return of_section(Config, without=OF_THE_CHART)


def of_rack() -> dict[str, Any]:
    return of_section(RackConfig, "rack", frozenset({"rack.name"}))


def of_section(section: type[Section], path: str = "", without: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """The keys of a section and of all below it; `path` is its own, and `without` names what is refused."""
    properties = {}
    for field in fields_of(section).values():
        inner = f"{path}.{field.name}".lstrip(".")
        if inner not in without:
            properties[field.name] = _field(field, inner, without)
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _field(field: SchemaField, path: str, without: AbstractSet[str]) -> dict[str, Any]:
    if field.section is not None:
        below = of_section(field.section, path, without)
        if field.named:
            return {"type": "object", "additionalProperties": below}
        return {**below, "type": ["object", "null"]} if field.optional else below
    key = field.key
    assert key is not None  # only sections have none
    allowed = _value(field, list(key.words))
    if field.optional:
        allowed["type"] = [*allowed["type"], "null"]
    return {"description": key.what, **allowed}


def _value(field: SchemaField, words: list[str]) -> dict[str, Any]:
    key = field.key
    assert key is not None
    kind = typing.get_origin(field.kind) or field.kind
    if kind is tuple:
        return {"type": ["array"], "items": {"type": "string", **({"enum": words} if words else {})}}
    if kind is dict:
        return {"type": ["object"]}
    if key.unit is not None:  # a number in base units, a number with a unit, or a limit in amperes and volts
        return {"type": ["number", "string", "object"] if key.unit.name == "LIMIT" else ["number", "string"]}
    if words:
        return {"type": ["string"], "enum": [*words, None] if field.optional else words}
    return {"type": list(_TYPES[kind])}
