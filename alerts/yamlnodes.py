"""Reads YAML with its line numbers, and gathers everything that is wrong with a file instead of stopping at once.

Scalars are taken as they are written: `severity: 1` is the text "1", as it is to Prometheus. A key that is
unknown, or there twice, is a problem with its line and the nearest valid key.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from alerts import durations

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file. `where` names group and rule, or the test; it may be empty."""

    file: str
    line: int
    where: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{place}{self.where}: {self.text}" if self.where else f"{place}{self.text}"


class Reader:
    """Reads the nodes of one file; `problems` grows as it goes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def fail(self, node: yaml.Node | None, where: str, text: str) -> None:
        self.problems.append(Problem(self.file, line_of(node), where, text))

    def compose(self, text: str) -> yaml.Node | None:
        """The tree of a text; None if it is empty, or no YAML (a problem then says so)."""
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or str(error).replace("\n", " ")
            self.problems.append(Problem(self.file, mark.line + 1 if mark else 0, "", f"is no YAML: {problem}"))
        except RecursionError:
            self.problems.append(Problem(self.file, 0, "", "is nested too deeply to be a rule file"))
        return None

    def fields(self, node: yaml.Node, valid: Sequence[str], where: str) -> dict[str, yaml.Node]:
        """The values of a mapping by key, without nulls. Unknown keys are problems."""
        found: dict[str, yaml.Node] = {}
        for key, value in self._pairs(node, where):
            name = str(key.value)
            if name not in valid:
                self.fail(key, where, f"{_unknown(name, valid)}")
            elif not is_null(value):
                found[name] = value
        return found

    def strings(self, node: yaml.Node | None, where: str) -> dict[str, tuple[str, yaml.Node]]:
        """A mapping of texts: name to text and its node."""
        found = {}
        for key, value in self._pairs(node, where) if node is not None else ():
            found[str(key.value)] = (self.text(value, f"{where}, {key.value}" if where else str(key.value)), value)
        return found

    def _pairs(self, node: yaml.Node, where: str) -> list[tuple[yaml.Node, yaml.Node]]:
        if is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, where, "must be a mapping of keys to values")
            return []
        own: dict[object, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[object, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    for pair in self._pairs(source, where):
                        merged.setdefault(pair[0].value, pair)
            elif not isinstance(key, yaml.ScalarNode):
                self.fail(key, where, "a key must be a plain name")
            elif key.value in own:
                self.fail(key, where, f"{key.value}: the key is there twice; remove one")
            else:
                own[key.value] = (key, value)
        return [*own.values(), *(pair for name, pair in merged.items() if name not in own)]

    def items(self, node: yaml.Node | None, where: str) -> list[yaml.Node]:
        """The items of a list; none of a null."""
        if node is None or is_null(node):
            return []
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.fail(node, where, "must be a list; begin its items with '- '")
        return []

    def text(self, node: yaml.Node | None, where: str) -> str:
        """A scalar as it is written; the empty text for a null."""
        if node is None or is_null(node):
            return ""
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self.fail(node, where, "must be one text, not a list or a mapping")
        return ""

    def duration(self, node: yaml.Node | None, where: str) -> float | None:
        """Seconds; None where there is none, or where it is wrong."""
        if node is None:
            return None
        try:
            return durations.parse(self.text(node, where))
        except ValueError as error:
            self.fail(node, where, str(error))
            return None

    def integer(self, node: yaml.Node | None, where: str) -> int:
        """A whole number; 0 where there is none."""
        if node is None:
            return 0
        try:
            return int(self.text(node, where), 0)
        except ValueError:
            self.fail(node, where, f"{self.text(node, where)!r} is no whole number")
            return 0


def is_null(node: yaml.Node) -> bool:
    """Whether nothing is written there, or null."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def line_of(node: yaml.Node | None) -> int:
    """The line of a node, from 1; 0 where there is no node."""
    return node.start_mark.line + 1 if node is not None else 0


def nearest(name: str, valid: Sequence[str] | Mapping[str, object]) -> str:
    """The remedy for a wrong name: the nearest right one, or all of them."""
    near = difflib.get_close_matches(name, list(valid), 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(valid)}"


def _unknown(name: str, valid: Sequence[str]) -> str:
    return f"{name}: unknown key; {nearest(name, valid)}"
