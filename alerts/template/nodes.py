"""The tree of a parsed template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from alerts.template.values import Value


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, a number, true, false or nil."""

    value: Value


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`, and `.Labels.x` with the names of its fields."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x`, and `$x.y` with the names of its fields; `$` is the empty name."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function; first in a command it is called with the rest."""

    name: str


@dataclass(frozen=True, slots=True)
class Group:
    """A pipeline in parentheses, and the fields taken of its result."""

    pipeline: Pipeline
    names: tuple[str, ...] = ()


Operand = Union[Constant, Dot, Variable, Function, Group]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each given the result of the one before as its last argument; `declares` variables, or assigns."""

    commands: tuple[tuple[Operand, ...], ...]
    declares: tuple[str, ...] = ()
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipeline whose result is printed."""

    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Arm:
    """A condition, and what stands below it."""

    pipeline: Pipeline
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`, told apart by `kind`; only an `if` has several arms, one for each `else if`."""

    kind: str
    arms: tuple[Arm, ...]
    otherwise: tuple[Node, ...]


Node = Union[Text, Action, Branch]
