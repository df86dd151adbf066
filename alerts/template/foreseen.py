"""What a template may read by `query`, determined when it is loaded: the windows keep what rules are known to read.

The template is followed through all its branches, with placeholders for what is known only at an evaluation:
`printf "a{instance=%q}" $labels.instance | query` reads `a{instance="<placeholder>"}`. A placeholder is a word to
PromQL, or a number, so that such a query can be compiled like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple, Union

from alerts.template.nodes import (
    ActionNode,
    Body,
    BoolNode,
    BranchNode,
    ChainNode,
    CommandNode,
    DotNode,
    FieldNode,
    IdentifierNode,
    NilNode,
    NumberNode,
    Operand,
    PipeNode,
    StringNode,
    TemplateNode,
    VariableNode,
)
from alerts.template.parser import Parsed
from alerts.template.printf import show as printed
from alerts.template.printf import sprintf
from alerts.template.template_errors import RenderError
from alerts.template.template_functions import FUNCTIONS
from alerts.template.template_values import Value

WORD = "unforeseen_text"
NUMBER = "900719925474099"
"""Placeholders for a text and a number that are known only at an evaluation."""

_MOST = 32
"""Most values of one operand that are followed: one with more counts as unknown."""
_PASSES = 4
"""Most passes over a template to find its variables' values; a variable that still grows then is unknown."""


class _Unknown(NamedTuple):
    """A value that is known only at an evaluation, as its placeholder."""

    shown: str


_TEXT, _NUMBER = _Unknown(WORD), _Unknown(NUMBER)
_GIVEN = {"$": _TEXT, "$labels": _TEXT, "$externalLabels": _TEXT, "$externalURL": _TEXT, "$value": _NUMBER}
_NUMBERS = frozenset(("len", "now", "parseDuration", "value"))
_VERB = re.compile(r"%[-+# 0]*[0-9]*(?:\.[0-9]*)?(.?)", re.DOTALL)
_Seen = Union[_Unknown, Value]
_Values = tuple[_Seen, ...]


def is_unforeseen(text: str) -> bool:
    """Whether a text has a placeholder in it."""
    return WORD in text or NUMBER in text


def shown(question: str) -> str:
    """A question as shown in messages."""
    return question.replace(WORD, "...").replace(NUMBER, "...")


def questions(parsed: Parsed) -> tuple[str, ...]:
    """The queries that a template may evaluate, each once, with placeholders for what is not known yet."""
    variables: dict[str, _Values] = {}
    for turn in range(_PASSES):
        follower = _Follower(parsed, variables, widen=turn == _PASSES - 2)
        follower.run(parsed.body, (_TEXT,))
        for name, body in parsed.defined.items():
            follower.run(body, variables.get(_dot_of(name), ()))
        if not follower.has_grown:
            break
    return tuple(dict.fromkeys(follower.asked))


def _dot_of(name: str) -> str:
    """The variable that stands for `.` in a defined template: the values that it is called with."""
    return f"template {name}"


