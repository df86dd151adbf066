"""Reads the tokens of one action, with what is known where it stands."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import NoReturn

from alerts.promql.syntax.literals import is_text, unquoted
from alerts.promql.syntax.quotes import scan_quoted
from alerts.template import functions, printf
from alerts.template.errors import RenderError, TemplateError
from alerts.template.lexer import Token, place
from alerts.template.limits import DEEPEST_NESTING
from alerts.template.nodes import Constant, Dot, Function, Group, Operand, Pipeline, Variable
from alerts.template.values import FIELDS, Value

_SCALARS = {"value", "externalURL", "Value", "ExternalURL"}
_MAPS = {"labels", "externalLabels", "Labels", "ExternalLabels"}
_GIVEN = ("", "labels", "externalLabels", "externalURL", "value")
_MATCHING = ("match", "reReplaceAll")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Scopes:
    """Which variables there are at a place of a template, whether `.` still is the alert, and how deep it is."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.moved = 0  # how many `with` and `range` are around: inside, `.` is something else
        self._depth = 0
        self._scopes: list[set[str]] = [set(_GIVEN)]
        self._made: set[str] = set()

    def enter(self, at: int) -> None:
        """Go one level deeper, into a branch or parentheses that open at an offset. Raises TemplateError."""
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            problem = f"is nested more than {DEEPEST_NESTING} levels deep; use variables"
            raise TemplateError(f"{place(self.source, at)}: {problem}")

    def leave(self) -> None:
        self._depth -= 1

    def open(self) -> None:
        self._scopes.append(set())

    def close(self) -> None:
        self._scopes.pop()

    def declare(self, name: str) -> None:
        self._scopes[-1].add(name)
        self._made.add(name)

    def knows(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def is_given(self, name: str) -> bool:
        """Whether a variable is the alert's, and the template has none of that name."""
        return name in _GIVEN and name not in self._made


class ActionReader:
    """Reads the tokens of one action, which begins at `start`."""

    def __init__(self, scopes: Scopes, start: int, tokens: Sequence[Token]) -> None:
        self._scopes = scopes
        self._start = start
        self._tokens = tokens
        self._next = 0

    def _fail(self, text: str, token: Token | None = None) -> NoReturn:
        at = token.at if token else self._start
        raise TemplateError(f"{place(self._scopes.source, at)}: {text}")

    def _peek(self, ahead: int = 0) -> Token | None:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else None

    def _is(self, text: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and token.kind == "symbol" and token.text == text

    def pipeline(self, *, ranges: bool, closes: str = "") -> Pipeline:
        declares, assigns = self._declaration(ranges=ranges)
        commands: list[tuple[Operand, ...]] = []
        while True:
            commands.append(self._command(piped=bool(commands)))
            if not self._is("|"):
                break
            self._next += 1
        token = self._peek()
        if closes:
            if not self._is(closes):
                self._fail(f"the parenthesis is not closed; end it with {closes}", token)
            self._next += 1
        elif token is not None:
            self._fail(f"unexpected {token.text!r}", token)
        for name in declares if not assigns else ():
            self._scopes.declare(name)
        return Pipeline(tuple(commands), declares, assigns)

    def _declaration(self, *, ranges: bool) -> tuple[tuple[str, ...], bool]:
        names = []
        position = 0
        while (token := self._peek(position)) is not None and token.kind == "variable":
            names.append(token.text[1:])
            if self._is(",", position + 1) and ranges and len(names) == 1:
                position += 2
            elif self._is(":=", position + 1) or self._is("=", position + 1):
                assigns = self._is("=", position + 1)
                unknown = next((name for name in names if assigns and not self._scopes.knows(name)), None)
                if unknown is not None:
                    self._fail(f"undefined variable ${unknown}; declare it with :=", token)
                self._next += position + 2
                return tuple(names), assigns
            else:
                break
        return (), False

    def _command(self, *, piped: bool) -> tuple[Operand, ...]:
        start = self._peek()
        operands: list[Operand] = []
        while (token := self._peek()) is not None and not (token.kind == "symbol" and token.text != "("):
            if operands and token.glued and token.text != "(":
                self._fail(f"a space is missing before {token.text!r}", token)
            operands.append(self._operand())
        if not operands:
            self._fail("a value is missing", start or self._peek())
        self._check(operands, piped, start)
        return tuple(operands)

    def _check(self, operands: list[Operand], piped: bool, start: Token | None) -> None:
        head = operands[0]
        if not isinstance(head, Function):
            if len(operands) > 1 or piped:
                self._fail(f"{start.text if start else ''!r} is no function, and takes no arguments", start)
            if isinstance(head, Constant) and head.value is None:
                self._fail("nil is not a command", start)
            return
        for inner in operands[1:]:
            if isinstance(inner, Function) and functions.arity(inner.name) != (0, 0):
                self._fail(f"{inner.name} needs arguments: write ({inner.name} ...)", start)
        limits = functions.arity(head.name)
        assert limits is not None, "an unknown function was refused"
        least, most = limits
        count = len(operands) - 1 + piped
        if count < least or (most is not None and count > most):
            wants = str(least) if least == most else f"at least {least}"
            self._fail(f"wrong number of arguments for {head.name}: wants {wants}, got {count}", start)
        if head.name == "printf" and len(operands) > 1 and isinstance(operands[1], Constant):
            if not isinstance(operands[1].value, str):
                self._fail("printf wants a text as its first argument", start)
            try:
                printf.check(operands[1].value)
            except TemplateError as error:
                self._fail(str(error), start)
        if head.name in _MATCHING and len(operands) > 1 and isinstance(operands[1], Constant):
            self._check_pattern(operands[1].value, start)
        if head.name in _COMPARISONS:
            self._check_comparison(operands[1:], start)

    def _check_pattern(self, given: Value, start: Token | None) -> None:
        if isinstance(given, str):
            try:
                functions.pattern(given)
            except RenderError as error:
                self._fail(str(error), start)

    def _check_comparison(self, operands: list[Operand], start: Token | None) -> None:
        """Go does not compare its float with a whole number: `gt $value 80` can only fail."""
        if not any(self._is_value(each) for each in operands):
            return
        for each in operands:
            if isinstance(each, Constant) and not isinstance(each.value, float):
                remedy = f"; write {each.value}.0" if isinstance(each.value, int) else ""
                self._fail(f"the value is a float and cannot be compared with {each.value!r}{remedy}", start)

    def _is_value(self, operand: Operand) -> bool:
        if isinstance(operand, Variable):
            return operand == Variable("value") and self._scopes.is_given("value")
        return operand == Dot(("Value",)) and not self._scopes.moved

    def _operand(self) -> Operand:
        token = self._peek()
        assert token is not None, "the caller has looked"
        self._next += 1
        if token.kind == "symbol":
            self._scopes.enter(token.at)
            pipeline = self.pipeline(ranges=False, closes=")")
            self._scopes.leave()
            return Group(pipeline, self._fields())
        if token.kind == "variable":
            return self._variable(token)
        if token.kind in ("dot", "field"):
            return self._dot(token)
        if token.kind == "word":
            return self._word(token)
        if token.kind == "char":
            self._fail(f"{token.text} is a character; write texts in double quotes", token)
        return Constant(self._constant(token))

    def _fields(self) -> tuple[str, ...]:
        names = []
        while (token := self._peek()) is not None and token.kind == "field" and token.glued:
            names.append(token.text[1:])
            self._next += 1
        return tuple(names)

    def _variable(self, token: Token) -> Operand:
        name = token.text[1:]
        if not self._scopes.knows(name):
            self._fail(
                f"undefined variable {token.text}; there are $labels, $value, $externalLabels, $externalURL", token
            )
        names = self._fields()
        if name and self._scopes.is_given(name):
            self._check_fields(token.text, name, names, token)
        elif not name:
            self._check_root(names, token)
        return Variable(name, names)

    def _dot(self, token: Token) -> Operand:
        names = ((token.text[1:],) if token.kind == "field" else ()) + self._fields()
        if not self._scopes.moved:
            self._check_root(names, token)
        return Dot(names)

    def _check_root(self, names: tuple[str, ...], token: Token) -> None:
        if not names:
            return
        if names[0] not in FIELDS:
            valid = ", ".join(f".{name}" for name in FIELDS)
            self._fail(f".{names[0]}: the alert has no such field; there are {valid}", token)
        self._check_fields(f".{names[0]}", names[0], names[1:], token)

    def _check_fields(self, shown: str, name: str, names: tuple[str, ...], token: Token) -> None:
        if (name in _SCALARS and names) or (name in _MAPS and len(names) > 1):
            self._fail(f"{shown}.{'.'.join(names)}: .{names[-1]} cannot be taken of a text or a number", token)

    def _word(self, token: Token) -> Operand:
        name = token.text
        if name in ("true", "false", "nil"):
            return Constant({"true": True, "false": False, "nil": None}[name])
        if name in functions.REFUSED:
            self._fail(f"the function {name} is not supported; {functions.REFUSED[name]}", token)
        if functions.arity(name) is None:
            known = [*functions.FUNCTIONS, *functions.CONTEXTUAL]
            near = difflib.get_close_matches(name, known, 1, 0.5)
            self._fail(f"function {name!r} not defined; {f'did you mean {near[0]}?' if near else _all(known)}", token)
        return Function(name)

    def _constant(self, token: Token) -> str | int | float:
        text = token.text
        if token.kind == "text":
            try:
                scan_quoted(text, 0, replacements=True)
                value = unquoted(text)
                if not is_text(value):
                    raise ValueError("the text is not UTF-8; write whole characters")
                return value
            except ValueError as error:
                self._fail(f"{text}: {error}; a raw text in backquotes has no escapes", token)
        is_float = "x" not in text.lower() and any(mark in text for mark in ".eE")
        try:
            number = float(text) if is_float else int(text, 0)
        except ValueError:
            self._fail(f"{text!r} is no number", token)
        if isinstance(number, float):
            if math.isinf(number):
                self._fail(f"{text} overflows the 64 bits of a float", token)
            return number
        if not -(2**63) <= number < 2**63:
            self._fail(f"{text} overflows the 64 bits of a whole number; write a float", token)
        return number


def _all(names: Sequence[str]) -> str:
    return f"there are {', '.join(sorted(names))}"
