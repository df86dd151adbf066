"""Explains in an operator's words, with the remedy, that a configuration value has the wrong type."""

from __future__ import annotations

import re
from typing import Any

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
    """What msgspec says of the value at the key path `key`, in plain words, with what to write instead."""
    match = _MISMATCH.match(problem)
    if match is None:
        return f"{problem[0].lower()}{problem[1:]}"
    kinds, found = match[1].split(" | "), match[2]
    wanted = " or ".join(_WANTED.get(kind, kind) for kind in kinds if kind != "null")
    message = f"must be {wanted}, found {_FOUND.get(found, found)}"
    remedy = _remedy(kinds[0], key.rpartition(".")[2], _at(raw, key))
    return f"{message}; {remedy}" if remedy else message


def _remedy(wanted: str, name: str, value: object) -> str:
    shown = _written(value)
    if wanted == "array":
        return f"write {name}: [{shown}]" if shown else f"write {name}: [ONE, TWO]"
    if wanted == "object":
        return "write its keys below it, each on a line of its own and indented"
    if wanted == "str" and shown:
        return f'put it in quotes: "{shown}"'
    if wanted == "bool":
        return f"write {name}: true or {name}: false, without quotes"
    if wanted in ("int", "float") and isinstance(value, str):
        return f"write {name}: 5, without quotes and without a unit"
    return ""


def _written(value: object) -> str:
    """A scalar as written in a file, if that takes a few plain characters; empty otherwise."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, (str, int, float)) else ""
    if _PLAIN.fullmatch(text):
        return text
    return f'"{text}"' if text and len(text) <= 100 and text.isprintable() and '"' not in text else ""


def _at(raw: Any, key: str) -> object:
    """The value at a key path; None if the path does not lead to one, such as through a list."""
    for part in key.split("."):
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw
