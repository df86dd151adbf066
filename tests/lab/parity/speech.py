"""Queries out of a seed that can mostly be evaluated: right in their types, wrong now and then in what they meet.

They try the evaluation: operators whose operands match once, many times or not at all, functions after which two
elements are alike, and errors where nobody looks. Odd and damaged ones try the grammar.
"""

import random
import re

from tests.grammar import Grammar
from tests.lab.parity.dataset import END, START

_OFFSETS = ("15s", "1m", "-1m", "5m", "0s", "-0", "30", "1h", "-7ms", "1_5", "--5m")
_AT = " @ <instant>"
_OF_TIME = "minute hour day_of_week day_of_month day_of_year days_in_month month year"
_OF_VECTOR = """
abs ceil floor sgn sqrt exp ln log2 log10 round sort sort_desc acos acosh asin asinh atan atanh cos cosh
sin sinh tan tanh deg rad
"""
_OF_MATRIX = """
rate irate increase delta idelta deriv changes resets avg_over_time min_over_time max_over_time sum_over_time
count_over_time stddev_over_time stdvar_over_time last_over_time present_over_time
"""
_WORDS = {
    "name": ("util", "temp", "job_info", "energy_total", "up", "down", "alone", "limit", "early", "late", "odd",
             "mixed", "ends", "typed", "nothing", "h_bucket", "latency_bucket"),
    "label": ("gpu", "node", "job", "user", "kind", "how", "le", "shape", "__type__", "__unit__", "__name__", "none",
              "gpu", "node", "job", "user", "kind", '"label.name"', '"日本"', "'job'", "`gpu`", '"no.such"'),
    "text": (
        *(f'"{each}"' for each in ("a", "b", "0", "1", "2", "n0", "n1", "k3", "", "gap", "counter", "x y") * 4),
        '"\\x61"', "'a'", "`a`", '"\\141"', '"\\u0061"', '"\\xc3\\xa9"', '"é"', "`\\d`", '"\\xff"', "'it\\'s'",
        '"语"', '"a\\nb\\"c\\\\d"', '"\\U00000062"', '"\\""', '"\\q"', '"\\u12"',
    ),
    "pattern": (
        ".*", ".+", "a|b", "[0-2]", "n.", "(a|b)?", "k[0-9]+", "", "a|", "^a$", "(?i)A", "\\\\d", "\\xff", "é",
        ".*\\\\d", "[[:alpha:]]", ".*", "a|b", "[0-2]", "n.", "(.*)", "[ab", "x{1001}", "a.*\\xff", "(", "a**",
    ),
    "duration": ("15s", "16s", "30s", "1m", "90s", "2m", "5m", "20m", "7ms", "1m30s", "300", "0x1e", "1_5", "0.5",
                 "1e2", "1h"),
    "offset": (*_OFFSETS, "1y", "292y", "NaN"),
    "small_offset": _OFFSETS,
    "width": ("1m", "2m", "5m", "10m", "100"),
    "step": ("15s", "20s", "1m", "7s", "90", "", "", "0x1e"),
    "instant": (f"{START + 600:.0f}", f"{START + 607.5:.1f}", f"{END:.0f}", "end()", "start()", "0", "-1", "9e15",
                "1.7e9"),
    "number": (
        "0", "1", "2", "-1", "0.5", "1.5", "3", "100", "1e3", "1_000", "0x1F", "017", "5m", "1h30m", ".5", "Inf",
        "NaN", "-Inf", "1e300", "1e15", "-1e30", "9e18", "2.5", "0.1", "1e-300", "42",
    ),
    "arithmetic": ("+", "-", "*", "/", "%", "^", "atan2"),
    "comparison": ("==", "!=", "<", ">", "<=", ">="),
    "reduction": ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"),
    "of_time": _OF_TIME.split(),
    "of_vector": _OF_VECTOR.split(),
    "of_matrix": _OF_MATRIX.split(),
    "chosen": ("topk", "bottomk"),
    # Whichever of equals is chosen, none is, all are, or the number is no number.
    "any_count": ("0", "-1", "100", "-1e30", "1e30", "NaN", "0.9", "Inf", "-Inf"),
    "counted": ('"job"', '"value"', '"gpu"', '"a b"', '""', '"__name__"', '"\\xff"', '"\\x6a"'),
    "target": ('"job"', '"gpu"', '"new"', '"__name__"', '"a.b"', '""', '"\\xff"'),
    "source": ('"job"', '"gpu"', '"node"', '"__name__"', '""', '"label.name"'),
    "replacement": ('"x$1"', '"$1"', '"${1}y"', '""', '"$0"', '"a"', '"\\xff"', '"$$"', '"$job"'),
    "quoted_name": ('"metric.name"', '"é"', "'util'", '"\\xc3\\xa9"'),
    "any_name": ('__name__=~"early|late"', '__name__=~"up|down|alone"', 'job="a"', '__name__!="odd"'),
    "buckets": ("h_bucket", "latency_bucket", "rate(latency_bucket[5m])", "h_bucket * NaN", "-h_bucket",
                "sum by (le, gpu) (latency_bucket)", "<vector>"),
}  # fmt: skip
_RULES = {
    "query": ("<selection>", *("<vector>",) * 17, "<scalar>", "<scalar>", "<text>"),
    "matcher": ("<label>=<text>", "<label>=<text>", "<label>!=<text>", '<label>=~"<pattern>"', '<label>!~"<pattern>"'),
    "selector": (
        *("<name>",) * 10, *("<name>{<matcher>}",) * 3, "<name>{<matcher>,<matcher>}",
        "<name>{<matcher>,<matcher>,<matcher>}", '<name>{job=~"[a-c0-1]",job=<text>}',
        '<name>{gpu=<text>,gpu=~"[a-c0-1]",<matcher>}', "{<quoted_name>}", "{<quoted_name>,<matcher>}", "{<any_name>}",
        "{<any_name>,<matcher>}",
    ),
    "modifiers": (*("",) * 12, _AT, _AT, " offset <offset>", " offset <offset>", f"{_AT} offset <offset>",
                  f" offset <offset>{_AT}"),
    # The largest offsets overflow in subqueries there, and what that gives depends on the rest of the query.
    "of_subquery": (*("",) * 6, _AT, " offset <small_offset>", f" offset <small_offset>{_AT}"),
    # Below `timestamp` only one of the two is heeded there.
    "timed": ("<selector>", "<selector>", f"<selector>{_AT}", "<selector> offset <offset>"),
    "selected": ("<selector><modifiers>",),
    "matrix": (*("<selector>[<duration>]<modifiers>",) * 3, "(<vector>)[<width>:<step>]<of_subquery>"),
    "vector": (
        "<selected>", "<aggregation>", "<function>", "<function>", "<over_range>", "<over_range>",
        "(<vector> <operator><matching><grouped> <vector>)", "(<vector> <operator> <vector>)",
        "(<vector> <operator> <scalar>)", "(<scalar> <operator> <vector>)",
        "(<vector> <set><matching> <vector>)", "<relabelled>", "<histogram>", "<other>",
    ),
    "operator": (*("<arithmetic>",) * 3, "<comparison>", "<comparison>", "<comparison> bool"),
    "set": ("and", "or", "unless"),
    "labels": ("", "<label>", "<label>", "<label>, <label>", "<label>, <label>, <label>"),
    "matching": ("", " on(<labels>)", " on(<labels>)", " ignoring(<labels>)"),
    "grouped": ("", "", " group_left", " group_right", " group_left (<labels>)", " group_right (<labels>)"),
    "grouping": ("", " by (<labels>)", " without (<labels>)"),
    "scalar": (
        "<number>", "<number>", "scalar(<vector>)", "time()", "pi()", "(<scalar> <arithmetic> <scalar>)",
        "(<scalar> <comparison> bool <scalar>)", "-<scalar>",
    ),
    "aggregation": (
        *("<reduction><grouping> (<vector>)",) * 13, *("quantile<grouping> (<scalar>, <vector>)",) * 3,
        *("count_values<grouping> (<counted>, <vector>)",) * 3, "<chosen><grouping> (<any_count>, <vector>)",
    ),
    # `topk` of what may have equals: only at the top, where it shows which elements were chosen.
    "selection": ("<chosen><grouping> (<scalar>, <vector>)",),
    "function": (
        *("<of_vector>(<vector>)",) * 10, *("<of_time>(<vector>)",) * 5, "clamp(<vector>, <scalar>, <scalar>)",
        "clamp_min(<vector>, <scalar>)", "clamp_max(<vector>, <scalar>)", "round(<vector>, <scalar>)", "<of_time>()",
    ),
    "over_range": (*("<of_matrix>(<matrix>)",) * 8, "quantile_over_time(<scalar>, <matrix>)",
                   "predict_linear(<matrix>, <scalar>)"),
    "relabelled": (
        'label_join(<vector>, <target>, <text>, <source>, "node")',
        *('label_replace(<vector>, <target>, <replacement>, <source>, "<pattern>")',) * 2,
    ),
    "histogram": ("histogram_quantile(<scalar>, <buckets>)", "histogram_fraction(<scalar>, <scalar>, <buckets>)"),
    # What they say of two matchers on one label depends there on whether the storage was asked at all, which it is not
    # about a time before all samples.
    "other": (
        "vector(<scalar>)", "-<vector>", "+(<vector>)", "absent(<selector> offset <small_offset>)",
        "absent(<selector>)", "absent_over_time(<selector>[<duration>])", "absent(<aggregation>)",
        "absent_over_time((<aggregation>)[2m:<step>])", "timestamp(<timed>)", "timestamp((<timed>))",
    ),
}  # fmt: skip
_KEYWORDS = ("and", "or", "unless", "on", "by", "without", "bool", "ignoring", "group_left", "offset", "start", "end",
             "sum", "topk", "count_values", "atan2", "rate", "anchored", "smoothed", "inf", "x1", "_")  # fmt: skip
