"""The tree of a parsed template, and how Go prints its nodes in error messages."""

from __future__ import annotations

from typing import Union

from msgspec import Struct

from alerts.go_literals import quoted


class _TemplatePart(Struct, frozen=True, eq=False):
    """A part of a template; `at` is its offset in the text."""

    at: int


class IdentifierNode(_TemplatePart, frozen=True):
    """The name of a function; first in a command it is called with the rest."""

    name: str


class VariableNode(_TemplatePart, frozen=True):
    """`$x`, and `$x.y` with the names of its fields; `$` is a name, too."""

    name: str
    fields: tuple[str, ...] = ()


class FieldNode(_TemplatePart, frozen=True):
    """`.x.y`, and `.` without fields."""

    fields: tuple[str, ...] = ()


class NilNode(_TemplatePart, frozen=True):
    """`nil`, which can be an argument but not a command."""


class ConstantNode(_TemplatePart, frozen=True):
    """A truth value, a number or a text in quotes as written, and its value; None of a number beyond an int."""

    text: str
    value: bool | int | float | str | None


class ChainNode(_TemplatePart, frozen=True):
    """The fields of anything else, such as `(query "x").y`."""

    operand: Operand
    fields: tuple[str, ...]


class CommandNode(_TemplatePart, frozen=True):
    """A function or value, and arguments."""

    operands: tuple[Operand, ...]


class PipeNode(_TemplatePart, frozen=True):
    """Commands, each with the previous result as its last argument; `declares` are its variables."""

    commands: tuple[CommandNode, ...]
    declares: tuple[str, ...] = ()
    assigns: bool = False


Operand = Union[IdentifierNode, VariableNode, FieldNode, NilNode, ConstantNode, ChainNode, PipeNode]


class TextNode(_TemplatePart, frozen=True):
    """Text as it is."""

    text: str


class ActionNode(_TemplatePart, frozen=True):
    """A pipeline whose result is printed."""

    pipeline: PipeNode


class TemplateNode(_TemplatePart, frozen=True):
    """`template`, or the call that is part of a `block`."""

    name: str
    pipeline: PipeNode | None


class BreakNode(_TemplatePart, frozen=True):
    """`break` or `continue`."""

    kind: str


class Arm(Struct, frozen=True, eq=False):
    """A condition, and the nodes below it."""

    pipeline: PipeNode
    body: Body


class BranchNode(_TemplatePart, frozen=True):
    """`if`, `with` or `range`, as `kind` says; several arms if there is `else if` or `else with`."""

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
        return ".".join((_bracketed(node.operand), *node.fields))
    if isinstance(node, VariableNode):
        return ".".join((node.name, *node.fields))
    if isinstance(node, FieldNode):
        return f".{'.'.join(node.fields)}"
    if isinstance(node, ConstantNode):
        return node.text
    return node.name if isinstance(node, IdentifierNode) else "nil"


def _bracketed(node: Operand) -> str:
    return f"({written(node)})" if isinstance(node, PipeNode) else written(node)
