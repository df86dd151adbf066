"""One section of a web configuration file, key by key, with the types that the exporter-toolkit's decoder gives them.

A string may be any scalar as it is written; null is as good as nothing; a truth is what YAML 1.1 calls one, unquoted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import NoReturn, Protocol

from agent.lib import yamltree
from agent.lib.wording import one_line, shown
from agent.lib.yamltree import Node, YamlList, YamlMapping, YamlScalar
from agent.lib.yamlvalues import resolve

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SPAN = re.compile(rf"([-+]?)((?:{_PART.pattern})+|0)")


class Fail(Protocol):
    """Refuses the value of a key."""

    def __call__(self, key: str, problem: str, line: int = 0) -> NoReturn: ...


class SectionReader:
    """The keys of a mapping, or of nothing. What was not asked for when `done` is called is an unknown key."""

    def __init__(self, name: str, node: Node | None, fail: Fail) -> None:
        self._name = name
        self._fail = fail
        self._nodes: dict[str, tuple[int, Node]] = {}
        self._asked: list[str] = []
        if node is None or yamltree.is_null(node):
            return
        if not isinstance(node, YamlMapping):
            fail(name, "must be a mapping of keys and values", node.line)
        for key, value in yamltree.pairs_of(node, lambda problem, line: fail(name, problem, line)):
            self._nodes[key.text] = key.line, value

    @property
    def is_empty(self) -> bool:
        return not self._nodes

    def fail(self, key: str, problem: str) -> NoReturn:
        """Refuse the value of a key; the key may have a part that names something below it."""
        line = self._nodes.get(key.partition(".")[0], (0, None))[0]
        self._fail(".".join(each for each in (self._name, key) if each), problem, line)

    def done(self) -> None:
        """Refuse what nobody asked for."""
        for key in self._nodes:
            if key not in self._asked:
                near = difflib.get_close_matches(key[:100], self._asked, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(self._asked)}"
                self.fail(one_line(key, 80), f"unknown key; {hint}")

    def section(self, key: str) -> SectionReader:
        """The mapping below a key."""
        return SectionReader(f"{self._name}.{key}".lstrip("."), self._node(key), self._fail)

    def text(self, key: str) -> str:
        """Empty if there is none."""
        node = self._node(key)
        return "" if node is None else self._scalar(key, node)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of strings; None if there is none."""
        node = self._node(key)
        if node is None or yamltree.is_null(node):
            return None
        if not isinstance(node, YamlList):
            self.fail(key, "must be a list, such as [one, another]")
        return tuple(self._scalar(key, each) for each in node.items)

    def word(self, key: str, known: Collection[str]) -> str:
        """One of these words; empty if there is none."""
        node = self._node(key)
        if node is None or yamltree.is_null(node):
            return ""
        return self._known(key, self._scalar(key, node), known)

    def words(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        """A list of such words."""
        return tuple(self._known(key, each, known) for each in self.texts(key) or ())

    def truth(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._plain(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, f"{shown(value)} is neither true nor false")
        return value

    def whole(self, key: str) -> int:
        """A whole number; 0 if there is none."""
        value = self._plain(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shown(value)} is not a whole number")
        return value

    def duration(self, key: str) -> float:
        """Seconds of a duration as Go writes it (`1m30s`), or of a number of nanoseconds; 0 if there is none."""
        value = self._plain(key)
        if value is None:
            return 0.0
        if isinstance(value, int) and not isinstance(value, bool):
            return value * 1e-9
        match = _SPAN.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.fail(key, f"{shown(value)} is not a duration; write a number with a unit, such as 500ms or 1m30s")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(match[2]))
        return -seconds if match[1] == "-" else seconds

    def pairs(self, key: str) -> dict[str, str]:
        """A mapping of strings."""
        return self.section(key).all_pairs()

    def all_pairs(self) -> dict[str, str]:
        """The whole section as a mapping of strings."""
        return {key: self._scalar(key, node) for key, (_, node) in self._nodes.items()}

    def _node(self, key: str) -> Node | None:
        self._asked.append(key)
        found = self._nodes.get(key)
        return None if found is None else found[1]

    def _plain(self, key: str) -> str | int | float | bool | None:
        node = self._node(key)
        if node is None:
            return None
        text = self._scalar(key, node)
        assert isinstance(node, YamlScalar), "anything else has been refused"
        try:
            return text if node.tag == yamltree.TEXT else resolve(text, node.tag)
        except ValueError as error:
            self.fail(key, str(error))

    def _scalar(self, key: str, node: Node) -> str:
        if not isinstance(node, YamlScalar):
            self.fail(one_line(key, 80), "must be a single value, not a list or a mapping")
        return "" if yamltree.is_null(node) else node.text

    def _known(self, key: str, word: str, known: Collection[str]) -> str:
        if word not in known:
            self.fail(key, f"{shown(word)} is unknown; use one of {', '.join(known)}")
        return word
