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
from tests.grammar import Grammar

END = 1_700_003_600.0
NAMES = ("power_watts", "energy_joules_total", "errors_total", "lanes", "latency_bucket", "odd")
LABELS = ("gpu", "uuid", "link", "kind", "le")
TEMPLATES = (
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


RULES = {
    "vector": ("<selector>", "<rolled>", "<rolled>", "<aggregated>", "<matched>", "<labelled>", "<called>"),
    "selector": ("<name>", "<name>", "<name>", '{__name__=~".+"}', '{job=~"c.*", nothing=""}',
                 '{__name__=~".*_.*", <label>=~"<regex>"}', '<name>{<label>!~"<regex>"}', '{<label>=~".+"}'),
    "matrix": ("<selector>[<width>]", "<selector>[<width>]", "(<vector>)[<width>:<step>]"),
    "rolled": ("<rolling>(<matrix>)", "<rolling>(<matrix>)", "quantile_over_time(0.5, <matrix>)",
               "predict_linear(<matrix>, 3600)"),
    "aggregated": ("<reduction> by (<labels>) (<vector>)", "<reduction> without (<labels>) (<vector>)",
                   "quantile by (<labels>) (0.9, <vector>)", 'count_values by (<labels>) ("v", <vector>)',
                   "topk by (<labels>) (5000, <vector>)"),
    # Two vectors, also every element of the one with every element of the other.
    "matched": ("(<vector>) <operator> (<vector>)", "(<vector>) <operator> on(<labels>)<side> (<vector>)",
                "(<vector>) <operator> ignoring(<labels>)<side> (<vector>)",
                "(<vector>) <set> on(<labels>) (<vector>)"),
    # Labels that grow, and that double again and again.
    "labelled": ('label_replace(<vector>, "<label>", "$1$1$0-$1", "<label>", "<pattern>")',
                 'label_join(<vector>, "<label>", "-", ' + ", ".join(['"<label>"'] * 30) + ")",
                 *("label_join(" * times + "<vector>" + ', "kind", "", "kind", "kind", "uuid")' * times
                   for times in (5, 20, 40))),
    "called": ("histogram_quantile(0.9, <vector>)", "clamp(<vector>, 1, scalar(<vector>))", "absent(<vector>)",
               "timestamp(<vector>)", "sort_desc(<vector>)", "-(<vector>)"),
    "name": (*NAMES, "long"), "label": LABELS,
    "labels": ("", "<label>", "<label>, <label>", "<label>, <label>, <label>"),
    "width": ("1m", "5m", "1h", "1h", "2d", "100y", "1ms"), "step": ("1ms", "1s", "10s", "7m", "1ms"),
    "operator": ("+", "*", ">", "== bool", "^"), "side": ("", " group_left", " group_right(le)"),
    "set": ("or", "and", "unless"), "pattern": ("(.*)", "(.)(.*)", "(a+)+b"),
    "reduction": ("sum", "avg", "max", "count", "stddev", "stdvar", "group"),
    "rolling": ("rate", "increase", "delta", "irate", "changes", "resets", "deriv", "avg_over_time", "max_over_time",
                "sum_over_time", "stddev_over_time", "count_over_time", "last_over_time", "absent_over_time",
                "present_over_time", "stdvar_over_time", "min_over_time"),
    "regex": ("(([0-9a-zA-Z-])+)+!", "(a+)+b", ".*.*.*.*!", "(GPU-|[0-9a-f]|-)*x", ".{0,900}!", "[^b]*b[^b]*c",
              "(?i)gpu.*", ".+", "GPU-0000.*", "(1|2|3)+"),
    "given": ("<selector>", 'power_watts{gpu="3"}', 'power_watts{link="0"}', "<rolled>", "<matched>", "<labelled>"),
}  # fmt: skip


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


class Nasty(Grammar):
    """Makes rules."""

    def __init__(self, seed: int) -> None:
        super().__init__(RULES, random.Random(seed))

    def rule(self) -> dict[str, Any]:
        """A rule as a file has it, and one that can be loaded."""
        while True:
            rule = self._alert() if self.dice.random() < 0.3 else {"record": "r", "expr": self.say("vector", 8)}
            with suppress(rulefile.RuleFileError):
                grouped(rule)
                return rule

    def _alert(self) -> dict[str, Any]:
        texts = {f"t{number}": self.dice.choice(TEMPLATES) for number in range(self.dice.randrange(1, 4))}
        labels = {"long": self.dice.choice(TEMPLATES)} if self.dice.random() < 0.3 else {}
        return {"alert": "A", "expr": self.say("given", 2), "labels": labels, "annotations": texts}


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
