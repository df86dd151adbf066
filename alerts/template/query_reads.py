"""Determine what a template may read by `query` when it is loaded, and the mistakes that Prometheus notices later.

The windows keep what rules are known to read. The text of a query must be in the template: a string, or a `printf` of
one. A verb of it becomes a placeholder: `printf "a{instance=%q}" $labels.instance | query` reads
`a{instance="<placeholder>"}`. A placeholder is a word to PromQL, or a number, so that such a query can be compiled
like any other. A label value that only the alert knows stands for any value, and part of a metric's name for any text.
A query whose metric or range is unknown is refused.

The mistakes are those that Prometheus notices only when an alert fires.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from alerts.promql import Matcher, PromqlError, Selector, compile_query
from alerts.promql.labels import METRIC_NAME
from alerts.promql.syntax import parse
from alerts.template.lexer import place
from alerts.template.nodes import (
    ActionNode,
    Body,
    BranchNode,
    ChainNode,
    CommandNode,
    ConstantNode,
    FieldNode,
    IdentifierNode,
    NilNode,
    Operand,
    PipeNode,
    TemplateNode,
    VariableNode,
)
from alerts.template.parser import Parsed
from alerts.template.template_functions import FUNCTIONS, pattern
from alerts.template.values import FIELDS, RenderError, UnknownQueryError

WORD = "unforeseen_text"
NUMBER = "900719925474099"
"""Placeholders for a text and a number that are known only at an evaluation."""
_VERB = re.compile(r"%[-+ 0]*[0-9]*(?:\.[0-9]*)?(.?)", re.DOTALL)


def is_unforeseen(text: str) -> bool:
    """Return True if a text has a placeholder in it."""
    return WORD in text or NUMBER in text


def format_query(query: str) -> str:
    """Return a query as shown in messages."""
    return query.replace(WORD, "...").replace(NUMBER, "...")


def _text(operand: Operand) -> str | None:
    return _piped(operand.commands) if isinstance(operand, PipeNode) else _string(operand)


def _piped(commands: Sequence[CommandNode]) -> str | None:
    """Return the text that a pipeline makes, if it is a string or the last command is a `printf` of one."""
    operands = commands[-1].operands
    if len(operands) == len(commands) == 1:
        return _text(operands[0])
    if isinstance(operands[0], IdentifierNode) and operands[0].name == "printf" and len(operands) > 1:
        form = _string(operands[1])
        return None if form is None else _formatted(form)
    return None


def _string(operand: Operand) -> str | None:
    return operand.value if isinstance(operand, ConstantNode) and isinstance(operand.value, str) else None


def _formatted(form: str) -> str:
    """Return the text with placeholders for verbs; %v prints a number if the query is valid with one."""
    text = _VERB.sub(lambda match: _placeholder(match[1], NUMBER), form)
    try:
        parse(text)
    except PromqlError:
        return _VERB.sub(lambda match: _placeholder(match[1], WORD), form)
    return text


def _placeholder(verb: str, of_any: str) -> str:
    of_verb = {"%": "%", "s": WORD, "q": f'"{WORD}"', "v": of_any}
    return of_verb.get(verb, NUMBER)


_COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
_MATCHING = ("match", "reReplaceAll")
_MOST = 20
"""Most mistakes of one template that are reported."""


def read_template(source: str, parsed: Parsed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the queries of a template, each once, with placeholders, and its mistakes, each with its place.

    Raises UnknownQueryError.
    """
    reader = _TemplateReader(parsed)
    mistakes = tuple(f"{place(source, at)}: {problem}" for at, problem in islice(list(reader.problems()), _MOST))
    queries: dict[str, None] = {}
    for at, text in reader.queries:
        if text is None:
            remedy = "give query a string, or a printf of one"
            raise UnknownQueryError(f"{place(source, at)}: the text of the query is not in the template; {remedy}")
        queries[text] = None
    return tuple(queries), mistakes


