"""Templates: what they print is what Prometheus prints, and what they cannot do is refused when they are read."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from alerts.template.query_reads import format_query
from tests.servers import need, version_of

VALUES = [0, 1, -1, 5, 80.5, 0.1 + 0.2, 999.96, 1000, 1023, 1024, 1234567, 123456.789, -90061.5, 59.996, 61, 3600,
          86400, 0.00001234, -0.05, 1e-30, 1600000000.1234, 1e15, 1e20, 1e21, 1e25, 1e30,
          math.nan, math.inf, -math.inf]  # fmt: skip

LABELS = {"__name__": "m", "job": "gpu burn-in", "instance": "node1.example.com:9400", "rack_id": "r12", "empty": ""}

TEMPLATES = [
    "two\nlines {{ $value }}\n  {{- if true }}\n  x\n  {{- end }}",
    *(Path(__file__).parent / "data" / "templates.txt").read_text(encoding="utf-8")[:-1].split("\n"),
]


GIVEN = {name: text for name, text in LABELS.items() if text}
TIMESTAMP = "{{ humanizeTimestamp $value }} {{ humanizeDuration $value }}"


def rendered(template: str, value: float = 80.5) -> str:
    """What coldplate prints, where the only series is the alert's."""

    def ask(text: str) -> list[Element]:
        return {"nothing": [], "2 * 3": [Element({}, 6.0)]}.get(text, [Element(GIVEN, value)])

    root = Root(GIVEN, value, {"cluster": "east"}, "http://prometheus.example:9090/path")
    return compile_template(template, "A").render(root, ask, at=1700000000.5)


def has_timestamp(value: float) -> bool:
    """Nanoseconds in 64 bits end in 2262; beyond, Go prints what its processor makes of the overflow."""
    return not abs(value) > 9e9 or math.isinf(value)


def unit_test(value: float, templates: list[str]) -> dict[str, object]:
    """A promtool test in which each of these templates prints, for one value, what coldplate prints."""
    labels = ",".join(f'{name}="{text}"' for name, text in GIVEN.items() if name != "__name__")
    exp_labels = {name: text for name, text in GIVEN.items() if name != "__name__"}
    texts = {f"a{number}": rendered(template, value) for number, template in enumerate(templates)}
    cases = [{"alertname": "A", "exp_alerts": [{"exp_labels": exp_labels, "exp_annotations": texts}]}]
    if has_timestamp(value):
        told = {"t": rendered(TIMESTAMP, value)}
        cases.append({"alertname": "T", "exp_alerts": [{"exp_labels": exp_labels, "exp_annotations": told}]})
    shown = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}.get(repr(value), repr(value))
    return {
        "interval": "1m",
        "external_labels": {"cluster": "east"},
        "external_url": "http://prometheus.example:9090/path",
        "input_series": [{"series": f"m{{{labels}}}", "values": shown}],
        "alert_rule_test": cases,
    }


WORDS = '{{ title "it'
"""What begins so is printed otherwise before 3.3: `title` found a word after every mark then, also within `it's`."""


