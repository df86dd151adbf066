"""What a template may read by `query`, determined when it is loaded: the windows keep what rules are known to read.

The text of a query must be in the template: a string, or a `printf` of one. A verb of it becomes a placeholder:
`printf "a{instance=%q}" $labels.instance | query` reads `a{instance="<placeholder>"}`. A placeholder is a word to
PromQL, or a number, so that such a query can be compiled like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from alerts.promql import PromqlError
from alerts.promql.syntax import parse
from alerts.template.lexer import place
from alerts.template.nodes import (
    ActionNode,
    Body,
    BranchNode,
    ChainNode,
    CommandNode,
    IdentifierNode,
    Operand,
    PipeNode,
    StringNode,
    TemplateNode,
)
from alerts.template.parser import Parsed
from alerts.template.template_errors import UnknownQueryError

WORD = "unforeseen_text"
NUMBER = "900719925474099"
"""Placeholders for a text and a number that are known only at an evaluation."""
_VERB = re.compile(r"%[-+# 0]*(?:\[[0-9]+\])?(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]*))?(?:\[[0-9]+\])?(.?)", re.DOTALL)


def is_unforeseen(text: str) -> bool:
    """Return True if a text has a placeholder in it."""
    return WORD in text or NUMBER in text


def shown(question: str) -> str:
    """Return a query as shown in messages."""
    return question.replace(WORD, "...").replace(NUMBER, "...")


def questions(source: str, parsed: Parsed) -> tuple[str, ...]:
    """Return the queries of a template, each once, with placeholders. Raises UnknownQueryError."""
    bodies = (parsed.body, *parsed.defined.values())
    asked = (_question(source, at, text) for body in bodies for at, text in _of_body(body))
    return tuple(dict.fromkeys(asked))


def _question(source: str, at: int, text: str | None) -> str:
    if text is None:
        remedy = "give query a string, or a printf of one"
        raise UnknownQueryError(f"{place(source, at)}: the text of the query is not in the template; {remedy}")
    return text


def _of_body(body: Body) -> Iterator[tuple[int, str | None]]:
    """Yield the place and the text of each query; None is a text that is not in the template."""
    for node in body:
        if isinstance(node, ActionNode):
            yield from _of_commands(node.pipeline.commands)
        elif isinstance(node, BranchNode):
            for arm in node.arms:
                yield from _of_commands(arm.pipeline.commands)
                yield from _of_body(arm.body)
            yield from _of_body(node.otherwise)
        elif isinstance(node, TemplateNode) and node.pipeline is not None:
            yield from _of_commands(node.pipeline.commands)


def _of_commands(commands: Sequence[CommandNode]) -> Iterator[tuple[int, str | None]]:
    for position, command in enumerate(commands):
        head, given = command.operands[0], command.operands[1:]
        if isinstance(head, IdentifierNode) and head.name == "query":
            if given:
                yield command.at, _text(given[0])
            elif position:
                yield command.at, _piped(commands[:position])
        for operand in command.operands:
            inner = operand.of if isinstance(operand, ChainNode) else operand
            if isinstance(inner, PipeNode):
                yield from _of_commands(inner.commands)


def _text(operand: Operand) -> str | None:
    if isinstance(operand, StringNode):
        return operand.text
    return _piped(operand.commands) if isinstance(operand, PipeNode) else None


def _piped(commands: Sequence[CommandNode]) -> str | None:
    """Return the text that a pipeline makes, if it is a string or the last command is a `printf` of one."""
    operands = commands[-1].operands
    if len(operands) == len(commands) == 1:
        return _text(operands[0])
    if isinstance(operands[0], IdentifierNode) and operands[0].name == "printf" and len(operands) > 1:
        form = operands[1]
        return _formatted(form.text) if isinstance(form, StringNode) else None
    return None


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
