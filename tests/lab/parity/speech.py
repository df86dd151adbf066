"""Queries out of a seed that can mostly be evaluated: right in their types, wrong now and then in what they meet.

`tests.promql.babble` says what tries the grammar; this says what tries the evaluation: operators whose operands match
once, many times or not at all, functions after which two elements are alike, and errors where nobody looks at them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.lab.parity.dataset import END, START

_NAMES = ("util", "temp", "job_info", "energy_total", "up", "down", "alone", "limit", "early", "late", "odd", "mixed",
          "ends", "typed", "nothing")  # fmt: skip
_LABELS = ("gpu", "node", "job", "user", "kind", "how", "le", "shape", "__type__", "__unit__", "__name__", "none")
_QUOTED_LABELS = ('"label.name"', '"日本"', "'job'", "`gpu`", '"no.such"')
_VALUES = ("a", "b", "0", "1", "2", "n0", "n1", "k3", "k0", "", "gap", "counter", "x y")
_TEXTS = (
    '"\\x61"', "'a'", "`a`", '"\\141"', '"\\u0061"', '"\\xc3\\xa9"', '"é"', "`\\d`", '"\\xff"', "'it\\'s'", '"语"',
    '"a\\nb\\"c\\\\d"', '"\\U00000062"', '"\\""', '"\\q"', '"\\u12"',
)  # fmt: skip
_PATTERNS = (
    ".*", ".+", "a|b", "[0-2]", "n.", "(a|b)?", "k[0-9]+", "", "a|", "^a$", "(?i)A", "\\\\d", "\\xff", "é", ".*\\\\d",
    "[[:alpha:]]", ".*", "a|b", "[0-2]", "n.", "k[0-9]+", "(.*)", "[ab", "x{1001}", "a.*\\xff", "(", "a**",
)  # fmt: skip
_DURATIONS = ("15s", "16s", "30s", "1m", "90s", "2m", "5m", "20m", "7ms", "1m30s", "300", "0x1e", "1_5", "0.5", "1e2",
              "1h")  # fmt: skip
_OFFSETS = ("15s", "1m", "-1m", "5m", "0s", "-0", "30", "1h", "-7ms", "1_5", "--5m", "1y", "292y", "NaN")
_STEPS = ("15s", "20s", "1m", "7s", "90", "", "", "0x1e")
_NUMBERS = (
    "0", "1", "2", "-1", "0.5", "1.5", "3", "100", "1e3", "1_000", "0x1F", "017", "5m", "1h30m", ".5", "Inf", "NaN",
    "-Inf", "1e300", "1e15", "-1e30", "9e18", "2.5", "0.1", "1e-300", "42",
)  # fmt: skip
_ARITHMETIC = ("+", "-", "*", "/", "%", "^", "atan2")
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
_REDUCTIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
_OF_TIME = "minute hour day_of_week day_of_month day_of_year days_in_month month year"
_OF_VECTOR = """
abs ceil floor sgn sqrt exp ln log2 log10 round sort sort_desc acos acosh asin asinh atan atanh cos cosh
sin sinh tan tanh deg rad
"""
_OF_MATRIX = """
rate irate increase delta idelta deriv changes resets avg_over_time min_over_time max_over_time sum_over_time
count_over_time stddev_over_time stdvar_over_time last_over_time present_over_time
"""


class Speaker:
    """Says queries; the same seed says the same."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._room = 0

    def query(self) -> str:
        self._room = self._dice.choice((1, 2, 2, 3, 3, 4, 5))
        kind = self._dice.random()
        if kind < 0.05:
            return self._selection()
        if kind < 0.9:
            return self._vector()
        return self._scalar() if kind < 0.98 else self._text()

    def instant(self) -> float:
        """A time: on the samples' grid or off it, now and then where they begin or end, or far away."""
        kind = self._dice.random()
        if kind < 0.4:
            return START + 15.0 * self._dice.randrange(20, 81)
        if kind < 0.85:
            return round(START + 300 + self._dice.random() * 950, 3)
        return self._dice.choice((START, START - 1, END + 299.999, END + 300, END + 1e6, 0.0, START + 0.001))

    def _one(self, *kinds: Callable[[], str]) -> str:
        if self._room <= 0:
            return kinds[0]()
        self._room -= 1
        said = self._dice.choice(kinds)()
        self._room += 1
        return said

    def _picked(self, *of: Sequence[str]) -> str:
        return self._dice.choice(self._dice.choice(of))

    def _chance(self, chance: float) -> bool:
        return self._dice.random() < chance

    # Selectors.

    def _text(self) -> str:
        if self._chance(0.25):
            return self._picked(_TEXTS)
        return f'"{self._picked(_VALUES)}"'

    def _matcher(self) -> str:
        label = self._picked(_LABELS, _LABELS, _LABELS, _QUOTED_LABELS)
        operator = self._dice.choice(("=", "=", "!=", "=~", "!~"))
        if "~" in operator:
            return f'{label}{operator}"{self._picked(_PATTERNS)}"'
        return f"{label}{operator}{self._text()}"

    def _selector(self) -> str:
        matchers = [self._matcher() for _ in range(self._dice.choice((0, 0, 0, 1, 1, 2, 3)))]
        if len(matchers) > 1 and self._chance(0.3):  # two of one label
            label = self._picked(("job", "gpu"))
            matchers[:2] = [f'{label}=~"[a-c0-1]"', f"{label}={self._text()}"]
            self._dice.shuffle(matchers)
        name = self._picked(_NAMES)
        kind = self._dice.random()
        if kind < 0.05:
            return (
                "{" + ",".join([self._dice.choice(('"metric.name"', '"é"', "'util'", '"\\xc3\\xa9"')), *matchers]) + "}"
            )
        if kind < 0.12:
            named = self._dice.choice(
                ('__name__=~"early|late"', '__name__=~"up|down|alone"', 'job="a"', '__name__!="odd"')
            )
            return "{" + ",".join([named, *matchers]) + "}"
        if kind < 0.2:
            name = self._picked(("h_bucket", "latency_bucket"))
        return name + ("{" + ",".join(matchers) + "}" if matchers else "")

    def _modifiers(self, *, of_subquery: bool = False, timed: bool = False) -> str:
        """`@` and `offset`; `timed` below `timestamp`, which heeds only one of the two there."""
        at = offset = ""
        if self._chance(0.12):
            times = (f"{START + 600:.0f}", f"{START + 607.5:.1f}", f"{END:.0f}", "end()", "start()", "0", "-1", "9e15",
                     "1.7e9")  # fmt: skip
            at = f" @ {self._dice.choice(times)}"
        if self._chance(0.15):
            # The largest ones overflow in subqueries there, and what that gives depends on the rest of the query.
            offset = "" if timed and at else f" offset {self._picked(_OFFSETS[:-3] if of_subquery else _OFFSETS)}"
        return at + offset if self._chance(0.5) else offset + at

    def _selected(self, *, timed: bool = False) -> str:
        return self._selector() + self._modifiers(timed=timed)

    def _matrix(self) -> str:
        if self._room > 0 and self._chance(0.3):
            self._room -= 1
            step = self._picked(_STEPS)
            width = self._dice.choice(("1m", "2m", "5m", "10m", "100"))
            said = f"({self._vector()})[{width}:{step}]{self._modifiers(of_subquery=True)}"
            self._room += 1
            return said
        return f"{self._selector()}[{self._picked(_DURATIONS)}]{self._modifiers()}"

    # Vectors and numbers.

    def _vector(self) -> str:
        return self._one(
            self._selected, self._aggregation, self._function, self._function, self._over_range, self._over_range,
            self._operation, self._operation, self._with_number, self._set, self._relabelled, self._histogram,
            self._other,
        )  # fmt: skip

    def _scalar(self) -> str:
        return self._one(
            lambda: self._picked(_NUMBERS),
            lambda: self._picked(_NUMBERS),
            lambda: f"scalar({self._vector()})",
            lambda: self._dice.choice(("time()", "pi()")),
            lambda: f"({self._scalar()} {self._picked(_ARITHMETIC)} {self._scalar()})",
            lambda: f"({self._scalar()} {self._picked(_COMPARISONS)} bool {self._scalar()})",
            lambda: f"-{self._scalar()}",
        )

    def _labels(self) -> str:
        return ", ".join(
            self._picked(_LABELS[:5], _LABELS, _QUOTED_LABELS) for _ in range(self._dice.choice((0, 1, 1, 2, 3)))
        )

    def _grouping(self) -> str:
        return f" {self._dice.choice(('by', 'without'))} ({self._labels()})" if self._chance(0.7) else ""

    def _aggregation(self) -> str:
        kind = self._dice.random()
        if kind < 0.65:
            return f"{self._picked(_REDUCTIONS)}{self._grouping()} ({self._vector()})"
        if kind < 0.8:
            return f"quantile{self._grouping()} ({self._scalar()}, {self._vector()})"
        if kind < 0.95:
            label = self._dice.choice(('"job"', '"value"', '"gpu"', '"a b"', '""', '"__name__"', '"\\xff"', '"\\x6a"'))
            return f"count_values{self._grouping()} ({label}, {self._vector()})"
        # Whichever of equals is chosen, none is, all are, or the number is no number.
        count = self._dice.choice(("0", "-1", "100", "-1e30", "1e30", "NaN", "0.9", "Inf", "-Inf"))
        return f"{self._dice.choice(('topk', 'bottomk'))}{self._grouping()} ({count}, {self._vector()})"

    def _selection(self) -> str:
        """`topk` of what may have equals: only at the top, where it shows which elements were chosen."""
        return f"{self._dice.choice(('topk', 'bottomk'))}{self._grouping()} ({self._scalar()}, {self._vector()})"

    def _function(self) -> str:
        name = self._picked(_OF_VECTOR.split(), _OF_VECTOR.split(), _OF_TIME.split())
        kind = self._dice.random()
        if kind < 0.1:
            return f"clamp({self._vector()}, {self._scalar()}, {self._scalar()})"
        if kind < 0.2:
            return f"{self._dice.choice(('clamp_min', 'clamp_max', 'round'))}({self._vector()}, {self._scalar()})"
        if kind < 0.25:
            return f"{self._picked(_OF_TIME.split())}()"
        return f"{name}({self._vector()})"

    def _over_range(self) -> str:
        kind = self._dice.random()
        if kind < 0.1:
            return f"quantile_over_time({self._scalar()}, {self._matrix()})"
        if kind < 0.2:
            return f"predict_linear({self._matrix()}, {self._scalar()})"
        return f"{self._picked(_OF_MATRIX.split())}({self._matrix()})"

    def _matching(self, *, grouping: bool) -> str:
        if self._chance(0.3):
            return ""
        said = f" {self._dice.choice(('on', 'on', 'ignoring'))}({self._labels()})"
        if grouping and self._chance(0.5):
            said += f" group_{self._dice.choice(('left', 'right'))}"
            said += f" ({self._labels()})" if self._chance(0.6) else ""
        return said

    def _operation(self) -> str:
        operator = self._picked(_ARITHMETIC, _COMPARISONS)
        as_bool = " bool" if operator in _COMPARISONS and self._chance(0.3) else ""
        return f"({self._vector()} {operator}{as_bool}{self._matching(grouping=True)} {self._vector()})"

    def _with_number(self) -> str:
        operator = self._picked(_ARITHMETIC, _COMPARISONS)
        as_bool = " bool" if operator in _COMPARISONS and self._chance(0.3) else ""
        left, right = self._vector(), self._scalar()
        if self._chance(0.4):
            left, right = right, left
        return f"({left} {operator}{as_bool} {right})"

    def _set(self) -> str:
        operator = self._dice.choice(("and", "or", "unless"))
        return f"({self._vector()} {operator}{self._matching(grouping=False)} {self._vector()})"

    def _relabelled(self) -> str:
        target = self._dice.choice(('"job"', '"gpu"', '"new"', '"__name__"', '"a.b"', '""', '"\\xff"'))
        source = self._dice.choice(('"job"', '"gpu"', '"node"', '"__name__"', '""', '"label.name"'))
        if self._chance(0.3):
            return f'label_join({self._vector()}, {target}, {self._text()}, {source}, "node")'
        replacement = self._dice.choice(('"x$1"', '"$1"', '"${1}y"', '""', '"$0"', '"a"', '"\\xff"', '"$$"', '"$job"'))
        return f'label_replace({self._vector()}, {target}, {replacement}, {source}, "{self._picked(_PATTERNS)}")'

    def _histogram(self) -> str:
        operand = self._dice.choice((
            "h_bucket", "latency_bucket", "rate(latency_bucket[5m])", "h_bucket * NaN", "-h_bucket", self._vector(),
            "sum by (le, gpu) (latency_bucket)",
        ))  # fmt: skip
        if self._chance(0.4):
            return f"histogram_fraction({self._scalar()}, {self._scalar()}, {operand})"
        return f"histogram_quantile({self._scalar()}, {operand})"

    def _other(self) -> str:
        return self._one(
            lambda: f"vector({self._scalar()})",
            lambda: f"-{self._vector()}",
            lambda: f"+({self._vector()})",
            # What they say of two matchers on one label depends there on whether the storage was asked at all, which it
            # is not about a time before all samples.
            lambda: f"absent({self._selector()} offset {self._picked(_OFFSETS[:5])})",
            lambda: f"absent({self._selector()})",
            lambda: f"absent_over_time({self._selector()}[{self._picked(_DURATIONS)}])",
            lambda: f"absent({self._aggregation()})",
            lambda: f"absent_over_time(({self._aggregation()})[2m:{self._picked(_STEPS)}])",
            lambda: f"timestamp({self._selected(timed=True)})",
            lambda: f"timestamp(({self._selected(timed=True)}))",
        )
