"""Templates: what they print is what Prometheus prints, and what they cannot do is refused when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from alerts.template.foreseen import shown
from tests.servers import need, version_of

VALUES = [0, 1, -1, 5, 80.5, 0.1 + 0.2, 999.96, 1000, 1023, 1024, 1234567, 123456.789, -90061.5, 59.996, 61, 3600,
          86400, 0.00001234, -0.05, 1e-30, 1600000000.1234, 1e15, 1e20, 1e21, 1e25, 1e30,
          math.nan, math.inf, -math.inf]  # fmt: skip

LABELS = {"__name__": "m", "job": "gpu burn-in", "instance": "node1.example.com:9400", "rack_id": "r12", "empty": ""}

TEMPLATES = (Path(__file__).parent / "data" / "templates.txt").read_text(encoding="utf-8")[:-1].split("\n---\n")


GIVEN = {name: text for name, text in LABELS.items() if text}
TIMESTAMP = "{{ humanizeTimestamp $value }} {{ humanizeDuration $value }}"


def rendered(template: str, value: float = 80.5) -> str:
    """What coldplate prints, where the only series is the alert's."""

    def ask(text: str) -> list[Element]:
        return {"nothing": [], "2 * 3": [Element({}, 6.0)]}.get(text, [Element(GIVEN, value)])

    return compile_template(template).render(
        Root(GIVEN, value, {"cluster": "east"}, "http://prometheus.example:9090/path"), ask
    )


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
    "{{ $labls.x }}": "undefined variable $labls",
    "{{ .Lables.x }}": ".Lables: the alert has no such field",
    "{{ $value.x }}": "cannot be taken of a text or a number",
    "{{ $labels.a.b }}": "$labels.a.b: .b cannot be taken",
    "{{ humanise $value }}": "function 'humanise' not defined; did you mean humanize?",
    "{{ humanize }}": "wrong number of arguments for humanize: wants 1, got 0",
    "{{ $value | humanize 1 }}": "wrong number of arguments for humanize: wants 1, got 2",
    "{{ $value | $labels }}": "'$labels' is no function",
    "{{ $value 1 }}": "'$value' is no function",
    "{{ gt $value 80 }}": "cannot be compared with 80; write 80.0",
    '{{ eq $value "a" }}': "the value is a float and cannot be compared with 'a'",
    '{{ printf "%y" 1 }}': "'%y' is no verb",
    '{{ printf "%99999d" 1 }}': "'%99999d' is wider than 1000",
    '{{ printf "%*d" 1 2 }}': "takes its width from an argument",
    "{{ if $value }}x": "{{ if }} is not closed",
    "{{ end }}": "{{ end }} ends nothing",
    "{{ else }}": "{{ else }} ends nothing",
    "{{ if $value }}a{{ else with }}b{{ end }}": "only {{ else }} and, after if, {{ else if }} can be here",
    '{{ define "x" }}{{ end }}': "{{ define }} is not supported in rules",
    '{{ template "x" }}': "{{ template }} is not supported in rules",
    "{{ range $labels }}{{ break }}{{ end }}": "{{ break }} is not supported",
    '{{ graphLink "up" }}': "the function graphLink is not supported; write the link as text",
    "{{ toTime $value }}": "use humanizeTimestamp",
    "{{ 'a' }}": "'a' is a character; write texts in double quotes",
    '{{ "a }}': "the text is not closed",
    "{{ nil }}": "nil is not a command",
    "{{ (len $labels }}": "the parenthesis is not closed",
    "{{ $x = 1 }}": "undefined variable $x; declare it with :=",
    "{{ $value ! }}": "'!' means nothing inside",
    "{{/* open": "the comment is not closed",
    "{{ | humanize }}": "a value is missing",
    "{{ reReplaceAll `(` `` $labels.job }}": "column 4: regular expression '(': missing )",
    r"{{ if match `\C` $labels.job }}{{ end }}": r"invalid escape sequence \C",
    "a\nb {{ $oops }}": "line 2, column 6: undefined variable",
}


@pytest.mark.parametrize("template", REFUSED, ids=list(REFUSED))
def test_what_cannot_be_rendered_is_refused_with_construct_and_remedy(template: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template(template)
    assert REFUSED[template] in str(caught.value)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ humanize $labels.job }}", "error calling humanize: 'gpu burn-in' is no number"),
        (
            "{{ reReplaceAll (print `(`) `` $labels.job }}",
            "error calling reReplaceAll: regular expression '(': missing )",
        ),
        ("{{ first (query `nothing`) }}", "first() called on vector with no elements"),
        ("{{ eq $labels.job 1 }}", "incompatible types for comparison"),
        ("{{ toUpper $value }}", "wrong type for value; expected string; got float64"),
        ("{{ humanize `1_000` }}", "'1_000' is no number"),
        ('{{ printf (print "%" "y") 1 }}', "error calling printf: printf '%y': '%y' is no verb"),
        ("{{ index $labels 1 }}", "wrong type for value; expected string; got int"),
        ("{{ query `nothing` }}{{ range $value }}{{ end }}", "a template.queryResult has no text"),
    ],
)
def test_a_value_that_a_function_cannot_take_is_told_with_the_function(template: str, reason: str) -> None:
    with pytest.raises(RenderError) as caught:
        rendered(template)
    assert reason in str(caught.value)


ASKED = {
    '{{ if query "a" }}{{ range "b" | query }}{{ len (query `c`) }}{{ end }}{{ end }}{{ query "a" | len }}': [
        "a", "b", "c"],
    '{{ printf "a{b=%q} > %.2f" $labels.b $value | query }}': ['a{b="..."} > ...'],
    '{{ $n := "a" }}{{ if $value }}{{ $n = "b" }}{{ end }}{{ query (print $n "{x=\'" $labels.x "\'}") }}': [
        "a{x='...'}", "b{x='...'}"],
    '{{ range $i, $x := query "a" }}{{ query (printf "b{i=%q}[%d]" $x.Labels.i 7) }}{{ end }}': ["a", 'b{i="..."}[7]'],
    '{{ $q := "a" }}{{ range $labels }}{{ $q = print $q "+a" }}{{ end }}{{ query $q }}': [
        "...", "...+a", "a", "a+a"],
    '{{ query $labels.q }}{{ query (print (toUpper "a") 1 2) }}': ["...", "A1 2"],
    "{{ with $x := `a` }}{{ query (or $labels.q $x .) }}{{ end }}": ["...", "a"],
}  # fmt: skip


@pytest.mark.parametrize("template", ASKED)
def test_a_template_names_the_queries_that_it_may_ask(template: str) -> None:
    assert sorted(map(shown, compile_template(template).queries)) == sorted(ASKED[template])
