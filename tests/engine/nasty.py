"""Rules that are small to write and large to evaluate, from a seed; and windows that are as full as they get.

`python -m tests.engine.nasty memory|looks SEED COUNT` evaluates so many, and prints what that took as JSON.
"""

from __future__ import annotations

import gc
import json
import math
import random
import resource
import sys
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import yaml

from alerts import rulefile
from alerts.alert_state import ArchivedSeries
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import make_labels
from alerts.promql.budget import SampleLedger
from alerts.windows import Needs, Windows


def _words(text: str) -> list[str]:
    return text.split()


END = 1_700_003_600.0
NAMES = ("power_watts", "energy_joules_total", "errors_total", "lanes", "latency_bucket", "odd")
LABELS = ("gpu", "uuid", "link", "kind", "le")
_ROLLING = _words(
    "rate increase delta irate changes resets deriv avg_over_time max_over_time sum_over_time stddev_over_time "
    "count_over_time last_over_time absent_over_time present_over_time stdvar_over_time min_over_time"
)
_REGEXES = _words(
    "(([0-9a-zA-Z-])+)+! (a+)+b .*.*.*.*! (GPU-|[0-9a-f]|-)*x .{0,900}! [^b]*b[^b]*c (?i)gpu.* .+ GPU-0000.* (1|2|3)+"
)
_TEMPLATES = (
    "{{ range query `lanes` }}{{ range query `lanes` }}{{ range query `lanes` }}{{ end }}{{ end }}{{ end }}",
    "{{ $x := `a` }}{{ range query `lanes` }}{{ $x = print $x $x $labels.uuid }}{{ end }}{{ $x }}",
    '{{ range query `{__name__=~".+"}` }}{{ .Labels }}{{ end }}',
    '{{ query (printf `count({uuid!="%s"})` $labels.uuid) | first | value | humanize }}',
    "{{ query `max_over_time(power_watts[1h:1ms])` | len }}",
    "{{ reReplaceAll `(.*)(.*)(.*)` `$1$2$3$1$2$3$0$0` $labels.uuid }}",
    "{{ reReplaceAll `` `" + "x" * 500 + "` (printf `%1000s%1000s%1000s` `a` `b` `c`) }}",
    "{{ match `(([0-9a-zA-Z-])+)+!` $labels.uuid }}{{ $labels.gpu }} {{ $value }}",
    "{{ $x := query `lanes` }}{{ range $x }}{{ range $x }}{{ len (sortByLabel `uuid` $x) }}{{ end }}{{ end }}",
    "x" * 3000 + "{{ $labels.gpu }}",
    '{{ query (print `lanes{gpu="` $labels.gpu `"}`) | len }}',
)


class _Everything(Needs):
    """As if rules read every series, for an hour."""

    def __init__(self) -> None:
        super().__init__(())

    def history_of(self, labels: Any) -> float:
        return 3600.0


def full_windows(series: int = 10_000, spacing: float = 10.0, long: int = 100_000) -> Counted:
    """An hour of so many series, or of as many as there is room for, and two with a long history."""
    dice = random.Random(1)
    windows = Counted(_Everything(), {}, spacing)
    windows.restore(_series(dice, series, spacing, long))
    return windows


