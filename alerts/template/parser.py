"""Parse templates: those that Go's text/template accepts, but for verbs of printf that no rule file uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from agent.lib.wording import meant
from alerts.go_literals import quoted, unquoted
from alerts.template.lexer import SPACES, Token, place, tokens
from alerts.template.nodes import (
    ActionNode,
    Arm,
    Body,
    BranchNode,
    BreakNode,
    ChainNode,
    CommandNode,
    ConstantNode,
    FieldNode,
    IdentifierNode,
    NilNode,
    Node,
    Operand,
    PipeNode,
    TemplateNode,
    TextNode,
    VariableNode,
)
from alerts.template.number_format import constant
from alerts.template.printf import format_problem
from alerts.template.template_functions import FUNCTIONS
from alerts.template.values import DEEPEST_NESTING, TemplateError

PREDECLARED_VARIABLES = ("$labels", "$externalLabels", "$externalURL", "$value")
"""Variables that Prometheus declares before the text of each template."""

_OPERANDS = frozenset(("truth", "char", "dot", "field", "word", "number", "nil", "text", "variable", "("))


class Parsed(NamedTuple):
    """The body of a template, and the bodies of the templates that it defines, by name."""

    body: Body
    defined: dict[str, Body]


def parse(source: str, name: str = "") -> Parsed:
    """Parse the text of the template `name`. Raises TemplateError."""
    return _Parser(source, name).template()


class _Parser:
    def __init__(self, source: str, name: str) -> None:
        self._source = source
        self._name = name
        self._tokens = tokens(source)
        self._lookahead: list[Token] = []
        self._variables = ["$", *PREDECLARED_VARIABLES]
        self._ranges = 0
        """The number of `range` around the current node: `break` needs one."""
        self._depth = 0
        self._defined: dict[str, Body] = {}

    def template(self) -> Parsed:
        nodes: list[Node] = []
        while self._peek().kind != "eof":
            if self._peek().kind == "open" and self._peek(1).kind == "define":
                self._next()
                self._definition(self._next())
                continue
            node = self._node()
            if isinstance(node, Token):
                raise self._error(node, f"{{{{ {node.kind} }}}} has nothing to end; remove it")
            nodes.append(node)
        if not _is_empty(self._defined.pop(self._name, ())):
            raise TemplateError(f"defines {self._name!r}, which is the template's own name")
        return Parsed(tuple(nodes), self._defined)

    # tokens

    def _error(self, at: Token | int, text: str, prometheus_message: str = "") -> TemplateError:
        offset = at if isinstance(at, int) else at.at
        line = self._source.count("\n", 0, offset) + 1
        return TemplateError(
            f"{place(self._source, offset)}: {text}", f"{line}: {prometheus_message}" if prometheus_message else ""
        )

    def _next(self) -> Token:
        return self._lookahead.pop(0) if self._lookahead else next(self._tokens)

    def _peek(self, ahead: int = 0) -> Token:
        while len(self._lookahead) <= ahead:
            self._lookahead.append(next(self._tokens))
        return self._lookahead[ahead]

    def _expect(self, *kinds: str, where: str) -> Token:
        token = self._next()
        if token.kind not in kinds:
            raise self._error(token, f"{token.text or 'the end'!r} is unexpected {where}")
        return token

    def _enter_level(self, at: int) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise self._error(at, f"is nested more than {DEEPEST_NESTING} levels deep; use variables")

    # definitions

    def _definition(self, opening: Token) -> None:
        name = self._unquoted(self._expect("text", where="after define, which needs a name in quotes"))
        self._expect("close", where="after the defined name")
        self._define(name, self._isolated_body(opening), opening)

    def _isolated_body(self, opening: Token) -> Body:
        """Return the nodes up to the `end` of a definition, which does not see the variables around it."""
        outside = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        self._enter_level(opening.at)
        body, end = self._nodes(opening)
        self._depth -= 1
        self._variables, self._ranges = outside
        if end.kind != "end":
            raise self._error(end, f"{{{{ {opening.text} }}}} needs {{{{ end }}}} here")
        return body

    def _define(self, name: str, body: Body, opening: Token) -> None:
        if _is_empty(self._defined.get(name, ())):
            self._defined[name] = body
        elif not _is_empty(body):
            raise self._error(opening, f"{name!r} is already defined; give it another name")

    # nodes

    def _nodes(self, opening: Token) -> tuple[Body, Token]:
        """Return the nodes up to an `else` or `end`, and the token of that."""
        nodes: list[Node] = []
        while self._peek().kind != "eof":
            node = self._node()
            if isinstance(node, Token):
                return tuple(nodes), node
            nodes.append(node)
        raise self._error(opening, f"{{{{ {opening.text} }}}} is not closed; end it with {{{{ end }}}}")

    def _node(self) -> Node | Token:
        """Return the next node; for an `else` or `end`, its token."""
        token = self._next()
        if token.kind == "plain":
            return TextNode(token.at, token.text)
        if token.kind != "open":
            raise self._error(token, f"{token.text!r} is unexpected")
        word = self._peek()
        read = self._ACTIONS.get(word.kind)
        if read is not None:
            return read(self, self._next())
        if word.kind == "end":
            self._next()
            self._expect("close", where="after end")
            return word
        if word.kind == "close":
            raise self._error(token, "{{ }} is empty; put a value in it")
        return ActionNode(word.at, self._pipeline("action", "close"))

    def _else(self, word: Token) -> Token:
        if self._peek().kind not in ("if", "with"):
            self._expect("close", where="after else")
        return word

    def _break(self, word: Token) -> Node:
        self._expect("close", where=f"after {word.text}")
        if not self._ranges:
            raise self._error(word, f"{{{{ {word.text} }}}} is outside range")
        return BreakNode(word.at, word.text)

    def _branch(self, opening: Token) -> Node:
        outer_count = len(self._variables)
        self._enter_level(opening.at)
        kind, arms = opening.text, []
        while True:
            pipeline = self._pipeline(kind, "close")
            self._ranges += kind == "range"
            body, end = self._nodes(opening)
            self._ranges -= kind == "range"
            arms.append(Arm(pipeline, body))
            if end.kind != "else" or kind == "range" or self._peek().kind != kind:
                break
            self._next()
        else_body: Body = ()
        if end.kind == "else":
            if self._peek().kind in ("if", "with"):
                raise self._error(
                    end, f"only {{{{ else }}}} and, after if and with, {{{{ else {kind} }}}} may be used here"
                )
            else_body, end = self._nodes(opening)
        if end.kind != "end":
            raise self._error(end, f"{{{{ {kind} }}}} needs {{{{ end }}}} here")
        self._depth -= 1
        del self._variables[outer_count:]
        return BranchNode(arms[0].pipeline.at, kind, tuple(arms), else_body)

    def _template_call(self, opening: Token) -> Node:
        del opening  # all of _ACTIONS have it
        name = self._expect("text", where="after template, which needs a name in quotes")
        if self._peek().kind == "close":
            self._next()
            return TemplateNode(name.at, self._unquoted(name), None)
        return TemplateNode(name.at, self._unquoted(name), self._pipeline("template", "close"))

    def _block(self, opening: Token) -> Node:
        name = self._expect("text", where="after block, which needs a name in quotes")
        pipeline = self._pipeline("block", "close")
        self._define(self._unquoted(name), self._isolated_body(opening), opening)
        return TemplateNode(name.at, self._unquoted(name), pipeline)

    # The parsers of actions by the kind of their first token, which they get.
    _ACTIONS: ClassVar[dict[str, Callable[[_Parser, Token], Node | Token]]] = {
        "if": _branch, "with": _branch, "range": _branch, "else": _else, "break": _break, "continue": _break,
        "template": _template_call, "block": _block,
    }  # fmt: skip

    # pipelines

    def _pipeline(self, kind: str, closes: str) -> PipeNode:
        at = self._peek().at
        declares, assigns = self._variable_declaration(kind)
        commands: list[CommandNode] = []
        while True:
            token = self._peek()
            if token.kind == closes:
                self._next()
                break
            if token.kind not in _OPERANDS:
                raise self._unexpected_token(token)
            commands.append(self._command())
        if not commands:
            raise self._error(at, "a value is missing")
        for command in commands[1:]:
            if _is_literal(command.operands[0]):
                raise self._error(command.at, "only a function can follow |: this is a value, which takes no arguments")
        return PipeNode(at, tuple(commands), declares, assigns)

    def _unexpected_token(self, token: Token) -> TemplateError:
        if token.kind == "|":
            return self._error(token, "a value is missing before |")
        if token.kind in ("sign", "eof"):
            return self._error(token, f"{token.text!r} has no meaning inside {{{{ }}}}")
        return self._error(token, f"unexpected {token.text!r}")

    def _variable_declaration(self, kind: str) -> tuple[tuple[str, ...], bool]:
        """Return the variables that a pipeline sets, and whether it assigns (`=`) rather than declares (`:=`) them."""
        names: list[str] = []
        while self._peek().kind == "variable":
            following = self._peek(1)
            if following.kind not in (":=", "=", ","):
                break
            names.append(self._next().text)
            self._next()
            self._variables.append(names[-1])
            if following.kind != ",":
                return tuple(names), following.kind == "="
            if kind != "range" or len(names) > 1:
                raise self._error(following, "only range declares two variables at once")
            if self._peek().kind not in ("variable", "close", ")"):
                raise self._error(self._peek(), "range can only initialize variables")
        return tuple(names), False

    def _command(self) -> CommandNode:
        at = self._peek().at
        operands = [self._operand()]
        while (token := self._peek()).kind in _OPERANDS:
            if not token.is_apart:
                raise self._error(token, f"a space is missing before {token.text!r}")
            operands.append(self._operand())
        if token.kind == "|":
            self._next()
        elif token.kind not in ("close", ")"):
            raise self._unexpected_token(token)
        self._check_format(operands)
        return CommandNode(at, tuple(operands))

    def _check_format(self, operands: Sequence[Operand]) -> None:
        """Refuse a printf whose format has verbs that coldplate does not write, though Prometheus does."""
        head, text = operands[0], operands[1] if len(operands) > 1 else None
        if not (isinstance(head, IdentifierNode) and head.name == "printf" and isinstance(text, ConstantNode)):
            return
        if isinstance(text.value, str) and (problem := format_problem(text.value)):
            raise self._error(text.at, problem)

    def _operand(self) -> Operand:
        term = self._term()
        at, names = self._peek().at, []
        while self._peek().kind == "field" and not self._peek().is_apart:
            names.append(self._next().text[1:])
        if not names:
            return term
        if _is_literal(term):
            raise self._error(at, f"this value has no field .{names[0]}")
        if isinstance(term, FieldNode):
            return FieldNode(at, (*term.fields, *names))
        if isinstance(term, VariableNode):
            return VariableNode(at, term.name, (*term.fields, *names))
        return ChainNode(at, term, tuple(names))

    def _term(self) -> Operand:
        token = self._next()
        if token.kind == "(":
            self._enter_level(token.at)
            pipeline = self._pipeline("parentheses", ")")
            self._depth -= 1
            return pipeline
        if token.kind == "word":
            return self._identifier(token)
        if token.kind == "variable":
            return self._variable_term(token)
        if token.kind in ("number", "char"):
            return self._number(token)
        if token.kind == "text":
            return ConstantNode(token.at, token.text, self._unquoted(token))
        if token.kind == "truth":
            return ConstantNode(token.at, token.text, token.text == "true")
        if token.kind == "nil":
            return NilNode(token.at)
        return FieldNode(token.at, (token.text[1:],) if token.kind == "field" else ())

    def _identifier(self, token: Token) -> IdentifierNode:
        if token.text not in FUNCTIONS:
            problem = f"function {token.text!r} not defined{meant(token.text, FUNCTIONS)}"
            raise self._error(token, problem, f"function {quoted(token.text)} not defined")
        return IdentifierNode(token.at, token.text)

    def _variable_term(self, token: Token) -> VariableNode:
        if token.text not in self._variables:
            remedy = f"defined are {', '.join(self._variables[1:])}" if len(self._variables) > 1 else "pass it as ."
            raise self._error(
                token, f"undefined variable {token.text}; {remedy}", f"undefined variable {quoted(token.text)}"
            )
        return VariableNode(token.at, token.text)

    def _unquoted(self, token: Token) -> str:
        try:
            return unquoted(token.text)
        except ValueError as error:
            raise self._error(token, f"{token.text}: {error}; a raw string in backquotes has no escapes") from None

    def _number(self, token: Token) -> ConstantNode:
        try:
            return ConstantNode(token.at, token.text, constant(token.text))
        except ValueError as error:
            raise self._error(token, str(error)) from None


def _is_literal(operand: Operand) -> bool:
    """Return whether an operand is a constant, `.` or `nil`, which take neither fields nor arguments."""
    return isinstance(operand, (ConstantNode, NilNode)) or (isinstance(operand, FieldNode) and not operand.fields)


def _is_empty(body: Body) -> bool:
    return all(isinstance(node, TextNode) and not node.text.strip(SPACES) for node in body)
