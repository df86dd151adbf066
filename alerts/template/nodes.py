"""The tree of a parsed template, and how Go writes its nodes down again in error messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from alerts.template.quoting import quoted


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """The name of a function; first in a command it is called with the rest."""

    at: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """`$x`, and `$x.y` with the names of its fields; `$` is a name, too."""

    at: int
    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Dot:
    """`.`"""

    at: int


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """`.x.y`"""

    at: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nil:
    """`nil`, which is no command but an argument."""

    at: int


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """`true` or `false`."""

    at: int
    value: bool


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number as it is written, and its value where nothing tells what it shall be; None does not fit into an int.

    `integer` is the value where a function wants a whole number.
    """

    at: int
    text: str
    value: int | float | complex | None
    integer: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Quote:
    """A text as it is written, with its quotes, and what it says."""

    at: int
    source: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The fields of anything else, such as `(query "x").y`."""

    at: int
    of: Operand
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """A function or value, and arguments."""

    at: int
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Commands, each given the result of the one before as its last argument; `declares` variables, or assigns."""

    at: int
    commands: tuple[Command, ...]
    declares: tuple[str, ...] = ()
    assigns: bool = False


Operand = Union[Word, Variable, Dot, Field, Nil, Truth, Number, Quote, Chain, Pipeline]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Text as it is."""

    at: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """A pipeline whose result is printed."""

    at: int
    pipeline: Pipeline


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """`template`, or the use that a `block` makes of itself."""

    at: int
    name: str
    pipeline: Pipeline | None


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """`break` or `continue`."""

    at: int
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """A condition, and what stands below it."""

    pipeline: Pipeline
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`if`, `with` or `range`, told apart by `kind`; several arms where there is `else if` or `else with`."""

    at: int
    kind: str
    arms: tuple[Arm, ...]
    otherwise: Body


Node = Union[Text, Action, Branch, Call, Leave]
Body = tuple[Node, ...]
Located = Union[Operand, Command, Action, Call]
"""What an error may be at."""


def written(node: Located) -> str:
    """A node as Go writes it, whatever spaces it had."""
    if isinstance(node, Action):
        return f"{{{{{written(node.pipeline)}}}}}"
    if isinstance(node, Call):
        argument = f" {written(node.pipeline)}" if node.pipeline is not None else ""
        return f"{{{{template {quoted(node.name)}{argument}}}}}"
    if isinstance(node, Pipeline):
        sign = "=" if node.assigns else ":="
        before = f"{', '.join(node.declares)} {sign} " if node.declares else ""
        return before + " | ".join(map(written, node.commands))
    if isinstance(node, Command):
        return " ".join(map(_bracketed, node.operands))
    if isinstance(node, Chain):
        return ".".join((_bracketed(node.of), *node.fields))
    if isinstance(node, Variable):
        return ".".join((node.name, *node.fields))
    if isinstance(node, Field):
        return "".join(f".{name}" for name in node.fields)
    return _atom(node)


def _bracketed(node: Operand) -> str:
    return f"({written(node)})" if isinstance(node, Pipeline) else written(node)


def _atom(node: Word | Dot | Nil | Truth | Number | Quote) -> str:
    if isinstance(node, Word):
        return node.name
    if isinstance(node, Number):
        return node.text
    if isinstance(node, Quote):
        return node.source
    if isinstance(node, Truth):
        return "true" if node.value else "false"
    return "." if isinstance(node, Dot) else "nil"