def test_every_template_prints_what_prometheus_prints(
    tmp_path: Path, promtool: Callable[..., tuple[int, str]], coldplate: Callable[..., tuple[int, str]]
) -> None:
    assert len([template for template in TEMPLATES if template.startswith(WORDS)]) == 1
    older = version_of(need("promtool")) < (3, 3)
    compared = [template for template in TEMPLATES if not (older and template.startswith(WORDS))]
    annotations = {f"a{number}": template for number, template in enumerate(compared)}
    rules = [
        {"alert": "A", "expr": "m", "annotations": annotations},
        {"alert": "T", "expr": "m", "annotations": {"t": TIMESTAMP}},
    ]
    (tmp_path / "r.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    tests = [unit_test(float(value), compared) for value in VALUES]
    (tmp_path / "t.yml").write_text(yaml.safe_dump({"rule_files": ["r.yml"], "tests": tests}))
    for judge in (promtool, coldplate):
        status, text = judge("test", tmp_path / "t.yml")
        assert status == 0, text


REFUSED = {
    "{{ $value": "the action is not closed; end it with }}",
    "{{ }}": "is empty",
    "{{ $labls.x }}": "undefined variable $labls; defined are $labels, $externalLabels, $externalURL, $value",
    "{{ humanise $value }}": "function 'humanise' not defined; did you mean 'humanize'?",
    '{{ tmpl "x" 1 }}': "function 'tmpl' not defined",
    "{{ if $value }}x": "{{ if }} is not closed",
    "{{ end }}": "{{ end }} has nothing to end",
    '{{ $value }}{{ printf "%.2f %G" $value }}': "column 23: printf cannot write '%G'; it has %v %s",
    '{{ printf "%+v" . }}': "printf cannot write '%+v'",
    '{{ printf "%[1]d" 1 }}': "printf cannot write '%['",
    '{{ printf "%*d" 5 1 }}': "printf cannot write '%*'",
    '{{ printf "%#x" 255 }}': "printf cannot write '%#'",
    '{{ printf "100%" }}': "printf cannot write '%'",
    '{{ printf "%1001d" 1 }}': "is wider than 1000",
    "{{ if $value }}a{{ else with 1 }}b{{ end }}": "only {{ else }} and, after if and with, {{ else if }} may",
    "{{ range 3 }}a{{ else if 1 }}b{{ end }}": "only {{ else }} and, after if and with",
    '{{ define "x" }}': "{{ define }} is not closed",
    "{{ define x }}{{ end }}": "after define, which needs a name in quotes",
    '{{ if 1 }}{{ define "x" }}{{ end }}{{ end }}': "unexpected 'define'",
    '{{ define "x" }}{{ $value }}{{ end }}': "undefined variable $value; pass it as .",
    '{{ define "x" }}1{{ end }}{{ define "x" }}2{{ end }}': "'x' is already defined",
    "{{ break }}": "{{ break }} is outside range",
    '{{ range 3 }}{{ block "x" . }}{{ break }}{{ end }}{{ end }}': "{{ break }} is outside range",
    '{{ "a }}': "the string is not closed",
    "{{ (len $labels }}": "the parenthesis is not closed",
    "{{ len $labels) }}": "no parenthesis is open",
    "{{ $value ! }}": "'!' has no meaning inside",
    "{{ 1x }}": "is not a number",
    "{{/* open": "the comment is not closed",
    "{{/* open */ x }}": "the comment ends before the action",
    "{{ | humanize }}": "a value is missing",
    "{{ 1 | 2 }}": "only a function can follow |",
    "{{ true.x }}": "this value has no field .x",
    "{{ $x, $y := 1 }}": "only range declares two variables at once",
    '{{ "a"$value }}': "a space is missing before",
    "a\nb {{ $oops }}": "line 2, column 6: undefined variable",
}


@pytest.mark.parametrize("template", REFUSED, ids=list(REFUSED))
def test_what_prometheus_refuses_is_refused_with_construct_and_remedy(template: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template(template)
    assert REFUSED[template] in str(caught.value)


UNWISE = {
    "{{ .Lables.x }}": ".Lables: the alert has no such field",
    "{{ with 1 }}{{ $.Lables }}{{ end }}": "",
    "{{ $value.x }}": "a string or number has no field .x",
    "{{ humanize }}": "wrong number of arguments for humanize: want 1, got 0",
    "{{ $value | humanize 1 }}": "wrong number of arguments for humanize: want 1, got 2",
    "{{ print (eq) }}": "wrong number of arguments for eq: want at least 1, got 0",
    "{{ $value 1 }}": "only a function takes arguments",
    "{{ gt $value 80 }}": "cannot be compared with 80; write 80.0",
    '{{ eq $value "a" }}': 'the value is a float and cannot be compared with "a"',
    "{{ $value := 1 }}{{ gt $value 80 }}": "",
    '{{ template "x" }}': "the template 'x' is not defined",
    '{{ define "x" }}{{ .Nope }}{{ end }}{{ template "x" . }}': "",
    "{{ now }}": "now needs Prometheus 3.6; an older server rejects the file",
    "{{ nil }}": "nil is not a command",
    "{{ 9223372036854775808 }}": "overflows a 64-bit integer; write a float",
    "{{ reReplaceAll `(` `` $labels.job }}": "error parsing regexp: missing closing ): `(`",
    r"{{ if match `\C` $labels.job }}{{ end }}": r"invalid escape sequence",
    "{{ range $i, $x := $labels }}{{ $i }}{{ humanize $x }}{{ end }}": "",
}


@pytest.mark.parametrize("template", UNWISE, ids=list(UNWISE))
def test_what_can_only_fail_when_the_alert_fires_is_reported(template: str) -> None:
    told = compile_template(template).unwise
    assert bool(told) == bool(UNWISE[template])
    assert all(UNWISE[template] in each for each in told[:1])


AT = 'error executing template __alert_A: template: __alert_A:1:{}: executing "__alert_A" at <{}>: '


@pytest.mark.parametrize(
    ("template", "place", "context", "reason"),
    [
        ("{{ humanize $labels.job }}", 115, "humanize $labels.job",
         'error calling humanize: strconv.ParseFloat: parsing "gpu burn-in": invalid syntax'),
        ("{{ reReplaceAll (print `(`) `` $labels.job }}", 115, "reReplaceAll (print `(`) `` $labels.job",
         "error calling reReplaceAll: regexp: Compile(`(`): error parsing regexp: missing closing ): `(`"),
        ("{{ first (query `nothing`) }}", 115, "first (query `nothing`)",
         "error calling first: first() called on vector with no elements"),
        ("{{ eq $labels.job 1 }}", 115, "eq $labels.job 1",
         "error calling eq: incompatible types for comparison: string and int"),
        ("é{{ toUpper $value }}", 125, "$value", "wrong type for value; expected string; got float64"),
        ("{{ index $labels 1 }}", 115, "index $labels 1",
         "error calling index: value has type int; should be string"),
        ("{{ range $value }}{{ end }}", 121, "$value", "range can't iterate over 80.5"),
        ("{{ .Value.x }}", 121, ".Value.x", "can't evaluate field x in type interface {}"),
        ("{{ $x = 1 }}", 120, "1", "undefined variable: $x"),
    ],
)  # fmt: skip
def test_what_fails_says_what_prometheus_says(template: str, place: int, context: str, reason: str) -> None:
    """Texts that were seen of Prometheus 3.5.3; `make parity` has more of them than can be listed."""
    with pytest.raises(RenderError) as caught:
        rendered(template)
    assert str(caught.value) == AT.format(place, context) + reason


def test_a_template_that_calls_itself_ends() -> None:
    with pytest.raises(RenderError, match="is nested more than 100 templates, branches and parentheses deep"):
        rendered('{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}')
    with pytest.raises(RenderError, match="calls itself"):
        rendered('{{ template "__alert_A" }}')


@pytest.mark.parametrize(("template", "printed"), [
    ("{{ now }} {{ toDuration $value }} {{ (toDuration 90).Minutes }} {{ urlQueryEscape `a b&` }}",
     "1.7000000005e+09 1m20.5s 1.5 a+b%26"),
    ("{{ range 4 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}", "02"),
    ("{{ with 0 }}a{{ else with 7 }}{{ . }}{{ else }}b{{ end }}", "7"),
    ('{{ define "x" }}<{{ . }}>{{ end }}{{ template "x" $labels.job }}{{ block "y" 1 }}{{ . }}!{{ end }}',
     "<gpu burn-in>1!"),
    ("{{ (args 1 `b`).arg1 }}{{ (args 1).arg7 }}", "b<no value>"),
])  # fmt: skip
def test_what_older_servers_or_other_tests_do_not_have(template: str, printed: str) -> None:
    assert rendered(template) == printed


ASKED = {
    '{{ if query "a" }}{{ range "b" | query }}{{ len (query `c`) }}{{ end }}{{ end }}{{ query "a" | len }}': [
        "a", "b", "c"],
    '{{ printf "a{b=%q} > %.2f" $labels.b $value | query }}': ['a{b="..."} > ...'],
    '{{ $labels.b | printf "a{b=%q} > %v" $labels.c | query | first | value }}': ['a{b="..."} > ...'],
    '{{ (query (printf "sum by (%v) (a)" $labels.b) | first).Value }}': ["sum by (...) (a)"],
    '{{ define "x" }}{{ query ("a") }}{{ end }}{{ template "x" query (printf "b_%s %% 2" .) }}': ["a", "b_... % 2"],
}  # fmt: skip


@pytest.mark.parametrize("template", ASKED)
def test_a_template_names_the_queries_that_it_may_ask(template: str) -> None:
    assert sorted(map(format_query, compile_template(template).queries)) == sorted(ASKED[template])


@pytest.mark.parametrize(
    "asks",
    ["query $labels.q", '$q := "a" }}{{ query $q', 'query (print "a" $labels.b)', "query (printf $labels.f)",
     'with query "a" }}{{ query (toUpper "b") }}{{ end', 'define "x" }}{{ query . }}{{ end }}{{ template "x" .'],
)  # fmt: skip
def test_a_query_whose_text_is_not_in_the_template_is_refused_by_its_place(asks: str) -> None:
    template = f"{{{{ {asks} }}}}"
    column = template.rindex("query") + 1
    with pytest.raises(TemplateError, match=f"column {column}: the text of the query is not in the template"):
        compile_template(template)