def _series(dice: random.Random, count: int, spacing: float, long: int) -> Iterator[ArchivedSeries]:
    for number in range(2):
        times = array("d", (END - long + index for index in range(long)))
        values = array("d", (dice.random() * 1e3 for _ in range(long)))
        yield ArchivedSeries(make_labels({"gpu": str(number)}, "long"), False, times, values)
    length = int(3600 / spacing)
    times = array("d", (END - spacing * (length - 1 - index) for index in range(length)))
    kinds = [_values(dice, name, length) for name in NAMES for _ in range(4)]
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        own = {
            "gpu": str(number % 72),
            "uuid": f"GPU-{number % 72:08d}-aaaa-bbbb-cccc-dddddddddddd",
            "link": str(number // 72),
            "kind": "abcdefgh"[number % 8],
            "le": ("0.1", "0.5", "1", "+Inf")[number % 4],
            "instance": "node-1234.example.com:19400",
            "job": "coldplate",
        }
        yield ArchivedSeries(make_labels(own, name), False, times[:], kinds[number % len(kinds)][:])


def _values(dice: random.Random, name: str, length: int) -> array[float]:
    if name.endswith("_total"):
        total, found = 0.0, array("d")
        for _ in range(length):
            total = 0.0 if dice.random() < 0.02 else total + dice.random() * 1e6
            found.append(total)
        return found
    odd = (math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0) if name == "odd" else ()
    return array("d", (dice.choice(odd) if odd else dice.random() * 700 for _ in range(length)))


class Nasty:
    """Makes rules."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def rule(self) -> dict[str, Any]:
        """A rule as a file has it, and one that can be loaded."""
        while True:
            rule = self._alert() if self._dice.random() < 0.3 else {"record": "r", "expr": self._vector(3)}
            with suppress(rulefile.RuleFileError):
                grouped(rule)
                return rule

    def _alert(self) -> dict[str, Any]:
        given = self._pick(self._selector(), 'power_watts{gpu="3"}', 'power_watts{link="0"}', self._vector(1))
        texts = {f"t{number}": self._template() for number in range(self._dice.randrange(1, 4))}
        labels = {"long": self._template()} if self._dice.random() < 0.3 else {}
        return {"alert": "A", "expr": given, "labels": labels, "annotations": texts}

    def _template(self) -> str:
        return self._pick(*_TEMPLATES)

    def _pick(self, *choices: str) -> str:
        return self._dice.choice(choices)

    def _label(self) -> str:
        return self._pick(*LABELS)

    def _selector(self) -> str:
        label, regex = self._label(), self._pick(*_REGEXES)
        return self._pick(
            self._pick(*NAMES, "long"),
            self._pick(*NAMES),
            '{__name__=~".+"}',
            '{job=~"c.*", nothing=""}',
            f'{{__name__=~".*_.*", {label}=~"{regex}"}}',
            f'{self._pick(*NAMES)}{{{label}!~"{regex}"}}',
            f'{{{label}=~".+"}}',
        )

    def _matrix(self, depth: int) -> str:
        width = self._pick("1m", "5m", "1h", "1h", "2d", "100y", "1ms")
        if depth == 0 or self._dice.random() < 0.5:
            return f"{self._selector()}[{width}]"
        return f"({self._vector(depth - 1)})[{width}:{self._pick('1ms', '1s', '10s', '7m', '1ms')}]"

    def _vector(self, depth: int) -> str:
        if depth == 0:
            return self._selector()
        kinds = (self._rolled, self._rolled, self._aggregated, self._matched, self._labelled, self._called)
        return self._dice.choice(kinds)(depth - 1)

    def _rolled(self, depth: int) -> str:
        matrix = self._matrix(depth)
        plain = f"{self._pick(*_ROLLING)}({matrix})"
        return self._pick(plain, plain, f"quantile_over_time(0.5, {matrix})", f"predict_linear({matrix}, 3600)")

    def _aggregated(self, depth: int) -> str:
        inner, some = self._vector(depth), ", ".join(self._dice.sample(LABELS, self._dice.randrange(4)))
        reduce = self._pick("sum", "avg", "max", "count", "stddev", "stdvar", "group")
        return self._pick(
            f"{reduce} by ({some}) ({inner})",
            f"{reduce} without ({some}) ({inner})",
            f"quantile by ({some}) (0.9, {inner})",
            f'count_values by ({some}) ("v", {inner})',
            f"topk by ({some}) (5000, {inner})",
        )

    def _matched(self, depth: int) -> str:
        """Two vectors, also every element of the one with every element of the other."""
        operator = self._pick("+", "*", ">", "== bool", "^", "or", "and", "unless")
        some = ", ".join(self._dice.sample(LABELS, self._dice.randrange(4)))
        groups = "" if operator in ("or", "and", "unless") else self._pick("", " group_left", " group_right(le)")
        matching = self._pick(f" on({some}){groups}", f" ignoring({some}){groups}", "", "")
        return f"({self._vector(depth)}) {operator}{matching} ({self._vector(depth)})"

    def _labelled(self, depth: int) -> str:
        """Labels that grow, and that double again and again."""
        inner, target, source = self._vector(depth), self._label(), self._label()
        pattern = self._pick("(.*)", "(.)(.*)", "(a+)+b")
        sources = ", ".join(f'"{self._label()}"' for _ in range(self._dice.choice([2, 3, 30])))
        doubled = inner
        for _ in range(self._dice.choice([5, 20, 40])):
            doubled = f'label_join({doubled}, "kind", "", "kind", "kind", "uuid")'
        return self._pick(
            f'label_replace({inner}, "{target}", "$1$1$0-$1", "{source}", "{pattern}")',
            f'label_join({inner}, "{target}", "-", {sources})',
            doubled,
        )

    def _called(self, depth: int) -> str:
        inner = self._vector(depth)
        return self._pick(
            f"histogram_quantile(0.9, {inner})",
            f"clamp({inner}, 1, scalar({self._vector(depth)}))",
            f"absent({inner})",
            f"timestamp({inner})",
            f"sort_desc({inner})",
            f"-({inner})",
        )


class Looks:
    """A timer on which a certain time goes by between two looks at it, and that notes how much was done in between."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.most = 0
        self.step = step
        self._lines = 0

    def __call__(self) -> float:
        self.most = max(self.most, self._lines)
        self._lines = 0
        self.now += self.step
        return self.now

    def trace(self, _frame: Any, event: str, _argument: Any) -> Callable[..., Any]:
        """For `sys.settrace`: counts the lines that are executed, turns of loops and comprehensions among them."""
        if event == "line":
            self._lines += 1
        return self.trace


def grouped(*rules: dict[str, Any]) -> Any:
    text = yaml.safe_dump({"groups": [{"name": "g", "rules": list(rules)}]})
    return rulefile.parse(text, "nasty.yml", default_step=1.0).groups[0]


class Counted(Windows):
    """Windows that count the samples which they have given out and that somebody still has."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lent = 0
        self.most_lent = 0

    def select(self, *arguments: Any) -> Iterator[Any]:
        for labels, times, values in super().select(*arguments):
            self.lent += len(times)
            self.most_lent = max(self.most_lent, self.lent)
            weakref.finalize(times, self._take_back, len(times))
            yield labels, times, values
            del times, values

    def _take_back(self, count: int) -> None:
        self.lent -= count


def memory(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """What the resident memory of this process grew by, up to and with each rule, and the most samples given out."""
    windows = full_windows()
    nasty = Nasty(seed)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        rule = nasty.rule()
        group = GroupEvaluator(grouped(rule), timer=Looks(0.005), ledger=SampleLedger())
        group.evaluate(windows, END)
        failures = group.evaluate(windows, END + 60.0).failures  # again, with what the first time left behind
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        told = {"error": "".join(each.error for each in failures), "bytes": grown * 1024, "samples": windows.most_lent}
        yield {"rule": rule, **told}


def looks(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """The most lines that were executed between two looks at the timer."""
    windows = full_windows(4000, 60.0, 20_000)
    nasty = Nasty(seed)
    for _ in range(count):
        rule = nasty.rule()
        timer = Looks(0.02)
        group = GroupEvaluator(grouped(rule), timer=timer, ledger=SampleLedger())
        sys.settrace(timer.trace)
        try:
            failures = group.evaluate(windows, END).failures
        finally:
            sys.settrace(None)
        yield {"rule": rule, "error": "".join(each.error for each in failures), "lines": timer.most}


if __name__ == "__main__":
    print(json.dumps(list({"memory": memory, "looks": looks}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])))))
