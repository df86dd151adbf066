"""Reads the nodes of a YAML file, and collects all errors instead of stopping at the first.

Scalars are read as written: `severity: 1` is the string "1", as in Prometheus. A key that is
unknown, or duplicate, is an error with its line and the nearest valid key.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from agent.lib import textfile, yamltree
from agent.lib.wording import meant, one_line, shown
from agent.lib.yamltree import Bounds, Node, YamlError, YamlScalar, pairs_of
from alerts import durations
from alerts.go_literals import whole

MOST_PROBLEMS = 50
"""Most problems of one file that are reported: one with more is another kind of file, or a generator's mistake."""
_LONGEST_NAME = 100
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD_NUMBERS = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_LONGEST_NUMBER = 100
_LARGEST = 2**63


class Problem(Struct, frozen=True):
    """One thing that is wrong in a file. `where` names group and rule, or the test; it may be empty."""

    file: str
    line: int
    where: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{place}{self.where}: {self.text}" if self.where else f"{place}{self.text}"


class FileError(Exception):
    """A file cannot be used; `problems` are all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class TooManyError(Exception):
    """A file has more problems than are reported; the rest of it is not read."""


class Reader:
    """Reads the nodes of one file; `problems` grows as it goes.

    Any method may raise TooManyError when there are as many problems as are reported.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.rest = 0
        """The line of the first thing after the first document, which is not read."""

    def in_order(self) -> list[Problem]:
        """Return the problems by their lines, those of the whole file last."""
        return sorted(self.problems, key=lambda problem: problem.line or math.inf)

    def fail(self, node: Node | int | None, where: str, text: str) -> None:
        """Record a problem at a node, or a line."""
        line = node if isinstance(node, int) else line_of(node)
        self.problems.append(Problem(self.file, line, one_line(where), one_line(text)))
        if len(self.problems) >= MOST_PROBLEMS:
            rest = f"{MOST_PROBLEMS} problems found; fix these first, the rest was not checked"
            self.problems.append(Problem(self.file, 0, "", rest))
            raise TooManyError

    def load(self, path: Path, most: int, *, handed: bool = False) -> str:
        """Return the text of a file, see `read_text`; empty if it cannot be read (a problem then says why)."""
        try:
            return textfile.read_text(path, most, handed=handed)
        except textfile.ReadError as error:
            self.fail(None, "", error.problem)
            return ""

    def compose(self, text: str, bounds: Bounds, *, lone: bool = True) -> Node | None:
        """Return the tree of a text; None if it is empty, or cannot be used (a problem then says why).

        Anything after the first document is a problem, or is reported as `rest` if the document need not be `lone`.
        """
        try:
            root, self.rest = yamltree.compose(text, bounds, lone=lone)
        except YamlError as error:
            self.fail(error.line, "", error.problem)
            return None
        return root

    def fields(self, node: Node, valid: Sequence[str], where: str) -> dict[str, Node]:
        """Return the values of a mapping by key, without nulls. Unknown keys are problems."""
        fields: dict[str, Node] = {}
        for key, value in self._pairs(node, where):
            if key.text not in valid:
                self.fail(key, where, f"{one_line(key.text, _LONGEST_NAME)}: unknown key{meant(key.text, valid)}")
            elif not yamltree.is_null(value):
                fields[key.text] = value
        return fields

    def strings(self, node: Node | None, where: str) -> dict[str, tuple[str, Node]]:
        """Return a mapping of texts: name to text and its node."""
        texts = {}
        for key, value in self._pairs(node, where) if node is not None else ():
            name = one_line(key.text, _LONGEST_NAME)
            texts[key.text] = (self.text(value, f"{where}, {name}" if where else name), value)
        return texts

    def _pairs(self, node: Node, where: str) -> list[tuple[YamlScalar, Node]]:
        if yamltree.is_null(node):
            return []
        if not isinstance(node, yamltree.YamlMapping):
            self.fail(node, where, "must be a mapping of keys to values")
            return []
        return list(pairs_of(node, lambda problem, line: self.fail(line, where, problem)))

    def items(self, node: Node | None, where: str) -> Iterator[Node]:
        """Yield the items of a list, without nulls; no items for a null."""
        if isinstance(node, yamltree.YamlList):
            yield from (item for item in node.items if not yamltree.is_null(item))
        elif node is not None and not yamltree.is_null(node):
            self.fail(node, where, "must be a list; start its items with '- '")

    def text(self, node: Node | None, where: str) -> str:
        """Return a scalar as written; the empty text for a null."""
        if node is None or yamltree.is_null(node):
            return ""
        if isinstance(node, YamlScalar):
            return node.text
        self.fail(node, where, "must be a string, not a list or a mapping")
        return ""

    def duration(self, node: Node | None, where: str) -> float | None:
        """Return seconds; None if there is no duration, or an invalid one."""
        if node is None:
            return None
        try:
            return durations.parse(self.text(node, where))
        except ValueError as error:
            self.fail(node, where, str(error))
            return None

    def integer(self, node: Node | None, where: str) -> int:
        """Return a whole number; 0 for a missing key. Read as in Prometheus: no quotes, without its fraction."""
        if node is None:
            return 0
        text = self.text(node, where)
        number = number_of(text) if node.tag != yamltree.TEXT else None
        if number is None or not -_LARGEST <= number < _LARGEST:
            self.fail(node, where, f"{shown(text)} is not a whole number")
            return 0
        return int(number)


def number_of(text: str) -> int | float | None:
    """Return a number as Go reads YAML, such as `0x1F`, `1e3` and `-.inf`; None of another text."""
    plain = text.replace("_", "")
    if len(plain) > _LONGEST_NUMBER:
        return None
    if (number := whole(plain)) is not None:
        return number
    return float(plain) if _FLOAT.fullmatch(plain) else _ODD_NUMBERS.get(plain.lower())


def line_of(node: Node | None) -> int:
    """Return the line of a node, from 1; 0 if there is no node."""
    return node.line if node is not None else 0
