"""Mistakes in a template that Prometheus notices only when an alert fires: reported when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.template.lexer import place
from alerts.template.nodes import (
    ActionNode,
    Body,
    BranchNode,
    BreakNode,
    ChainNode,
    CommandNode,
    FieldNode,
    IdentifierNode,
    NilNode,
    NumberNode,
    Operand,
    PipeNode,
    StringNode,
    TemplateNode,
    TextNode,
    VariableNode,
)
from alerts.template.parser import Parsed
from alerts.template.template_errors import RenderError
from alerts.template.template_functions import FUNCTIONS, pattern
from alerts.template.template_values import FIELDS

_COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
_MATCHING = ("match", "reReplaceAll")
_MOST = 20
"""Most mistakes of one template that are reported."""


def mistakes(source: str, parsed: Parsed) -> tuple[str, ...]:
    """What is wrong, each mistake with its place."""
    found: list[str] = []
    for at, problem in _TemplateReader(parsed).problems():
        found.append(f"{place(source, at)}: {problem}")
        if len(found) == _MOST:
            break
    return tuple(found)


class _TemplateReader:
    """Reads a template once. `_is_alert` says whether `.` is still the alert."""

    def __init__(self, parsed: Parsed) -> None:
        self._parsed = parsed
        self._is_alert = True
        self._declared: set[str] = set()

    def problems(self) -> Iterator[tuple[int, str]]:
        yield from self._body(self._parsed.body)
        self._is_alert = False
        for body in self._parsed.defined.values():
            yield from self._body(body)

    def _body(self, body: Body) -> Iterator[tuple[int, str]]:
        for node in body:
            if isinstance(node, ActionNode):
                yield from self._pipeline(node.pipeline)
            elif isinstance(node, BranchNode):
                yield from self._branch(node)
            elif isinstance(node, TemplateNode):
                if node.name not in self._parsed.defined:
                    yield node.at, f"the template {node.name!r} is not defined"
                if node.pipeline is not None:
                    yield from self._pipeline(node.pipeline)
            else:
                assert isinstance(node, (TextNode, BreakNode))

    def _branch(self, node: BranchNode) -> Iterator[tuple[int, str]]:
        is_alert = self._is_alert
        for arm in node.arms:
            yield from self._pipeline(arm.pipeline)
            self._is_alert = is_alert and node.kind == "if"
            yield from self._body(arm.body)
            self._is_alert = is_alert
        yield from self._body(node.otherwise)

    def _pipeline(self, pipeline: PipeNode) -> Iterator[tuple[int, str]]:
        self._declared.update(pipeline.declares)
        for position, command in enumerate(pipeline.commands):
            yield from self._command(command, position > 0)

    def _command(self, command: CommandNode, piped: bool) -> Iterator[tuple[int, str]]:
        head, given = command.operands[0], command.operands[1:]
        for operand in command.operands:
            yield from self._operand(operand, is_head=operand is head)
        if isinstance(head, IdentifierNode):
            yield from self._call(head.name, given, piped, command.at)
        elif isinstance(head, NilNode):
            yield head.at, "nil is not a command"
        elif (given or piped) and not (isinstance(head, (FieldNode, ChainNode, VariableNode)) and head.fields):
            yield command.at, "only a function takes arguments"

    def _operand(self, operand: Operand, *, is_head: bool) -> Iterator[tuple[int, str]]:
        if isinstance(operand, PipeNode):
            yield from self._pipeline(operand)
        elif isinstance(operand, ChainNode):
            yield from self._operand(operand.of, is_head=False)
        elif isinstance(operand, IdentifierNode):
            if not is_head:
                yield from self._call(operand.name, (), False, operand.at)
        elif isinstance(operand, FieldNode) and self._is_alert:
            yield from self._fields(operand.fields, operand.at)
        elif isinstance(operand, VariableNode):
            if operand.name == "$" and operand.fields and self._is_alert:
                yield from self._fields(operand.fields, operand.at)
            given = {"$labels": "Labels", "$externalLabels": "ExternalLabels", "$value": "Value"}
            name = given.get(operand.name)
            if name is not None and operand.name not in self._declared:
                yield from self._fields((name, *operand.fields), operand.at)
        elif isinstance(operand, NumberNode) and operand.value is None:
            yield operand.at, f"{operand.text} overflows a 64-bit integer; write a float"

    def _fields(self, names: tuple[str, ...], at: int) -> Iterator[tuple[int, str]]:
        if names[0] not in FIELDS:
            yield at, f".{names[0]}: the alert has no such field; it has {', '.join(f'.{name}' for name in FIELDS)}"
        elif len(names) > (2 if names[0].endswith("Labels") else 1):
            yield at, f"a string or number has no field .{names[-1]}"

    def _call(self, name: str, given: tuple[Operand, ...], piped: bool, at: int) -> Iterator[tuple[int, str]]:
        function = FUNCTIONS[name]
        least, count = len(function.takes), len(given) + piped
        if count < least or (count > least and not function.rest):
            wants = f"at least {least}" if function.rest else f"{least}"
            yield at, f"wrong number of arguments for {name}: want {wants}, got {count}"
            return
        if function.since:
            yield at, f"{name} needs Prometheus {function.since}; an older server rejects the file"
        if name in _MATCHING and given and isinstance(given[0], StringNode):
            try:
                pattern(given[0].text)
            except RenderError as error:
                yield at, str(error)
        if name in _COMPARISONS and any(self._is_value(each) for each in given):
            yield from self._comparison(given)

    def _comparison(self, given: tuple[Operand, ...]) -> Iterator[tuple[int, str]]:
        """Go does not compare its float with a whole number: `gt $value 80` can only fail."""
        for each in given:
            if isinstance(each, StringNode) or (isinstance(each, NumberNode) and isinstance(each.value, int)):
                text = each.source if isinstance(each, StringNode) else each.text
                remedy = f"; write {text}.0" if isinstance(each, NumberNode) else ""
                yield each.at, f"the value is a float and cannot be compared with {text}{remedy}"

    def _is_value(self, operand: Operand) -> bool:
        if isinstance(operand, VariableNode):
            return operand.name == "$value" and not operand.fields and operand.name not in self._declared
        return isinstance(operand, FieldNode) and operand.fields == ("Value",) and self._is_alert
