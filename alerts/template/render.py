"""Renders a parsed template for one alert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from alerts.template.errors import RenderError
from alerts.template.functions import FUNCTIONS
from alerts.template.limits import STEPS_OF_QUERY, Allowance
from alerts.template.nodes import (
    Action,
    Branch,
    Constant,
    Dot,
    Function,
    Group,
    Node,
    Operand,
    Pipeline,
    Text,
    Variable,
)
from alerts.template.values import FIELDS, Element, Root, Value, show, truth, type_name

Ask = Callable[[str], Sequence[Element]]
"""Runs a query at the evaluation's time. Raises RenderError."""


def render(nodes: Sequence[Node], root: Root, ask: Ask) -> str:
    """The text of a template. Raises RenderError."""
    scope: dict[str, Value] = {
        "": root,
        "labels": root.labels,
        "value": root.value,
        "externalLabels": root.external_labels,
        "externalURL": root.external_url,
    }
    out: list[str] = []
    _Renderer(root, ask, out).run(nodes, root, [scope])
    return "".join(out)


Scopes = list[dict[str, Value]]


class _Renderer:
    def __init__(self, root: Root, ask: Ask, out: list[str]) -> None:
        self._root = root
        self._ask = ask
        self._out = out
        self._allowance = Allowance()

    def run(self, nodes: Iterable[Node], dot: Value, scopes: Scopes) -> None:
        for node in nodes:
            if isinstance(node, Text):
                self._print(node.text)
            elif isinstance(node, Action):
                value = self._pipeline(node.pipeline, dot, scopes)
                if not node.pipeline.declares:
                    self._print(show(value))
            elif node.kind == "range":
                self._range(node, dot, [*scopes, {}])
            else:
                self._branch(node, dot, scopes)

    def _print(self, text: str) -> None:
        self._allowance.make(len(text))
        self._out.append(text)

    def _branch(self, node: Branch, dot: Value, scopes: Scopes) -> None:
        for arm in node.arms:
            scopes = [*scopes, {}]
            value = self._pipeline(arm.pipeline, dot, scopes)
            if truth(value):
                self.run(arm.body, value if node.kind == "with" else dot, [*scopes, {}])
                return
        self.run(node.otherwise, dot, [*scopes, {}])

    def _range(self, node: Branch, dot: Value, scopes: Scopes) -> None:
        (arm,) = node.arms
        value = self._pipeline(arm.pipeline, dot, scopes)
        pairs: list[tuple[Value, Value]]
        if isinstance(value, Mapping):
            pairs = [(name, value[name]) for name in sorted(value)]
        elif isinstance(value, list):
            pairs = list(enumerate(value))
        else:
            raise RenderError(f"range can't iterate over {type_name(value)}")
        names = arm.pipeline.declares
        for key, item in pairs:
            self._allowance.step()
            own: dict[str, Value] = dict(zip(names, (key, item) if len(names) == 2 else (item,), strict=False))
            self.run(arm.body, item, [*scopes, own])
        if not pairs:
            self.run(node.otherwise, dot, [*scopes, {}])

    def _pipeline(self, pipeline: Pipeline, dot: Value, scopes: Scopes) -> Value:
        value: Value = None
        for position, command in enumerate(pipeline.commands):
            value = self._command(command, dot, scopes, (value,) if position else ())
        for name in pipeline.declares[-1:]:
            scope = scopes[-1]
            if pipeline.assigns:
                scope = next(each for each in reversed(scopes) if name in each)
            scope[name] = value
        return value

    def _command(self, command: tuple[Operand, ...], dot: Value, scopes: Scopes, piped: tuple[Value, ...]) -> Value:
        self._allowance.step()
        head = command[0]
        if not isinstance(head, Function):
            return self._operand(head, dot, scopes)
        if head.name in ("and", "or"):
            return self._shortcut(head.name, command[1:], dot, scopes, piped)
        return self._call(head.name, [*(self._operand(each, dot, scopes) for each in command[1:]), *piped])

    def _shortcut(
        self, name: str, operands: tuple[Operand, ...], dot: Value, scopes: Scopes, piped: tuple[Value, ...]
    ) -> Value:
        value: Value = None
        for operand in operands:
            value = self._operand(operand, dot, scopes)
            if truth(value) == (name == "or"):
                return value
        return piped[0] if piped else value

    def _call(self, name: str, arguments: list[Value]) -> Value:
        if name == "query":
            text = arguments[0]
            if not isinstance(text, str):
                raise RenderError(f"wrong type for value; expected string; got {type_name(text)}")
            self._allowance.step(STEPS_OF_QUERY)
            return list(self._ask(text))
        if name == "externalURL":
            return self._root.external_url
        if name == "pathPrefix":
            return urlsplit(self._root.external_url).path
        try:
            self._allowance.check(name, arguments)
            value = FUNCTIONS[name].call(*arguments)
        except RenderError as error:
            raise RenderError(f"error calling {name}: {error}") from error
        if isinstance(value, str):
            self._allowance.make(len(value))
        return value

    def _operand(self, operand: Operand, dot: Value, scopes: Scopes) -> Value:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Dot):
            return _fields(dot, operand.names)
        if isinstance(operand, Variable):
            scope = next(each for each in reversed(scopes) if operand.name in each)
            return _fields(scope[operand.name], operand.names)
        if isinstance(operand, Group):
            return _fields(self._pipeline(operand.pipeline, dot, scopes), operand.names)
        return self._call(operand.name, [])


def _fields(value: Value, names: Iterable[str]) -> Value:
    for name in names:
        if isinstance(value, Element) and name in ("Labels", "Value"):
            value = value.labels if name == "Labels" else value.value
        elif isinstance(value, Root) and name in FIELDS:
            value = getattr(value, FIELDS[name])
        elif isinstance(value, Mapping):
            value = value.get(name, "")
        else:
            raise RenderError(f"can't evaluate field {name} in type {type_name(value)}")
    return value
