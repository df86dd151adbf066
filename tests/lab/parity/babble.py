"""Queries out of a seed: some as the grammar has them, some of them damaged afterwards."""

from __future__ import annotations

import random

from tests.grammar import Grammar

_RULES = {
    "query": ("<vector>", "<vector>", "<vector>", "<scalar>", "<matrix>", "<string>"),
    "vector": ("<selector>", "<selector>", "<aggregation>", "<call>", "<operation>", "( <vector> )", "<sign> <vector>"),
    "scalar": ("<number>", "<scalar> <arithmetic> <scalar>", "<scalar> <comparison> bool <scalar>",
               "scalar( <vector> )", "<sign> <scalar>", "( <scalar> )", "time()", "pi ( )"),
    "matrix": ("<range>", "<range>", "<vector> [<span> : <span> ] <modifiers>", "<vector> [<span> : ] <modifiers>"),
    "range": ("<series> [<span> ] <modifiers>",),
    "selector": ("<series> <modifiers>",),
    "series": ("<metric>", "<metric>", "<metric> { }", "<metric> { <matchers> }", "<metric> { <matchers> , }",
               "<metric> { <matchers> }", "{ <matchers> }", "{ <matchers> , <quoted> }", "{ <quoted> }"),
    "quoted": ('"metric.name"', "'x y'", "`é`", '"m"'),
    "matchers": ("<matcher>", "<matcher>", "<matcher> , <matcher>", "<matcher> , <matcher> , <matcher>"),
    "matcher": ("<label> <equality> <string>",),
    "modifiers": ("", "", "", "", "offset <offset>", "@ <instant>", "offset <offset> @ <instant>"),
    "aggregation": ("<reduction> <grouping> ( <vector> )", "<reduction> ( <vector> ) <grouping>",
                    "<reduction> <grouping> ( <vector> )", "<choice> <grouping> ( <scalar> , <vector> )",
                    "<choice> ( <scalar> , <vector> ) <grouping>", "count_values ( <string> , <vector> ) <grouping>"),
    "grouping": ("", "<by> <names>"),
    "names": ("( )", "( <group> )", "( <group> , <group> )", "( <group> , <group> , <group> )", "( <group> , )"),
    "operation": ("<vector> <arithmetic> <matching> <vector>", "<vector> <comparison> <matching> <vector>",
                  "<vector> <comparison> bool <matching> <vector>", "<scalar> <arithmetic> <vector>",
                  "<vector> <comparison> bool <scalar>", *("<vector> <set> <on> <vector>",) * 2),
    "matching": ("", "", "<on>", "<on> <side>", "<on> <side> <names>"),
    "on": ("on <names>", "ignoring <names>"),
    "call": ("<ofvector> ( <vector> )", "<ofmatrix> ( <matrix> )", "vector( <scalar> )", "round( <vector> , <scalar> )",
             "clamp( <vector> , <scalar> , <scalar> )", "quantile_over_time( <scalar> , <matrix> )",
             "histogram_quantile( <scalar> , <vector> )", "predict_linear( <matrix> , <scalar> )",
             'label_replace( <vector> ,"x","$1","a","(.*)")', 'label_join( <vector> ,"x","-" ,"a" ,"b" )',
             'label_join( <vector> ,"x","-" )', "<date> ( )", "<date> ( <vector> )"),
    "side": ("group_left", "group_right"), "by": ("by", "without", "BY"), "sign": ("+", "-"),
    "choice": ("topk", "bottomk", "quantile"), "set": ("and", "or", "unless"), "date": ("hour", "month", "year"),
    "equality": ("=", "!=", "=~", "!~"), "comparison": ("==", "!=", "<", ">", "<=", ">="),
    "arithmetic": ("+", "-", "*", "/", "%", "^", "atan2"),
    "metric": ("m", "up", "job:util:mean5m", ":x", "and", "or", "unless", "by", "without", "offset", "start", "end",
               "sum", "count_values", "topk", "anchored", "smoothed", "rate", "Inf_", "e", "x1", "_"),
    "label": ("a", "job", "le", "__name__", "on", "by", "and", "bool", "sum", "group_left", "offset", "start", "inf",
              '"label.name"', "'a b'", '""', "`é`"),
    "group": ("a", "job", "le", "on", "by", "and", "bool", "sum", "group_left", "offset", "start", "ignoring", "atan2",
              '"label.name"', "'x y'", "a:b"),
    "string": ('""', '"x"', "'x'", "`x`", '"a|b"', '".*"', '".+"', '"x\\ny"', '"\\u00e9"', '"\\xc3\\xa9"', '"\\101"',
               "'it\\'s'", '"say \\"x\\""', '"é"', '"{}()[],#"', '"(a|b)?c{2}[^d]"', '"\\\\d+"',
               "`a\\b`", "`\\d+`", "`\n`", "`'\"`"),
    "number": ("0", "1", "5", "0.5", ".5", "5.", "1e3", "1E-3", "2e+1", "0x1F", "0XfF", "017", "08", "Inf", "nan",
               "iNf", "1e308", "1e-400", "9007199254740993", "9223372036854775808", "1_000", "0x_1F", "1_0.5e1_0",
               "0_17", "5m", "1h30m", "7ms", "2w"),
    "span": ("5m", "1h", "30s", "1h30m", "1d2h3m4s5ms", "2w", "1y", "7ms", "05m", "90m", "300", "0.5", "1e2", "0x1F",
             "+5m", "--5m", " 1_000"),
    "offset": ("5m", "-5m", "- 1h", "1y", "7ms", "300", "-0.5", "0", "--5m", "+5m", "-+5m"),
    "instant": ("5", "-5", "1e9", "+1.5", "start()", "end ( )", "0x10", ".3", "5m", "-1h", "1_0"),
    "reduction": ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "SUM", "Avg"),
    "ofvector": ("abs", "absent", "ceil", "floor", "sgn", "sqrt", "exp", "ln", "log2", "log10", "sort", "sort_desc",
                 "timestamp", "sin", "cosh", "deg", "histogram_count", "hour", "day_of_year", "round"),
    "ofmatrix": ("rate", "irate", "increase", "delta", "changes", "resets", "avg_over_time", "absent_over_time",
                 "last_over_time", "present_over_time", "stddev_over_time", "deriv"),
}  # fmt: skip
_SPACES = ("", "", "", " ", " ", " ", "  ", "\n", "\t", "\r\n", " # x\n")
_SCRAPS = ("(", ")", "{", "}", "[", "]", ",", ":", "=", "=~", "!~", "==", "!", "@", "#", "'", '"', "`", ".", "-", "+",
           "^", "by", "on", "bool", "offset", "group_left", "group_right", "sum", "m", "a", "5", "5m", "0", "e", "_",
           "x", "$", "é", ";", "\\", "1.5h", "Inf", "()", "{}", "[5m]", "[5m:]", "without", "ignoring")  # fmt: skip


