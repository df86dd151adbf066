"""Queries out of a seed: some as the grammar has them, some of them damaged afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_METRICS = ("m", "up", "job:util:mean5m", ":x", "and", "or", "unless", "by", "without", "offset", "start", "end",
            "sum", "count_values", "topk", "anchored", "smoothed", "rate", "Inf_", "e", "x1", "_")  # fmt: skip
_LABELS = ("a", "job", "le", "__name__", "on", "by", "and", "bool", "sum", "group_left", "offset", "start", "inf")
_GROUPING = ("a", "job", "le", "on", "by", "and", "bool", "sum", "group_left", "offset", "start", "ignoring", "atan2")
_STRINGS = ('""', '"x"', "'x'", "`x`", '"a|b"', '".*"', '".+"', '"x\\ny"', '"\\u00e9"', '"\\xc3\\xa9"', '"\\101"',
            "'it\\'s'", '"say \\"x\\""', '"é"', '"{}()[],#"', '"(a|b)?c{2}[^d]"', '"\\\\d+"')  # fmt: skip
_RAW_STRINGS = ("`a\\b`", "`\\d+`", "`\n`", "`'\"`")
_NUMBERS = ("0", "1", "5", "0.5", ".5", "5.", "1e3", "1E-3", "2e+1", "0x1F", "0XfF", "017", "08", "Inf", "nan", "iNf",
            "1e308", "1e-400", "9007199254740993", "9223372036854775808")  # fmt: skip
_NEWER_NUMBERS = ("1_000", "0x_1F", "1_0.5e1_0", "0_17", "5m", "1h30m", "7ms", "2w")
_DURATIONS = ("5m", "1h", "30s", "1h30m", "1d2h3m4s5ms", "2w", "1y", "7ms", "05m", "90m")
_NEWER_SPANS = ("300", "0.5", "1e2", "0x1F", "+5m", "--5m", " 1_000")
_OFFSETS = ("5m", "-5m", "- 1h", "1y", "7ms")
_NEWER_OFFSETS = ("300", "-0.5", "0", "--5m", "+5m", "-+5m")
_INSTANTS = ("5", "-5", "1e9", "+1.5", "start()", "end ( )", "0x10", ".3")
_NEWER_INSTANTS = ("5m", "-1h", "1_0")
_OPERATORS = ("+", "-", "*", "/", "%", "^", "atan2", "==", "!=", "<", ">", "<=", ">=")
_COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))
_SET_OPERATORS = ("and", "or", "unless")
_REDUCTIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "SUM", "Avg")
_OF_VECTOR = ("abs", "absent", "ceil", "floor", "sgn", "sqrt", "exp", "ln", "log2", "log10", "sort", "sort_desc",
              "timestamp", "sin", "cosh", "deg", "histogram_count", "hour", "day_of_year", "round")  # fmt: skip
_OF_MATRIX = ("rate", "irate", "increase", "delta", "changes", "resets", "avg_over_time", "absent_over_time",
              "last_over_time", "present_over_time", "stddev_over_time", "deriv")  # fmt: skip
_SPACES = ("", "", "", " ", " ", " ", "  ", "\n", "\t", "\r\n", " # x\n")
_SCRAPS = ("(", ")", "{", "}", "[", "]", ",", ":", "=", "=~", "!~", "==", "!", "@", "#", "'", '"', "`", ".", "-", "+",
           "^", "by", "on", "bool", "offset", "group_left", "group_right", "sum", "m", "a", "5", "5m", "0", "e", "_",
           "x", "$", "é", ";", "\\", "1.5h", "Inf", "()", "{}", "[5m]", "[5m:]", "without", "ignoring")  # fmt: skip


class Babbler:
    """Says queries. With `newer` it also says what Prometheus 2.42 does not know and 3.5 does."""

    def __init__(self, seed: int, *, newer: bool) -> None:
        self._dice = random.Random(seed)
        self._newer = newer
        self._room = 0

    def query(self) -> str:
        """A query, mostly well formed and of the right types."""
        self._room = self._dice.choice((1, 2, 3, 4, 6))
        kinds = (self._vector, self._vector, self._vector, self._scalar, self._matrix, self._string)
        return self._dice.choice(kinds)()

    def damaged(self) -> str:
        """A query with a few places changed."""
        text = self.query()
        for _ in range(self._dice.choice((1, 1, 1, 2, 4))):
            text = self._dice.choice((self._without, self._with_scrap, self._doubled, self._swapped))(text)
        return text

    def _without(self, text: str) -> str:
        start = self._dice.randrange(len(text) + 1)
        return text[:start] + text[start + self._dice.choice((1, 1, 2, 5)) :]

    def _with_scrap(self, text: str) -> str:
        at = self._dice.randrange(len(text) + 1)
        return text[:at] + self._dice.choice((" ", "")) + self._dice.choice(_SCRAPS) + text[at:]

    def _doubled(self, text: str) -> str:
        start, end = sorted((self._dice.randrange(len(text) + 1), self._dice.randrange(len(text) + 1)))
        return text[:end] + text[start:end] + text[end:]

    def _swapped(self, text: str) -> str:
        first, second = sorted((self._dice.randrange(len(text) + 1), self._dice.randrange(len(text) + 1)))
        return text[second:] + text[first:second] + text[:first]

    def _one(self, *kinds: Callable[[], str]) -> str:
        """Say one of these, a plain one where there is no room for more; now and then something of another type."""
        if self._dice.random() < 0.02:
            kinds = (self._vector, self._scalar, self._matrix, self._string)
        if self._room <= 0:
            return kinds[0]()
        self._room -= 1
        said = self._dice.choice(kinds)()
        self._room += 1
        return said

    def _joined(self, *parts: str) -> str:
        """Put parts together with spaces between them; words never touch."""
        text = ""
        for part in parts:
            space = self._dice.choice(_SPACES)
            touching = text[-1:].isalnum() or text[-1:] in ("_", ":", ".")
            text += (space or " " if touching and part[:1] not in "([{,)]}" else space) + part
        return text

    def _picked(self, common: Sequence[str], newer: Sequence[str] = ()) -> str:
        return self._dice.choice((*common, *newer) if self._newer else common)

    def _maybe(self, chance: float, *parts: str) -> tuple[str, ...]:
        return parts if self._dice.random() < chance else ()

    def _vector(self) -> str:
        return self._one(
            self._selector, self._selector, self._aggregation, self._call, self._operation, self._in_parentheses,
            self._negative,
        )  # fmt: skip

    def _scalar(self) -> str:
        return self._one(
            lambda: self._picked(_NUMBERS, _NEWER_NUMBERS),
            lambda: self._joined(self._scalar(), self._picked(_OPERATORS[:7]), self._scalar()),
            lambda: self._joined(self._scalar(), self._picked(_OPERATORS[7:]), "bool", self._scalar()),
            lambda: self._joined("scalar(", self._vector(), ")"),
            lambda: self._joined(self._picked(("+", "-")), self._scalar()),
            lambda: self._joined("(", self._scalar(), ")"),
            lambda: self._picked(("time()", "pi ( )")),
        )

    def _string(self) -> str:
        return self._picked((*_STRINGS, *_RAW_STRINGS))

    def _matrix(self) -> str:
        return self._one(self._range, self._range, self._subquery)

    def _selector(self) -> str:
        selector = self._bare_selector()
        return self._joined(selector, *self._modifiers())

    def _bare_selector(self) -> str:
        matchers = [self._matcher() for _ in range(self._dice.choice((0, 1, 1, 2, 3)))]
        name = self._picked(_METRICS) if not matchers or self._dice.random() < 0.8 else ""
        if self._newer and self._dice.random() < 0.1:
            matchers.append(self._picked(('"metric.name"', "'x y'", "`é`", '"m"')))
            name = ""
        if not matchers:
            return self._joined(name, *self._maybe(0.1, "{", "}"))
        inner = [part for matcher in matchers for part in (matcher, ",")]
        if self._dice.random() < 0.9:
            inner.pop()
        return self._joined(*self._maybe(1.0 if name else 0.0, name), "{", *inner, "}")

    def _matcher(self) -> str:
        label = self._picked(_LABELS, ('"label.name"', "'a b'", '""', "`é`") if self._dice.random() < 0.3 else ())
        return self._joined(label, self._picked(("=", "!=", "=~", "!~")), self._picked((*_STRINGS, *_RAW_STRINGS)))

    def _modifiers(self) -> tuple[str, ...]:
        at = self._maybe(0.1, "@", self._picked(_INSTANTS, _NEWER_INSTANTS))
        offset = self._maybe(0.15, "offset", self._picked(_OFFSETS, _NEWER_OFFSETS))
        return at + offset if self._dice.random() < 0.5 else offset + at

    def _span(self) -> str:
        return self._picked(_DURATIONS, _NEWER_SPANS)

    def _range(self) -> str:
        return self._joined(self._bare_selector(), "[" + self._span(), "]", *self._modifiers())

    def _subquery(self) -> str:
        step = self._maybe(0.6, self._span())
        return self._joined(self._vector(), "[" + self._span(), ":", *step, "]", *self._modifiers())

    def _aggregation(self) -> str:
        kind = self._dice.random()
        if kind < 0.7:
            name, arguments = self._picked(_REDUCTIONS), [self._vector()]
        elif kind < 0.9:
            name, arguments = self._picked(("topk", "bottomk", "quantile")), [self._scalar(), ",", self._vector()]
        else:
            name, arguments = "count_values", [self._string(), ",", self._vector()]
        grouping = self._maybe(0.6, self._picked(("by", "without", "BY")), self._labels())
        if self._dice.random() < 0.5:
            return self._joined(name, *grouping, "(", *arguments, ")")
        return self._joined(name, "(", *arguments, ")", *grouping)

    def _labels(self) -> str:
        newer = ('"label.name"', "'x y'", "a:b") if self._dice.random() < 0.3 else ()
        labels = [self._picked(_GROUPING, newer) for _ in range(self._dice.choice((0, 1, 2, 3)))]
        inner = [part for label in labels for part in (label, ",")]
        if inner and self._dice.random() < 0.8:
            inner.pop()
        return self._joined("(", *inner, ")")

    def _call(self) -> str:
        return self._one(
            lambda: self._joined(self._picked(_OF_VECTOR), "(", self._vector(), ")"),
            lambda: self._joined(self._picked(_OF_MATRIX), "(", self._matrix(), ")"),
            lambda: self._joined("vector(", self._scalar(), ")"),
            lambda: self._joined("clamp(", self._vector(), ",", self._scalar(), ",", self._scalar(), ")"),
            lambda: self._joined("round(", self._vector(), *self._maybe(0.5, ",", self._scalar()), ")"),
            lambda: self._joined("quantile_over_time(", self._scalar(), ",", self._matrix(), ")"),
            lambda: self._joined("histogram_quantile(", self._scalar(), ",", self._vector(), ")"),
            lambda: self._joined("predict_linear(", self._matrix(), ",", self._scalar(), ")"),
            lambda: self._joined("label_replace(", self._vector(), ',"x","$1","a","(.*)")'),
            lambda: self._joined("label_join(", self._vector(), ',"x","-"', *self._maybe(0.7, ',"a"', ',"b"'), ")"),
            lambda: self._joined(self._picked(("hour", "month", "year")), "(", *self._maybe(0.3, self._vector()), ")"),
        )

    def _operation(self) -> str:
        left, right = self._vector(), self._vector()
        if self._dice.random() < 0.3:
            left, right = (self._scalar(), right) if self._dice.random() < 0.5 else (left, self._scalar())
            operator = self._picked(_OPERATORS)
            return self._joined(left, operator, *self._maybe(0.3 if operator in _COMPARISONS else 0.0, "bool"), right)
        if self._dice.random() < 0.4:
            return self._joined(left, self._picked(_SET_OPERATORS), *self._matching(grouping=0.0), right)
        operator = self._picked(_OPERATORS)
        as_bool = self._maybe(0.3 if operator in _COMPARISONS else 0.02, "bool")
        return self._joined(left, operator, *as_bool, *self._matching(grouping=0.3), right)

    def _matching(self, grouping: float) -> tuple[str, ...]:
        if self._dice.random() < 0.5:
            return ()
        side = self._picked(("group_left", "group_right"))
        group = self._maybe(grouping, side, *self._maybe(0.7, self._labels()))
        return (self._picked(("on", "ignoring")), self._labels(), *group)

    def _in_parentheses(self) -> str:
        return self._joined("(", self._vector(), ")")

    def _negative(self) -> str:
        return self._joined(self._picked(("-", "+")), self._vector())
