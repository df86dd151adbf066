"""Parses a template, and refuses all that could only fail later: unknown functions, variables and fields, wrong
numbers of arguments, and constructs of Go's templates that rules have no use for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from alerts.template.action import ActionReader, Scopes
from alerts.template.errors import TemplateError
from alerts.template.lexer import Piece, Token, cut, place
from alerts.template.nodes import Action, Arm, Branch, Node, Text

_REFUSED = ("block", "break", "continue", "define", "template")
_BRANCHES = ("if", "with", "range")


def parse(source: str) -> tuple[Node, ...]:
    """The nodes of a template. Raises TemplateError."""
    return _Parser(source).template()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._pieces = cut(source)
        self._next = 0
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
            if word in _BRANCHES:
                nodes.append(self._branch(word, piece, piece.tokens[1:]))
            else:
                nodes.append(Action(ActionReader(self._scopes, piece.at, piece.tokens).pipeline(ranges=False)))
        return tuple(nodes), None

    def _branch(self, kind: str, opening: Piece, tokens: Sequence[Token]) -> Branch:
        scopes, at = self._scopes, opening.at
        scopes.enter(at)
        arms: list[Arm] = []
        while True:
            scopes.open()  # what the pipeline declares is known in the arms that follow, too
            pipeline = ActionReader(scopes, at, tokens).pipeline(ranges=kind == "range")
            scopes.moved += kind != "if"
            body, end = self._block()
            scopes.moved -= kind != "if"
            arms.append(Arm(pipeline, body))
            if end is None or not self._is_else_if(kind, end):
                break
            at, tokens = end.at, end.tokens[2:]
        otherwise: tuple[Node, ...] = ()
        if end is not None and end.tokens[0].text == "else":
            otherwise, end = self._block()
        for _ in arms:
            scopes.close()
        scopes.leave()
        if end is None:
            self._fail(opening.at, f"{{{{ {kind} }}}} is not closed; end it with {{{{ end }}}}")
        if end.tokens[0].text != "end" or len(end.tokens) > 1:
            self._fail(end.at, f"{{{{ {kind} }}}} wants {{{{ end }}}} here")
        return Branch(kind, tuple(arms), otherwise)

    def _block(self) -> tuple[tuple[Node, ...], Piece | None]:
        """Nodes in a scope of their own, up to an `else` or `end`, which is given too."""
        self._scopes.open()
        found = self._nodes()
        self._scopes.close()
        return found

    def _is_else_if(self, kind: str, piece: Piece) -> bool:
        if piece.tokens[0].text != "else" or len(piece.tokens) == 1:
            return False
        if kind != "if" or piece.tokens[1].text != "if":
            self._fail(piece.at, "only {{ else }} and, after if, {{ else if }} can be here")
        return True
