"""Parses a template, and refuses all that could only fail later: unknown functions, variables and fields, wrong
numbers of arguments, and constructs of Go's templates that rules have no use for."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn

from alerts.template.action import MOST_LEVELS, ActionReader, Scopes
from alerts.template.errors import TemplateError
from alerts.template.lexer import Piece, Token, cut, place
from alerts.template.nodes import Action, Branch, Node, Text

_REFUSED = ("block", "break", "continue", "define", "template")
_BRANCHES = ("if", "with", "range")


def parse(source: str) -> tuple[Node, ...]:
    """The nodes of a template. Raises TemplateError."""
    return _Parser(source).template()


_USUAL = 200
"""Characters of an action that others may have, too."""


@lru_cache(512)
def _alone(text: str) -> Action:
    """An action that depends on nothing around it: most templates are made of the same few. Raises TemplateError."""
    (piece,) = cut(text)
    return Action(ActionReader(Scopes(text), piece.at, piece.tokens).pipeline(ranges=False))


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._pieces = cut(source)
        self._next = 0
        self._depth = 0
        self._scopes = Scopes(source)

    def _fail(self, at: int, text: str) -> NoReturn:
        raise TemplateError(f"{place(self._source, at)}: {text}")

    def template(self) -> tuple[Node, ...]:
        nodes, end = self._nodes()
        if end is not None:
            self._fail(end.at, f"{{{{ {end.tokens[0].text} }}}} ends nothing; remove it")
        return nodes

    def _nodes(self) -> tuple[tuple[Node, ...], Piece | None]:
        """Nodes up to an `else` or `end`, which is given too, or up to the end of the template."""
        nodes: list[Node] = []
        while self._next < len(self._pieces):
            piece = self._pieces[self._next]
            self._next += 1
            if not piece.is_action:
                nodes.append(Text(piece.text))
                continue
            if not piece.tokens:
                self._fail(piece.at, "{{ }} is empty; put a value in it")
            word = piece.tokens[0].text if piece.tokens[0].kind == "word" else ""
            if word in ("else", "end"):
                return tuple(nodes), piece
            if word in _REFUSED:
                self._fail(piece.at, f"{{{{ {word} }}}} is not supported in rules; use if, with, range and variables")
            nodes.append(self._branch(word, piece, piece.tokens[1:]) if word in _BRANCHES else self._action(piece))
        return tuple(nodes), None

    def _action(self, piece: Piece) -> Action:
        if self._scopes.is_fresh and len(piece.text) <= _USUAL:
            with contextlib.suppress(TemplateError):  # told anew, with its place in this template
                known = _alone(piece.text)
                if not known.pipeline.declares:
                    return known
        return Action(ActionReader(self._scopes, piece.at, piece.tokens).pipeline(ranges=False))

    def _branch(self, kind: str, opening: Piece, tokens: Sequence[Token]) -> Branch:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            self._fail(opening.at, f"is nested more than {MOST_LEVELS} levels deep")
        self._scopes.open()
        pipeline = ActionReader(self._scopes, opening.at, tokens).pipeline(ranges=kind == "range")
        moves = kind != "if"
        self._scopes.moved += moves
        self._scopes.open()
        body, end = self._nodes()
        self._scopes.close()
        self._scopes.moved -= moves
        otherwise: tuple[Node, ...] = ()
        if end is not None and end.tokens[0].text == "else":
            self._scopes.open()
            otherwise, end = self._otherwise(kind, end)
            self._scopes.close()
        self._scopes.close()
        if end is None:
            self._fail(opening.at, f"{{{{ {kind} }}}} is not closed; end it with {{{{ end }}}}")
        if end.tokens[0].text != "end" or len(end.tokens) > 1:
            self._fail(end.at, f"{{{{ {kind} }}}} wants {{{{ end }}}} here")
        self._depth -= 1
        return Branch(kind, pipeline, body, otherwise)

    def _otherwise(self, kind: str, piece: Piece) -> tuple[tuple[Node, ...], Piece | None]:
        if len(piece.tokens) == 1:
            return self._nodes()
        if kind != "if" or piece.tokens[1].text != "if":
            self._fail(piece.at, "only {{ else }} and, after if, {{ else if }} can be here")
        branch = self._branch("if", piece, piece.tokens[2:])
        return (branch,), self._pieces[self._next - 1]  # `else if` shares the end of the outer `if`