_ODD = {
    "name": (*_KEYWORDS, ":x", "job:util:mean5m", "Inf_", "e"),
    "label": (*_KEYWORDS, "le", "a:b", '""', '"x y"'),
    "text": ('"(a|b)?c{2}[^d]"', '"{}()[],#"', "`\n`", "`'\"`", '"say \\"x\\""', '"\\\\d+"', "`a\\b`"),
    "number": ("5.", "1E-3", "2e+1", "0XfF", "08", "iNf", "1e308", "1e-400", "9007199254740993", "9223372036854775808",
               "0x_1F", "1_0.5e1_0", "0_17", "7ms", "2w"),
    "duration": ("1d2h3m4s5ms", "05m", "90m", "1h30", "+5m", "--5m", " 1_000"),
    "offset": ("- 1h", "+5m", "-+5m", "-0.5"),
    "instant": ("-5", "1e9", "+1.5", "end ( )", "0x10", ".3", "5m", "-1h", "1_0"),
    "reduction": ("SUM", "Avg", "quantile"),
    "grouping": (" BY (<label>,)", " without ()", " by (<label>, <label>,)"),
    "matching": (" on()", " ignoring(<label>,)", " on(<labels>) group_left()", " bool"),
    "selector": ("<name>{}", "<name>{<matcher>,}", "{<matcher>,<quoted_name>,}", "{}", "<name>{<quoted_name>}"),
    "aggregation": ("<reduction>(<vector>)<grouping>", "<reduction><grouping>(<scalar>, <vector>)"),
    "matrix": ("<selected>[<duration>:]", "<selected>[<duration>:<duration>]<of_subquery>", "<selected>"),
    "scalar": ("pi ( )", "+<number>", "<selected>", "<text>"),
    "vector": ("<scalar>", "<text>", "<selector>[<duration>]", "- <selected>", "vector()", "hour ( )"),
}  # fmt: skip
"""What the grammar has beside that, and what it refuses."""
_SPACES = ("", "", "", " ", "  ", "\n", "\t", "\r\n", " # x\n")
_BETWEEN = re.compile(r"(?=[(){}\[\],])|(?<=[(){}\[\],])")
_SCRAPS = ("(", ")", "{", "}", "[", "]", ",", ":", "=", "=~", "!~", "==", "!", "@", "#", "'", '"', "`", ".", "-", "+",
           "^", "by", "on", "bool", "offset", "group_left", "group_right", "sum", "m", "a", "5", "5m", "0", "e", "_",
           "x", "$", "é", ";", "\\", "1.5h", "Inf", "()", "{}", "[5m]", "[5m:]", "without", "ignoring")  # fmt: skip


