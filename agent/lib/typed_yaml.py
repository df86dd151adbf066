"""Reads YAML files strictly: what a struct of msgspec does not allow is an error FILE:LINE: KEY: PROBLEM; REMEDY.

A typing error in a key would silently leave its default in place, so an unknown key is an error as well, with the
nearest one that is known. msgspec is imported on first use, because the worker does without it.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from agent.lib import textfile, yamltree
from agent.lib.wording import meant, one_line, without_login
from agent.lib.yamltree import Bounds, Node, YamlList, YamlMapping, YamlScalar

if TYPE_CHECKING:
    import msgspec

_Struct = TypeVar("_Struct", bound="msgspec.Struct")
Read = Callable[[Any, Any], Any]
"""Called with an annotation of a field, and a value; returns what stands for the value. May raise ValueError."""
_ITEM = re.compile(r"\[[0-9.]+\]$")


def key_path(path: str, key: object) -> str:
    """Return the path of a key below another."""
    return f"{path}.{key}".lstrip(".")


class YamlFile:
    """What a YAML file says, as plain values in `raw`, and on which lines. `error` makes the exception of a text.

    What was not read from a file has no `tree`, and no lines in its errors.
    """

    def __init__(self, name: str, error: Callable[[str], Exception], raw: Any, tree: Node | None = None) -> None:
        self._name = name
        self._error = error
        self._tree = tree
        self.raw = raw

    @classmethod
    def parse(cls, text: str, name: str, error: Callable[[str], Exception], bounds: Bounds) -> YamlFile:
        """Return what a text says; errors show `name`. Raises `error`."""
        try:
            tree = yamltree.compose(text, bounds).root
            return cls(name, error, yamltree.plain(tree), tree)
        except yamltree.YamlError as problem:
            raise error(f"{name}:{problem.line}: {problem.problem}") from None

    @classmethod
    def read(cls, path: Path, most: int, error: Callable[[str], Exception], bounds: Bounds) -> YamlFile:
        """Return what a file of up to `most` bytes says. Raises `error`."""
        try:
            text = textfile.read_text(path, most)
        except textfile.ReadError as problem:
            raise error(str(problem)) from problem
        return cls.parse(text, str(path), error, bounds)

    @cached_property
    def _lines(self) -> dict[str, int]:
        """Lines of key paths; an item of a list has its number behind the key: `rules.files[0]`."""
        return dict(reversed([*_lines_below(self._tree, "")]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def place(self, path: str) -> str:
        """Return `file:line` of a key path, or of the nearest key above it."""
        while path and path not in self._lines:
            path = _ITEM.sub("", path) if _ITEM.search(path) else path.rpartition(".")[0]
        return f"{self._name}:{self._lines[path]}" if path in self._lines else self._name

    def fail(self, path: str, problem: str) -> NoReturn:
        """Reject the value at a key path."""
        key = f"{one_line(without_login(path), 200)}: " if path else ""
        raise self._error(f"{self.place(path)}: {key}{one_line(without_login(problem))}")

    def check_keys(
        self, keys: Iterable[object], path: str, known: Iterable[str], required: Mapping[str, str] | None = None
    ) -> None:
        """Reject unknown keys of the mapping at a path, and the lack of a required one; its value says what to give."""
        known = tuple(known)
        for key in keys:
            if key not in known:
                self.fail(key_path(path, key), f"unknown key{meant(str(key), known)}")
        for key, hint in (required or {}).items():
            if key not in keys:
                self.fail(key_path(path, key), f"is missing; give {hint}")

    def convert(self, kind: type[_Struct], read: Read = lambda _, value: value, *, loose: bool = False) -> _Struct:
        """Return what the file says as a struct; a section with nothing in it has its defaults.

        `read` gets each value of a field with an annotation, and each annotation. `loose`: a text may be any scalar as
        it is written, and a key with nothing behind it counts as absent. Raises `error`.
        """
        import msgspec

        raw = {} if self._tree is None else _Conversion(self, read, loose).value(self._tree, kind, "")
        try:
            return msgspec.convert({} if raw is None else raw, kind)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `")
            if where.startswith("key"):
                problem = "a key in it is not a string; put it in quotes"
            path = where.rpartition("$")[2].rstrip("`").lstrip(".")
            self.fail(path, _in_words(problem, path, self.raw))


def _lines_below(tree: Node | None, path: str) -> Iterator[tuple[str, int]]:
    if tree is not None and not path:
        yield "", tree.line
    if isinstance(tree, YamlMapping):
        for key, value in _pairs(tree):
            inner = key_path(path, key.text)
            yield inner, key.line
            yield from _lines_below(value, inner)
    elif isinstance(tree, YamlList):
        for number, item in enumerate(tree.items):
            yield f"{path}[{number}]", item.line
            yield from _lines_below(item, f"{path}[{number}]")


class FieldType(NamedTuple):
    """The type of a field without None, whether None is allowed, and the annotations."""

    kind: Any
    optional: bool
    notes: tuple[Any, ...]


def field_type(annotation: Any) -> FieldType:
    notes: tuple[Any, ...] = ()
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *rest = typing.get_args(annotation)
        notes = tuple(rest)
    optional = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    if optional:
        (annotation,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    return FieldType(annotation, optional, notes)


def is_struct(kind: Any) -> bool:
    """Return whether a type is a struct of msgspec."""
    return hasattr(kind, "__struct_fields__")


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, bool]]:
    """Return types of the keys of a struct, and whether each is required. A field without a name is no key."""
    import msgspec

    return {
        field.encode_name: (field.type, field.required) for field in msgspec.structs.fields(kind) if field.encode_name
    }


def _wanted(annotation: Any) -> str:
    """Return what a key may be, if there are only a few words."""
    words = [word for note in field_type(annotation).notes for word in getattr(note, "words", ())]
    return f"one of {', '.join(words)}" if words else "it"


class _Conversion:
    """Makes of the nodes of a file what msgspec converts."""

    def __init__(self, file: YamlFile, read: Read, loose: bool) -> None:
        self._file = file
        self._read = read
        self._loose = loose

    def value(self, node: Node, annotation: Any, path: str) -> Any:
        if yamltree.is_null(node):
            return None
        kind, _, notes = field_type(annotation)
        inner = typing.get_args(kind)
        converted: Any
        if isinstance(node, YamlMapping) and is_struct(kind):
            converted = self._section(node, kind, path)
        elif isinstance(node, YamlMapping) and inner:
            converted = {}
            for key, value in _pairs(node):
                converted[self._scalar(key, inner[0])] = self.value(value, inner[-1], key_path(path, key.text))
        elif isinstance(node, YamlList) and inner:
            converted = [self.value(item, inner[0], f"{path}[{number}]") for number, item in enumerate(node.items)]
        else:
            converted = self._scalar(node, kind)
        for note in notes:
            try:
                converted = self._read(note, converted)
            except ValueError as error:
                self._file.fail(path, str(error))
        return converted

    def _scalar(self, node: Node, kind: Any) -> Any:
        if self._loose and kind is str and isinstance(node, YamlScalar):
            return node.text
        return yamltree.plain(node)

    def _section(self, node: YamlMapping, kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
        fields = _fields(kind)
        pairs = {key.text: value for key, value in _pairs(node)}
        required = {key: _wanted(annotation) for key, (annotation, is_required) in fields.items() if is_required}
        self._file.check_keys(pairs, path, fields, required)
        return {
            key: self.value(value, fields[key][0], key_path(path, key))
            for key, value in pairs.items()
            if not self._is_absent(value, fields[key][0])
        }

    def _is_absent(self, node: Node, annotation: Any) -> bool:
        """Return whether a key has its default because of what stands behind it."""
        if self._loose:
            return yamltree.is_null(node) or (isinstance(node, YamlMapping) and not node.pairs)
        kind, optional, _ = field_type(annotation)
        return yamltree.is_null(node) and is_struct(kind) and not optional


def _pairs(node: YamlMapping) -> Iterator[tuple[YamlScalar, Node]]:
    return yamltree.pairs_of(node, lambda *_: None)


_MISMATCH = re.compile(r"Expected `([^`]+)`, got `(\w+)`")
_FOUND = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "bool": "true or false",
    "int": "a number",
    "float": "a number with a fraction",
    "null": "nothing",
}
_WANTED = {**_FOUND, "int": "a whole number", "float": "a number"}
_PLAIN = re.compile(r"[A-Za-z0-9_./-]{1,60}")


def _in_words(problem: str, key: str, raw: object) -> str:
    """Return what msgspec says of the value at the key path `key`, in plain words, with what to write instead."""
    match = _MISMATCH.match(problem)
    if match is None:
        return f"{problem[0].lower()}{problem[1:]}"
    kinds, actual = match[1].split(" | "), match[2]
    expected = " or ".join(_WANTED.get(kind, kind) for kind in kinds if kind != "null")
    message = f"must be {expected}, found {_FOUND.get(actual, actual)}"
    remedy = _remedy(kinds[0], key.rpartition(".")[2], _at(raw, key))
    return f"{message}; {remedy}" if remedy else message


def _remedy(expected: str, name: str, value: object) -> str:
    text = _written(value)
    if expected == "array":
        return f"write {name}: [{text}]" if text and isinstance(value, str) else f'write {name}: ["ONE", "TWO"]'
    if expected == "object":
        return "write its keys below it, each on a line of its own and indented"
    if expected == "str" and text:
        return f'put it in quotes: "{text}"'
    if expected == "bool":
        return f"write {name}: true or {name}: false, without quotes"
    if expected in ("int", "float") and isinstance(value, str):
        return f"write {name}: {5 if expected == 'int' else 0.5}, without quotes and without a unit"
    return ""


def _written(value: object) -> str:
    """Return a scalar as written in a file, if that takes a few plain characters; empty otherwise."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, (str, int, float)) else ""
    if "://" in text:
        return ""  # the path of a webhook is its password
    if _PLAIN.fullmatch(text):
        return text
    return f'"{text}"' if text and len(text) <= 100 and text.isprintable() and '"' not in text else ""


def _at(raw: Any, key: str) -> object:
    """Return the value at a key path; None if the path does not lead to one, such as through a list."""
    for part in key.split("."):
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw
