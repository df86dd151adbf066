"""What is written inside rules: queries, templates, regular expressions, durations and the notation of rule tests."""

from __future__ import annotations

import time
from pathlib import Path

from agent.config.quantities import duration, moment, size
from agent.lib.yamltree import Bounds, YamlError, load
from alerts import durations
from alerts.promql import EvaluationError, PromqlError, Storage, compile_query, make_labels
from alerts.promql.budget import Budget
from alerts.promql.labels import LimitError
from alerts.regex import RegexError, TextTooLongError, compile_regex
from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from alerts.unittests import notation
from tests.lab.fuzz.target import Target

STORAGE = Storage()
for gpu in "012":
    for minute in range(6):
        STORAGE.append(make_labels({"gpu": gpu, "le": f"{minute}"}, "m"), 60.0 * minute, 1.5 * minute * int(gpu))
        STORAGE.append(make_labels({"gpu": gpu}, "n"), 60.0 * minute, float("nan") if minute == 3 else 2.0**minute)
BOUNDS = Bounds(nodes=2000, depth=50)
SCENE = Root({"job": "a", "value": "1e300", "odd": "\\xé{{"}, 80.5, {"cluster": "east"}, "http://prometheus/path")


def use_query(data: bytes, folder: Path) -> None:
    query = compile_query(data.decode("utf-8", "surrogateescape"))
    query.evaluate(STORAGE, 300.0, Budget(time.monotonic, seconds=0.5))


def use_template(data: bytes, folder: Path) -> None:
    budget = Budget(time.monotonic, seconds=0.5)
    series = [Element({"gpu": gpu}, float(gpu)) for gpu in "012"]
    compile_template(data.decode("utf-8", "surrogateescape")).render(SCENE, lambda _: series, budget)


def use_regex(data: bytes, folder: Path) -> None:
    pattern, _, text = data.decode("utf-8", "surrogateescape").partition("\n")
    regex = compile_regex(pattern, groups=True)
    subject = text.encode("utf-8", "replace").decode()[:2000]
    regex.predicate()(subject)
    regex.found_in(subject)


def use_words(data: bytes, folder: Path) -> None:
    """A duration, a quantity and a series of a rule test, each of which may be refused."""
    text = data.decode("utf-8", "surrogateescape")
    for parse in (durations.parse, duration, size, moment, notation.series, notation.metric, notation.values):
        try:
            parse(text)
        except ValueError as error:
            assert str(error).strip() and str(error).isprintable() and len(str(error)) < 1000, error


def use_yaml(data: bytes, folder: Path) -> None:
    load(data.decode("utf-8", "surrogateescape"), BOUNDS)