class _Follower:
    """Follows a template once. `variables` are the values found by earlier passes, to which it adds."""

    def __init__(self, parsed: Parsed, variables: dict[str, _Values], *, widen: bool) -> None:
        self.asked: list[str] = []
        self.has_grown = False
        self._parsed = parsed
        self._variables = variables
        self._widen = widen

    def run(self, body: Body, dot: _Values) -> None:
        for node in body:
            if isinstance(node, ActionNode):
                self._pipeline(node.pipeline, dot)
            elif isinstance(node, BranchNode):
                for arm in node.arms:
                    value = self._pipeline(arm.pipeline, dot, ranges=node.kind == "range")
                    self.run(arm.body, {"if": dot, "with": value}.get(node.kind, (_TEXT,)))
                self.run(node.otherwise, dot)
            elif isinstance(node, TemplateNode):
                given = self._pipeline(node.pipeline, dot) if node.pipeline is not None else (_TEXT,)
                self._assign(_dot_of(node.name), given)

    def _pipeline(self, pipeline: PipeNode, dot: _Values, *, ranges: bool = False) -> _Values:
        values: _Values = ()
        for position, command in enumerate(pipeline.commands):
            values = self._command(command, dot, (values,) if position else ())
        for name in pipeline.declares:
            self._assign(name, (_TEXT,) if ranges else values)
        return values

    def _assign(self, name: str, values: _Values) -> None:
        before = self._variables.get(name, ())
        after = _bounded((*before, *values))
        if after != before:
            self.has_grown = True
            self._variables[name] = (_TEXT,) if self._widen and before else after

    def _command(self, command: CommandNode, dot: _Values, piped: tuple[_Values, ...]) -> _Values:
        head = command.operands[0]
        if not isinstance(head, IdentifierNode):
            for each in command.operands[1:]:
                self._operand(each, dot)
            return self._operand(head, dot)
        return self._call(head.name, [*(self._operand(each, dot) for each in command.operands[1:]), *piped])

    def _call(self, name: str, given: list[_Values]) -> _Values:
        if name == "query":
            self.asked.extend(_shown(value) for value in given[0]) if given else None
            return (_TEXT,)
        if name in ("and", "or"):
            return _bounded(value for values in given for value in values)
        calls = list(islice(product(*given), _MOST + 1))
        return (_TEXT,) if len(calls) > _MOST else _bounded(_called(name, call) for call in calls)

    def _operand(self, operand: Operand, dot: _Values) -> _Values:
        if isinstance(operand, StringNode):
            return (operand.text,)
        if isinstance(operand, (NumberNode, BoolNode)):
            return (operand.value,)
        if isinstance(operand, NilNode):
            return (None,)
        if isinstance(operand, IdentifierNode):
            return self._call(operand.name, [])
        if isinstance(operand, PipeNode):
            return self._pipeline(operand, dot)
        if isinstance(operand, DotNode):
            return dot
        if isinstance(operand, ChainNode):
            self._operand(operand.of, dot)
        if isinstance(operand, VariableNode) and not operand.fields:
            given = _GIVEN.get(operand.name)
            return (*self._variables.get(operand.name, ()), *((given,) if given else ()))
        assert isinstance(operand, (ChainNode, FieldNode, VariableNode))
        return (_NUMBER if operand.fields[-1] == "Value" else _TEXT,)


def _bounded(values: Iterable[_Seen]) -> _Values:
    found = list(islice({(type(value), value): value for value in values}.values(), _MOST + 1))
    return tuple(found) if len(found) <= _MOST else (_TEXT,)


def _called(name: str, given: Sequence[_Seen]) -> _Seen:
    """The result of a function, as far as it is known."""
    try:
        if name == "print":
            return _printed(given)
        if name == "printf":
            return "".join(_formatted(given[0], list(given[1:]))) if given else _TEXT
        function = FUNCTIONS[name]
        is_known = all(type(value) is str and not is_unforeseen(value) for value in given)
        of_texts = function.takes and set(function.takes) == {"string"} and not (function.rest or function.watched)
        if name == "query" or not of_texts or not is_known or len(given) != len(function.takes):
            return _NUMBER if name in _NUMBERS else _TEXT
        return function.call(*given)
    except RenderError:  # it always fails, whatever the alert
        return _TEXT


def _printed(given: Sequence[_Seen]) -> str:
    """Joined as by `print`: with a space between two neighbours if neither is a text."""
    pieces = []
    for position, value in enumerate(given):
        texts = [isinstance(each, str) or each == _TEXT for each in given[max(position - 1, 0) : position + 1]]
        pieces += [" "] if len(texts) > 1 and not any(texts) else []
        pieces.append(_shown(value))
    return "".join(pieces)


def _formatted(text: _Seen, given: list[_Seen]) -> Iterator[str]:
    """Formatted as by `printf`; the verb of an unknown value becomes its placeholder, quoted if the verb quotes."""
    if not isinstance(text, str) or any(match[1] in ("*", "[") for match in _VERB.finditer(text)):
        yield WORD
        return
    end = 0
    for match in _VERB.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        value = given.pop(0) if given and match[1] not in ("%", "") else None
        if isinstance(value, _Unknown):
            yield f'"{value.shown}"' if match[1] == "q" else value.shown
        else:
            yield sprintf(match[0], () if value is None else (value,))
    yield text[end:]


def _shown(value: _Seen) -> str:
    return value.shown if isinstance(value, _Unknown) else printed(value)
