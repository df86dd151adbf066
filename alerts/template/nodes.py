"""The tree of a parsed template, and how Go prints its nodes in error messages."""

from __future__ import annotations

from typing import Union

from msgspec import Struct

from alerts.go_literals import quoted


class IdentifierNode(Struct, frozen=True, eq=False):
    """The name of a function; first in a command it is called with the rest."""

    at: int
    name: str


class VariableNode(Struct, frozen=True, eq=False):
    """`$x`, and `$x.y` with the names of its fields; `$` is a name, too."""

    at: int
    name: str
    fields: tuple[str, ...] = ()


class DotNode(Struct, frozen=True, eq=False):
    """`.`"""

    at: int


class FieldNode(Struct, frozen=True, eq=False):
    """`.x.y`"""

    at: int
    fields: tuple[str, ...]


class NilNode(Struct, frozen=True, eq=False):
    """`nil`, which can be an argument but not a command."""

    at: int


class ConstantNode(Struct, frozen=True, eq=False):
    """A truth value, a number or a text in quotes as written, and its value; None of a number beyond an int."""

    at: int
    text: str
    value: bool | int | float | complex | str | None


class ChainNode(Struct, frozen=True, eq=False):
    """The fields of anything else, such as `(query "x").y`."""

    at: int
    of: Operand
    fields: tuple[str, ...]


class CommandNode(Struct, frozen=True, eq=False):
    """A function or value, and arguments."""

    at: int
    operands: tuple[Operand, ...]


class PipeNode(Struct, frozen=True, eq=False):
    """Commands, each with the previous result as its last argument; `declares` are its variables."""

    at: int
    commands: tuple[CommandNode, ...]
    declares: tuple[str, ...] = ()
    assigns: bool = False


Operand = Union[IdentifierNode, VariableNode, DotNode, FieldNode, NilNode, ConstantNode, ChainNode, PipeNode]


class TextNode(Struct, frozen=True, eq=False):
    """Text as it is."""

    at: int
    text: str


class ActionNode(Struct, frozen=True, eq=False):
    """A pipeline whose result is printed."""

    at: int
    pipeline: PipeNode


class TemplateNode(Struct, frozen=True, eq=False):
    """`template`, or the call that is part of a `block`."""

    at: int
    name: str
    pipeline: PipeNode | None


class BreakNode(Struct, frozen=True, eq=False):
    """`break` or `continue`."""

    at: int
    kind: str


class Arm(Struct, frozen=True, eq=False):
    """A condition, and the nodes below it."""

    pipeline: PipeNode
    body: Body


class BranchNode(Struct, frozen=True, eq=False):
    """`if`, `with` or `range`, as `kind` says; several arms if there is `else if` or `else with`."""

    at: int
    kind: str
    arms: tuple[Arm, ...]
    otherwise: Body


Node = Union[TextNode, ActionNode, BranchNode, TemplateNode, BreakNode]
Body = tuple[Node, ...]
Located = Union[Operand, CommandNode, ActionNode, TemplateNode]
"""A node that an error can refer to."""


def written(node: Located) -> str:
    """Return a node as Go writes it, regardless of its original spaces."""
    if isinstance(node, ActionNode):
        return f"{{{{{written(node.pipeline)}}}}}"
    if isinstance(node, TemplateNode):
        argument = f" {written(node.pipeline)}" if node.pipeline is not None else ""
        return f"{{{{template {quoted(node.name)}{argument}}}}}"
    if isinstance(node, PipeNode):
        sign = "=" if node.assigns else ":="
        before = f"{', '.join(node.declares)} {sign} " if node.declares else ""
        return before + " | ".join(map(written, node.commands))
    if isinstance(node, CommandNode):
        return " ".join(map(_bracketed, node.operands))
    if isinstance(node, ChainNode):
        return ".".join((_bracketed(node.of), *node.fields))
    if isinstance(node, VariableNode):
        return ".".join((node.name, *node.fields))
    if isinstance(node, FieldNode):
        return "".join(f".{name}" for name in node.fields)
    if isinstance(node, ConstantNode):
        return node.text
    if isinstance(node, IdentifierNode):
        return node.name
    return "." if isinstance(node, DotNode) else "nil"


def _bracketed(node: Operand) -> str:
    return f"({written(node)})" if isinstance(node, PipeNode) else written(node)
