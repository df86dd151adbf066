"""Rules that are small to write and large to evaluate, and windows that are as full as they get."""

from __future__ import annotations

import gc
import math
import random
import resource
import sys
import weakref
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from alerts import rulefile
from alerts.alert_state import ArchivedSeries
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import make_labels
from alerts.promql.budget import SampleLedger
from alerts.windows import Needs, Windows

END = 1_700_003_600.0
NAMES = ("power_watts", "energy_joules_total", "errors_total", "lanes", "latency_bucket", "odd")
TEMPLATES = (
    "{{ range query `lanes` }}{{ range query `lanes` }}{{ range query `lanes` }}{{ end }}{{ end }}{{ end }}",
    "{{ $x := `a` }}{{ range query `lanes` }}{{ $x = print $x $x $labels.uuid }}{{ end }}{{ $x }}",
    '{{ range query `{__name__=~".+"}` }}{{ .Labels }}{{ end }}',
    "{{ query `max_over_time(power_watts[1h:1ms])` | len }}",
    "{{ reReplaceAll `(.*)(.*)(.*)` `$1$2$3$1$2$3$0$0` $labels.uuid }}",
    "{{ reReplaceAll `` `" + "x" * 500 + "` (printf `%1000s%1000s%1000s` `a` `b` `c`) }}",
    "{{ match `(([0-9a-zA-Z-])+)+!` $labels.uuid }}{{ $labels.gpu }} {{ $value }}",
    "{{ $x := query `lanes` }}{{ range $x }}{{ range $x }}{{ len (sortByLabel `uuid` $x) }}{{ end }}{{ end }}",
    "x" * 3000 + "{{ $labels.gpu }}",
)
EXPRESSIONS = (
    "power_watts", '{__name__=~".+"}', '{job=~"c.*", nothing=""}',
    # ranges and subqueries
    'max_over_time({__name__=~".+"}[100y])', "rate(energy_joules_total[1h])", "count_over_time((lanes * 2)[2d:1ms])",
    "max_over_time(rate(energy_joules_total[1m])[1h:1s])", "stddev_over_time(long[100y])", "deriv(odd[1h])",
    "quantile_over_time(0.5, long[2d:10s])", 'predict_linear({__name__=~".*_.*"}[1h], 3600)',
    # aggregations, of which some have as many groups as elements
    "topk by (gpu) (5000, power_watts)", "quantile without (link) (0.9, power_watts)", "stdvar by (uuid, link) (odd)",
    'count_values by (kind) ("v", odd)', "sum without (le) (latency_bucket) ^ on() group_left sum(odd)",
    # two vectors, also every element of the one with every element of the other
    "power_watts * on(gpu) group_left lanes", "power_watts + ignoring(le) lanes", "power_watts > on(uuid) lanes",
    "lanes or on(uuid, link) power_watts", "lanes and on() power_watts", "power_watts unless on(gpu) lanes",
    # labels that grow, and that double again and again
    'label_replace(power_watts, "uuid", "$1$1$0-$1", "uuid", "(.*)")',
    'label_replace(power_watts, "kind", "$1$1$0-$1", "uuid", "(a+)+b")',
    'label_join(power_watts, "link", "-", ' + ", ".join(['"uuid"'] * 30) + ")",
    *("label_join(" * times + "lanes" + ', "kind", "", "kind", "kind", "uuid")' * times for times in (5, 20, 40)),
    "histogram_quantile(0.9, latency_bucket)", "clamp(power_watts, 1, scalar(lanes))", "absent(power_watts)",
    "sort_desc(-timestamp(power_watts))",
    # expressions at which an engine that backtracks would never end
    *(f'{{uuid=~"{pattern}"}}' for pattern in (
        "(([0-9a-zA-Z-])+)+!", "(GPU-|[0-9a-f]|-)*x", ".{0,900}!", "[^b]*b[^b]*c", ".*.*.*.*!")),
)  # fmt: skip
RULES: list[dict[str, Any]] = [
    *({"record": "r", "expr": expression} for expression in EXPRESSIONS),
    *({"alert": "A", "expr": 'power_watts{gpu="3"}', "annotations": {"t": each}} for each in TEMPLATES),
    {"alert": "A", "expr": "lanes", "labels": {"long": TEMPLATES[-1]}},
]


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


def memory() -> list[dict[str, Any]]:
    """What the resident memory of this process grew by, up to and with each rule, and the most samples given out."""
    windows = full_windows()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = []
    for rule in RULES:
        group = GroupEvaluator(grouped(rule), timer=Looks(0.005), ledger=SampleLedger())
        group.evaluate(windows, END)
        failures = group.evaluate(windows, END + 60.0).failures  # again, with what the first time left behind
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        told = {"error": "".join(each.error for each in failures), "bytes": grown * 1024, "samples": windows.most_lent}
        found.append({"rule": rule, **told})
    return found


def looks(step: int) -> list[dict[str, Any]]:
    """The most lines that were executed between two looks at the timer, for each so-manieth rule."""
    windows = full_windows(4000, 60.0, 20_000)
    found = []
    for rule in RULES[::step]:
        timer = Looks(0.02)
        group = GroupEvaluator(grouped(rule), timer=timer, ledger=SampleLedger())
        sys.settrace(timer.trace)
        try:
            failures = group.evaluate(windows, END).failures
        finally:
            sys.settrace(None)
        found.append({"rule": rule, "error": "".join(each.error for each in failures), "lines": timer.most})
    return found