class Babbler(Grammar):
    """Says queries, mostly of the grammar, and damaged ones."""

    def __init__(self, seed: int) -> None:
        super().__init__(_RULES, random.Random(seed))

    def query(self) -> str:
        """A query, mostly well formed and of the right types."""
        return self.say("query", self.dice.choice((2, 4, 6, 8, 12)))

    def damaged(self) -> str:
        """A query with a few places changed."""
        text = self.query()
        for _ in range(self.dice.choice((1, 1, 1, 2, 4))):
            first, second = sorted(self.dice.randrange(len(text) + 1) for _ in range(2))
            without = text[:first] + text[first + self.dice.choice((1, 1, 2, 5)) :]
            with_scrap = text[:first] + self.dice.choice((" ", "")) + self.dice.choice(_SCRAPS) + text[first:]
            doubled = text[:second] + text[first:second] + text[second:]
            swapped = text[second:] + text[first:second] + text[:first]
            text = self.dice.choice((without, with_scrap, doubled, swapped))
        return text

    def say(self, name: str, room: int) -> str:
        if name in ("vector", "scalar", "matrix") and self.dice.random() < 0.02:
            name = self.dice.choice(("vector", "scalar", "matrix", "string"))  # of another type
        return super().say(name, room)

    def join(self, parts: list[str]) -> str:
        """Put parts together with spaces between them; words never touch."""
        text = ""
        for part in filter(None, parts):
            touching = text[-1:].isalnum() or text[-1:] in ("_", ":", ".")
            space = self.dice.choice(_SPACES)
            text += (space or " " if touching and part[:1] not in "([{,)]}" else space) + part
        return text.lstrip()