class Speaker:
    """Says queries; the same seed says the same."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._grammar = Grammar({**_WORDS, **_RULES}, self._dice, _ODD)

    def query(self, oddness: float = 0.0) -> str:
        self._grammar.oddness = oddness
        return self._grammar.say("query", self._dice.choice((2, 4, 4, 6, 6, 8, 10)))

    def odd(self) -> str:
        """A query as few would write it, which may be none."""
        return _BETWEEN.sub(lambda _: self._dice.choice(_SPACES), self.query(self._dice.choice((0.05, 0.1, 0.3))))

    def damaged(self) -> str:
        """A query with a few places changed."""
        text = self.odd()
        for _ in range(self._dice.choice((1, 1, 1, 2, 4))):
            first, second = sorted(self._dice.randrange(len(text) + 1) for _ in range(2))
            without = text[:first] + text[first + self._dice.choice((1, 1, 2, 5)) :]
            with_scrap = text[:first] + self._dice.choice((" ", "")) + self._dice.choice(_SCRAPS) + text[first:]
            doubled = text[:second] + text[first:second] + text[second:]
            swapped = text[second:] + text[first:second] + text[:first]
            text = self._dice.choice((without, with_scrap, doubled, swapped))
        return text

    def instant(self) -> float:
        """A time: on the samples' grid or off it, now and then where they begin or end, or far away."""
        kind = self._dice.random()
        if kind < 0.4:
            return START + 15.0 * self._dice.randrange(20, 81)
        if kind < 0.85:
            return round(START + 300 + self._dice.random() * 950, 3)
        return self._dice.choice((START, START - 1, END + 299.999, END + 300, END + 1e6, 0.0, START + 0.001))
