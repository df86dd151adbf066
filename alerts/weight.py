"""The memory of compiled rules, so that too many, or a few enormous ones, are rejected instead of loaded.

The length of a query says little: `a+a+a` compiles to a hundred times what others do. So the result
is walked and summed, whatever produced it. What rules share (see `alerts.sharing`) counts with the first that has it.
"""

from __future__ import annotations

import builtins
import gc
import sys
from types import CodeType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType

from alerts.promql.aggregations import Grouping
from alerts.promql.matchers import Matcher
from alerts.promql.matching import Matching
from alerts.promql.operators import Constant
from alerts.promql.plan import LabelSpace, Memory
from alerts.promql.selectors import RangeSelector, Selector, Timing
from alerts.promql.syntax.bounds import LONGEST_TEXT, MOST_TOKENS
from alerts.template import Template, TemplateText

MOST = 28 * 2**20
"""Bytes for the rules of all files together: some 5,400 alerts with texts of their own, or 8,000 that share them.

A reload builds the new rules while the old ones are in force, since it may still fail: so twice this must stay below 64
MiB.
"""
AT_WORK = 1536
"""Bytes that a rule takes beside itself when it is evaluated: its outcome, what it wrote, and its report."""
MOST_OF_TOKEN = 700
"""Bytes that a word or sign of a query can take while it is compiled, including its tree."""
MOST_OF_CHARACTER = 200
"""Bytes that a character can take beside that, while a long regular expression is compiled."""
_SHARED = frozenset({type, ModuleType, CodeType, MethodDescriptorType, WrapperDescriptorType, type(None), bool})
_ATOMS = frozenset({str, int, float, bytes})  # these lead to nothing
_COMMON = frozenset(
    {Matcher, Selector, Timing, RangeSelector, Constant, Grouping, Matching, Template, TemplateText, tuple}
)
"""What several rules can have in common."""
_MOST_COMMON = 16_384
"""Most objects remembered as counted; beyond it, some count twice."""
_LOCAL = "<locals>"  # in the name of a function that was made by another one
_ROUNDED = 16  # bytes: the interpreter's allocator deals in these


class Room:
    """The memory left for rules, and for the trees that they are made from."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._left = most
        self._common: set[int] = set()

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return self._left

    def hold(self, count: int) -> None:
        """Count bytes that are taken for a while; a negative number gives them back."""
        self._left -= count

    def admits(self, query: str) -> bool:
        """Whether there is room for a query in the worst case."""
        return self._left >= most_of(query)

    def take(self, rule: object) -> bool:
        """Count a rule permanently; returns whether there is room for it."""
        if len(self._common) > _MOST_COMMON:
            self._common.clear()
        self._left -= weigh(rule, self._common) + AT_WORK
        return self._left >= 0

    def __str__(self) -> str:
        return f"{self.most // 2**20} MiB"


def most_of(query: str) -> int:
    """Bytes that a query can take while it is compiled, judging only by its length."""
    return min(len(query), MOST_TOKENS) * MOST_OF_TOKEN + min(len(query), LONGEST_TEXT) * MOST_OF_CHARACTER


def weigh(root: object, common: set[int] | None = None) -> int:
    """Bytes of an object and all that it refers to, except what exists anyway: modules, classes and their functions.

    `common` are objects that others weighed before may share with it; it is added to. They must still exist.
    """
    seen: set[int] = set()
    common = set() if common is None else common
    waiting, total = [root], 0
    while waiting:
        each = waiting.pop()
        kind = type(each)
        known = common if kind in _COMMON else seen
        if id(each) in known or kind in _SHARED:
            continue
        known.add(id(each))
        if isinstance(each, FunctionType):
            if _LOCAL not in each.__qualname__:
                continue
            waiting += (each.__closure__, each.__defaults__, *_attached(each))
        elif isinstance(each, type):
            continue
        elif kind in _FRESH:
            total += _FRESH[kind]
            continue
        elif kind not in _ATOMS:
            waiting += gc.get_referents(each)
        total += (sys.getsizeof(each) + _ROUNDED - 1) // _ROUNDED * _ROUNDED
    return total


def _attached(function: FunctionType) -> list[object]:
    """A function's attributes, and what Python 3.14 keeps to make its annotations: a function of its own."""
    shared = (id(function.__globals__), id(vars(builtins)))
    found = gc.get_referents(function)
    return [each for each in found if type(each) in (dict, FunctionType) and id(each) not in shared]


_FRESH = {
    Memory: 0,
    LabelSpace: sys.getsizeof(LabelSpace()) + _ROUNDED,
}
"""What a query remembers has a bound of its own (see `alerts.limits`): here it counts as when it was compiled."""
