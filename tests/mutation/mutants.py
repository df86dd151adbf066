"""What is broken, and how: mutmut's operators over functions, and two that it lacks.

mutmut itself is no help for this suite. Version 3 puts all mutants of a function beside it, behind a trampoline, and
knows of a function which tests call it in pytest's own process: not of a line, not in a child process, and it draws no
sample. It leaves out what its trampolines cannot wrap, such as each property. cosmic-ray runs one command for all
mutants, with no idea of which test runs what: five minutes for each, and most of what it draws are arithmetic operators
in each other's place. So mutmut's operators are taken as a library, and a mutant is a file of the copy with one place
changed.

Added are a call that is not made (`self._wake.set()`) and a condition that is turned round (`if not told` is in
mutmut's, `if told` is not): a loop consists of these two.

What no test can or should see is not drawn: annotations, docstrings, decorators, `assert` (it speaks to the type
checker), what a log line says, the wording of exceptions, prose (a text with a blank in it), `__repr__`, the
help of an option, the name of an encoding, the type that `cast` tells the type checker, the `strict` of a zip; nor
`False` made `None` where it is assigned, for it is made `True`, too. What is left and still cannot be told apart is in
equivalent.txt, each with its reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

LOG_METHODS = ("debug", "info", "warning", "error", "exception", "critical", "log")
NOT_MUTATED_FUNCTIONS = ("__repr__",)
NOT_MUTATED_ARGUMENTS = ("encoding", "help", "metavar", "description", "strict")
PLAIN_DEFAULTS = (cst.Name, cst.BaseNumber, cst.BaseString)
"""Other defaults of parameters are worked out when the function is defined: breaking them breaks the import."""

_HINTED = m.OneOf(
    m.Call(
        func=m.Attribute(attr=m.Name("encode") | m.Name("decode")),
        args=[m.Arg(value=m.SimpleString(), keyword=None), m.ZeroOrMore()],
    ),
    m.Call(func=m.Name("cast")),
)
"""Calls whose first argument only names an encoding, in any letters, or a type."""


@dataclass(frozen=True)
class Mutant:
    """One change of one place. `lines` are those of the statement as far as the place, `function` those around it."""

    path: str
    line: int
    lines: tuple[int, ...]
    function: tuple[int, ...]
    _module: cst.Module = field(repr=False, compare=False)
    _old: cst.CSTNode = field(repr=False, compare=False)
    _new: cst.CSTNode = field(repr=False, compare=False)

    def code(self) -> str:
        """The file with the change in it."""
        changed = self._module.deep_replace(self._old, self._new)
        assert isinstance(changed, cst.Module)
        return changed.code

    def diff(self) -> tuple[str, ...]:
        """The lines that go, behind a `-`, and those that come, behind a `+`, without their indentation."""
        rows = difflib.unified_diff(self._module.code.splitlines(), self.code().splitlines(), n=0, lineterm="")
        return tuple(f"{row[0]} {row[1:].strip()}" for row in list(rows)[2:] if row[0] in "-+")


def mutants_of(root: Path, name: str) -> list[Mutant]:
    """All mutants of one file, in their order."""
    code = (root / name).read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(code))
    finder = _Finder(name, wrapper.module)
    wrapper.visit(finder)
    return finder.found


def no_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    """Leave a call out that stands alone: its effect is all that it is for."""
    if m.matches(node, m.Expr(m.Call() | m.Await())):
        yield node.with_changes(value=cst.Ellipsis())


def other_branch(node: cst.If | cst.While | cst.IfExp) -> Iterable[cst.CSTNode]:
    """Turn a condition round that no operator of mutmut's turns: a bare name, attribute or call."""
    if isinstance(node.test, cst.Name | cst.Attribute | cst.Call):
        yield node.with_changes(
            test=cst.UnaryOperation(cst.Not(), node.test, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        )


Operator = Callable[[Any], Iterable[cst.CSTNode]]
OPERATORS: list[tuple[Any, Operator]] = [*mutation_operators, (cst.Expr, no_call), (cst.If, other_branch),
                                         (cst.While, other_branch), (cst.IfExp, other_branch)]  # fmt: skip


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: str, module: cst.Module) -> None:
        super().__init__()
        self.found: list[Mutant] = []
        self._path = path
        self._module = module
        self._functions: list[cst.FunctionDef] = []
        self._statements: list[int] = []
        self._wording = 0
        self._hints: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._is_skipped(node):
            return False
        if isinstance(node, cst.Call) and m.matches(node, _HINTED):
            self._hints.add(node.args[0])
        if isinstance(node, cst.FunctionDef):
            self._functions.append(node)
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.append(self._range(node).start.line)
        self._wording += isinstance(node, cst.Raise)
        if self._functions and self._functions[-1] is not node:
            self._break(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._functions and self._functions[-1] is original_node:
            self._functions.pop()
        if self._is_skipped(original_node):
            return
        self._wording -= isinstance(original_node, cst.Raise)
        if isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.pop()

    def _is_skipped(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Assert) or _is_log(node):
            return True
        if isinstance(node, cst.Param) and node.default is not None:
            return not isinstance(node.default, PLAIN_DEFAULTS)
        if isinstance(node, cst.FunctionDef):
            return node.name.value in NOT_MUTATED_FUNCTIONS
        return isinstance(node, cst.Arg) and self._is_free(node)

    def _break(self, node: cst.CSTNode) -> None:
        for kind, operator in OPERATORS:
            if isinstance(node, kind) and not (self._wording and isinstance(node, cst.BaseString)):
                for new in operator(node):
                    if not self._is_idle(node, new):
                        self.found.append(self._mutant(node, new))

    def _is_idle(self, old: cst.CSTNode, new: cst.CSTNode) -> bool:
        """Whether the change is one of a text that people read, or none at all."""
        if isinstance(old, cst.SimpleString):
            return _is_prose(old)
        if isinstance(old, cst.Assign | cst.AnnAssign):
            return m.matches(old, m.OneOf(m.Assign(value=m.Name("False")), m.AnnAssign(value=m.Name("False"))))
        if isinstance(old, cst.Call) and isinstance(new, cst.Call):
            if self._wording and new.func is old.func:
                gone = [arg for arg in old.args if not any(arg is kept for kept in new.args)]
                return any(isinstance(arg.value, cst.BaseString) for arg in gone)
            return any(self._is_free(arg) for arg in old.args if not any(arg is kept for kept in new.args))
        return False

    def _is_free(self, arg: cst.Arg) -> bool:
        if arg.keyword is not None:
            return arg.keyword.value in NOT_MUTATED_ARGUMENTS
        return arg in self._hints

    def _mutant(self, old: cst.CSTNode, new: cst.CSTNode) -> Mutant:
        statement = self._statements[-1]
        line = max(self._range(old).start.line, statement)
        around = self._range(self._functions[-1])
        function = tuple(range(around.start.line + 1, around.end.line + 1))
        lines = tuple(range(statement, line + 1))
        return Mutant(self._path, line, lines, function, self._module, old, new)

    def _range(self, node: cst.CSTNode) -> Any:
        return self.get_metadata(PositionProvider, node)


def _is_log(node: cst.CSTNode) -> bool:
    """A call that logs, or what is put together for one: `facts` are what a line says behind its message."""
    if m.matches(node, m.Assign(targets=[m.AssignTarget(m.Name("facts"))])):
        return True
    logger = m.Name("log") | m.Name("logger") | m.Attribute(attr=m.Name("_log"))
    method = m.OneOf(*(m.Name(each) for each in LOG_METHODS))
    return m.matches(node, m.Call(func=m.Attribute(value=logger, attr=method)))


def _is_prose(node: cst.SimpleString) -> bool:
    return " " in str(node.raw_value).strip()


def reviewed(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What equivalent.txt lists: files of code and changes in them. Raises ValueError for one without a reason."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        rows = [row for row in block.splitlines() if not row.startswith("#")]
        if not rows:
            continue
        if not any(row.startswith("= ") for row in rows):
            raise ValueError(f"{path}: no reason (a line that begins with '= ') for {rows[0]}")
        yield rows[0], tuple(row for row in rows[1:] if row[0] in "-+")