TARGETS = (
    Target("promql", ("alerts/promql/compiler.py", "alerts/promql/syntax/literals.py", "alerts/promql/storage.py"),
           use_query, (b'sum by (gpu) (rate(m{gpu=~"0|1"}[5m])) > 1',
           b"n offset 1m @ 300 * on(gpu) group_left(le) m unless m", b"histogram_quantile(0.9, m)",
           b'label_replace(n, "a", "$1x", "gpu", "(.*)") or vector(time() % 7)',
           b"max_over_time(deriv(n[2m:10s])[3m:])[1m:]", b"topk(scalar(count(n)), -n ^ 2 ^ bool) or absent(x)",
           b'count_values("v", n) == bool 0x1f + 1e3 - Inf * NaN', b"predict_linear(n[5m], 3600) <= bool -0",
           b'{__name__="m", gpu!="2", le!~"[0-3]"} # comment\n', b"quantile_over_time(0.5, n[5m] offset -1m)",
           b"'\\x41\\u00e9\\101' ", b"round(clamp(n, -1, 1), 0.1) and ignoring(le) sort_desc(m)",
           b"day_of_week(vector(1e10)) + month(n) atan2 n", b"avg without(gpu, le) (m) ^ -stddev(n)"),
           (PromqlError, EvaluationError, TextTooLongError), shown=False, words=(b"offset", b"@", b"end()", b"[5m:1m]",
           b"by(gpu)", b"on(gpu)", b"group_left()", b"bool", b"{}", b"1e308", b"rate(", b"irate(", b"changes(",
           b"histogram_quantile(", b"label_join(", b"quantile(", b"holt_winters(", b"1y", b"5m", b"\\u", b"#", b"!~",
           b"=~", b"atan2", b"limitk(", b"sort_by_label(", b"info(")),
    Target("templates", ("alerts/template/parser.py", "alerts/template/quoting.py", "alerts/template/printf.py"),
           use_template, (b"{{ $value | humanize }} of {{ $labels.job }}",
           b"{{ range query `m` }}{{ .Labels.gpu }}={{ .Value }},{{ end }}",
           b'{{ printf "%+08.3f|%-10q|%x|%v|%T" $value $labels.odd 255 $labels 1 }}', b"{{- /* c */ -}} a {{- 1 -}} b",
           b"{{ if and (gt $value 1.0) (not false) }}x{{ else if eq 1 2 }}y{{ else }}z{{ end }}",
           b'{{ with $x := query "m" | first }}{{ $x | value | humanizeDuration }}{{ else }}-{{ end }}',
           b'{{ define "t" }}<{{ . }}>{{ end }}{{ template "t" 5 }}',
           b'{{ reReplaceAll "(a)(b)?" "$2$1" "ab" | toUpper }}',
           b"{{ humanize1024 1e300 }}{{ humanizePercentage 0.5 }}{{ humanizeTimestamp 1e9 }}{{ toTime 1e300 }}",
           b"{{ index $labels `job` }}{{ len $labels }}{{ slice `abc` 1 2 }}{{ args 1 2 }}",
           b"{{ sortByLabel `gpu` (query `m`) }}",
           b"{{ $externalURL }}{{ externalURL }}{{ pathPrefix }}{{ parseDuration `1h` }}",
           b"{{ stripPort `a:1` }}{{ match `a` `b` }}"), (TemplateError, RenderError, LimitError, TextTooLongError),
           shown=False, words=(b"{{", b"}}", b"{{-", b"-}}", b"end", b"range", b"break", b"continue", b"$v :=", b"|",
           b"printf", b"%[1]*d", b"%.*f", b"0x1p-2", b"1i", b"'a'", b"'\\u00e9'", b".Labels", b"block", b"nil",
           b"html", b"urlquery", b"js", b"print", b"first")),
    Target("regexes", ("alerts/regex/linear.py",), use_regex, (b"(a|b)+[[:alpha:]]{2,5}\nabcd",
           rb"(?P<n>x)(?i:y)\d\pL\x{41}\Q.*\E$" + b"\nxy1", b".*\\.example\\.com|a{1000}\nx.example.com",
           b"^(?:(?:a?){3}){50}$\naaaa", "[^é-ü]\\b\n".encode()), (RegexError, TextTooLongError), shown=False,
           words=(b"(?P<", b"(?i)", b"[[:", b"\\p{Greek}", b"{2,", b"\\C", b"(?:", b"|", b"\\Q")),
    Target("quantities", ("agent/config/quantities.py", "alerts/unittests/notation.py"), use_words, (b"1h30m",
           b"500ms", b"2026-11-21T08:00:00Z", b'm{a="b\\"c", d="e"}', b"1+2x3 _x2 stale -4-1x2 NaN Inf", b"10 MiB",
           b"16e9", b"0-0.5x10 1x5", b'{"quoted name", a="b"}', b"1e400x3"), words=(b"x", b"_", b"stale", b"1y", b"w",
           b"d", b"ms", b"{{", b"+1x", b"T", b"+00:00")),
    Target("yaml", ("agent/lib/yamltree.py",), use_yaml,
           (b"a: &x [1, 2.5, ~, 'q', \"\\u00e9\"]\nb: {<<: {c: *x}, d: |+\n  t\n}\n",
           b"? complex\n: - 1\n  - !!str 2\n--- \n...\n", b"a: >-\n  folded\n  text\n"), (YamlError,), shown=False),
)  # fmt: skip