class _TemplateReader:
    """Reads a template once. `_is_alert` says whether `.` is still the alert."""

    def __init__(self, parsed: Parsed) -> None:
        self.queries: list[tuple[int, str | None]] = []
        """The place and the text of each query; None is a text that is not in the template."""
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
            head, arguments = command.operands[0], command.operands[1:]
            if isinstance(head, IdentifierNode) and head.name == "query" and (arguments or position):
                text = _text(arguments[0]) if arguments else _piped(pipeline.commands[:position])
                self.queries.append((command.at, text))
            yield from self._command(command, position > 0)

    def _command(self, command: CommandNode, piped: bool) -> Iterator[tuple[int, str]]:
        head, arguments = command.operands[0], command.operands[1:]
        for operand in command.operands:
            yield from self._operand(operand, is_head=operand is head)
        if isinstance(head, IdentifierNode):
            yield from self._call(head.name, arguments, piped, command.at)
        elif isinstance(head, NilNode):
            yield head.at, "nil is not a command"
        elif (arguments or piped) and not (isinstance(head, (FieldNode, ChainNode, VariableNode)) and head.fields):
            yield command.at, "only a function takes arguments"

    def _operand(self, operand: Operand, *, is_head: bool) -> Iterator[tuple[int, str]]:
        if isinstance(operand, PipeNode):
            yield from self._pipeline(operand)
        elif isinstance(operand, ChainNode):
            yield from self._operand(operand.operand, is_head=False)
        elif isinstance(operand, IdentifierNode):
            if not is_head:
                yield from self._call(operand.name, (), False, operand.at)
        elif isinstance(operand, FieldNode) and operand.fields and self._is_alert:
            yield from self._fields(operand.fields, operand.at)
        elif isinstance(operand, VariableNode):
            if operand.name == "$" and operand.fields and self._is_alert:
                yield from self._fields(operand.fields, operand.at)
            fields = {"$labels": "Labels", "$externalLabels": "ExternalLabels", "$value": "Value"}
            name = fields.get(operand.name)
            if name is not None and operand.name not in self._declared:
                yield from self._fields((name, *operand.fields), operand.at)
        elif isinstance(operand, ConstantNode) and operand.value is None:
            yield operand.at, f"{operand.text} overflows a 64-bit integer; write a float"

    def _fields(self, names: tuple[str, ...], at: int) -> Iterator[tuple[int, str]]:
        if names[0] not in FIELDS:
            yield at, f".{names[0]}: the alert has no such field; it has {', '.join(f'.{name}' for name in FIELDS)}"
        elif len(names) > (2 if names[0].endswith("Labels") else 1):
            yield at, f"a string or number has no field .{names[-1]}"

    def _call(self, name: str, arguments: tuple[Operand, ...], piped: bool, at: int) -> Iterator[tuple[int, str]]:
        function = FUNCTIONS[name]
        least, count = len(function.takes), len(arguments) + piped
        if count < least or (count > least and not function.rest):
            wants = f"at least {least}" if function.rest else f"{least}"
            yield at, f"wrong number of arguments for {name}: want {wants}, got {count}"
            return
        if function.since:
            yield at, f"{name} needs Prometheus {function.since}; an older server rejects the file"
        regex = _string(arguments[0]) if name in _MATCHING and arguments else None
        if regex is not None:
            try:
                pattern(regex)
            except RenderError as error:
                yield at, str(error)
        if name in _COMPARISONS and any(map(self._is_value, arguments)):
            yield from self._comparison(arguments)

    def _comparison(self, arguments: tuple[Operand, ...]) -> Iterator[tuple[int, str]]:
        """Go does not compare its float with a whole number: `gt $value 80` can only fail."""
        for argument in arguments:
            if isinstance(argument, ConstantNode) and type(argument.value) in (int, str):
                remedy = f"; write {argument.text}.0" if isinstance(argument.value, int) else ""
                yield argument.at, f"the value is a float and cannot be compared with {argument.text}{remedy}"

    def _is_value(self, operand: Operand) -> bool:
        if isinstance(operand, VariableNode):
            return operand.name == "$value" and not operand.fields and operand.name not in self._declared
        return isinstance(operand, FieldNode) and operand.fields == ("Value",) and self._is_alert


class Reads(NamedTuple):
    """What a template's query reads, and what is wrong with it, if anything; `is_unknown` if it is not known."""

    selectors: tuple[Selector, ...]
    problem: str = ""
    is_unknown: bool = False


def reads_of(text: str) -> Reads:
    """Return what a query reads, which may contain placeholders. Any text has an answer, even if it is not a query."""
    try:
        query = compile_query(text)
    except PromqlError as error:
        if not is_unforeseen(text):
            return Reads((), f"query: {error}")
        return _unknown(text, "what it reads is known only when the alert fires")
    read = query.selectors
    selectors = tuple(map(_opened, read))
    if any(_is_open(s) and s not in read for s in selectors):
        return _unknown(text, "the metric name is known only when the alert fires")
    return Reads(
        selectors, f"query: will fail at every evaluation: {query.inevitable_error}" if query.inevitable_error else ""
    )


def _unknown(query: str, reason: str) -> Reads:
    return Reads(
        (), f"query {format_query(query)!r}: {reason}; write it out, or read the series in a rule", is_unknown=True
    )


def _is_open(selector: Selector) -> bool:
    return not any(m.name == METRIC_NAME and m.operator in ("=", "=~") for m in selector.matchers)


def _opened(selector: Selector) -> Selector:
    """Return a selector that accepts any value in place of a placeholder."""
    matchers = [m for m in map(_any_value, selector.matchers) if m is not None]
    return selector._replace(matchers=tuple(matchers))


def _any_value(matcher: Matcher) -> Matcher | None:
    if not (is_unforeseen(matcher.value) or is_unforeseen(matcher.name)):
        return matcher
    if matcher.name != METRIC_NAME or matcher.operator != "=":
        return None
    pieces = re.split(f"{WORD}|{NUMBER}", matcher.value)
    return Matcher(METRIC_NAME, "=~", ".*".join(map(re.escape, pieces))) if any(pieces) else None
