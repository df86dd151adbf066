"""A rule file that cannot be used says why; one that can is what it says; the notation of tests; runbook links."""

import math
from itertools import chain
from pathlib import Path

import pytest

from agent import cli
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.wiring.alerting import load_files
from alerts import durations, rulefile
from alerts.promql import is_stale
from alerts.rulefile import AlertingRule, RecordingRule, RuleFile, RuleFileError, load
from alerts.template import Element, RenderError, Root, compile_template
from tests.rule_tests import notation

RULE = "groups:\n- name: g\n  rules:\n  - alert: Hot\n    expr: t > 80\n"

WRONG = {
    "groups:\n- name: g\n  intervall: 1m\n": "f.yml:3: group 'g': intervall: unknown key; did you mean 'interval'?",
    "groups:\n- name: g\n  zzz: 1m\n": "f.yml:3: group 'g': zzz: unknown key; use one of name, interval,",
    f"{RULE}    fro: 1m\n": "f.yml:6: group 'g', rule 1: fro: unknown key; did you mean 'for'?",
    f"{RULE}    for: 1.5m\n": "f.yml:6: group 'g', rule 1, alert 'Hot', for: '1.5m' is not a duration; write whole",
    f"{RULE}    for: 999999y\n": "'999999y' is too long a duration",
    f"{RULE}    record: hot\n": "f.yml:4: group 'g', rule 1: only one of 'record' and 'alert' must be set",
    f"{RULE}    labels: {{__name__: c}}\n": "f.yml:6: group 'g', rule 1, alert 'Hot': labels: invalid label name",
    f"{RULE}    labels: [a]\n": "f.yml:6: group 'g', rule 1, alert 'Hot', labels: must be a mapping",
    f"{RULE}    annotations:\n      summary: ok\n      text: '{{{{ humanise $value }}}}'\n": (
        "f.yml:8: group 'g', rule 1, alert 'Hot', annotation 'text': template: column 4: function 'humanise' not"
    ),
    f"{RULE}- name: g\n": "f.yml:6: group 'g': name: is repeated in the same file (line 2); give it another name",
    f"{RULE}- rules: []\n": "f.yml:6: group: name: is missing",
    "groups:\n- name: g\n  rules:\n  - alert: Hot\n    expr: ratee(t[5m])\n": "f.yml:5: group 'g', rule 1, alert",
    "groups:\n- name: g\n  rules:\n  - record: 'a{b}'\n    expr: t\n": "record 'a{b}': record: 'a{b}' has braces",
    "groups:\n- name: g\n  rules:\n  - record: ab\n": "f.yml:4: group 'g', rule 1, record 'ab': expr: is missing",
    "groups:\n- name: [g\n": "f.yml:2: is not valid YAML: ",
    "groups:\n- name: g\n  limit: 1\n  limit: 2\n": "f.yml:4: group 'g': limit: duplicate key; remove one",
    "groups:\n- name: g\n  limit: few\n": "f.yml:3: group 'g', limit: 'few' is not a whole number",
    "groups: 7\n": "f.yml:1: groups: must be a list",
    "7\n": "f.yml:1: must be a mapping",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_reported_with_its_place_and_remedy(text: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        rulefile.parse(text, "f.yml")
    assert WRONG[text] in str(caught.value)


def test_up_to_fifty_mistakes_of_a_file_are_reported_in_the_order_of_its_lines() -> None:
    text = RULE + "    for: soon\n    labels: {__name__: c}\n- name: h\n  limits: 3\n"
    with pytest.raises(RuleFileError) as caught:
        rulefile.parse(text, "f.yml")
    assert [problem.line for problem in caught.value.problems] == [6, 7, 9]
    rules = "".join(f"  - {{alert: A{number}, expr: up, fro: 1m}}\n" for number in range(200))
    with pytest.raises(RuleFileError) as caught:
        rulefile.parse("groups:\n- name: g\n  rules:\n" + rules, "f.yml")
    assert len(caught.value.problems) == 51
    assert str(caught.value.problems[-1]) == ("f.yml: 50 problems found; fix these first, the rest was not checked")


UNWISE = {
    "groups:\n- name: g\n  rules:\n  - {record: r, expr: a}\n  - {record: r, expr: b}\n": (
        "f.yml:5: group 'g', rule 2, record 'r': records the same metric with the same labels as"
    ),
    f"{RULE}    annotations:\n      n: '{{{{ query `up ==` }}}}'\n": (
        "f.yml:7: group 'g', rule 1, alert 'Hot', annotation 'n': template: query: "
    ),
    RULE.replace("t > 80", "t[5m]"): (
        "expr: will fail at every evaluation: line 1, column 1: rule result is not a vector or scalar"
    ),
    f"{RULE}  - alert: Hot\n    expr: t > 90\n": (
        "f.yml:6: group 'g', rule 2, alert 'Hot': has the name and labels of the alert on line 4: "
    ),
    "groups: [{name: g, rules: [{alert: A, expr: up}, {alert: A, expr: down}]}]": "the alert on line 1",
    "groups: [{name: g, rules: [{record: a, expr: up, for: 0s}]}]": "record 'a': for: has no effect in a",
    "groups: [{name: g, rules: [{record: a, expr: up, annotations: {}}]}]": "annotations: has no effect in a",
    f"{RULE}---\ngroups: []\n": "f.yml:7: is ignored after the end of a document: Prometheus",
    f"{RULE}...\n# a remark\n---\n}}{{\n": "f.yml:9: is ignored after",
    f"{RULE}    labels: {{a-b: c}}\n": "labels: the name 'a-b' needs Prometheus 3: Prometheus before 3.0 rejects the",
    f"{RULE}    annotations: {{ü: c}}\n": "annotations: the name 'ü' needs Prometheus 3: Prometheus before 3.0 rejects",
    "groups:\n- name: g\n  rules:\n  - record: a b\n    expr: t\n": "record: the name 'a b' needs Prometheus 3",
    f"{RULE}    labels: {{a: '{{{{ gt $value 1 }}}}'}}\n": "alert 'Hot', label 'a': template: column 14: the value is",
    "groups: [{name: g, labels: {a: '{{ $x }}'}, rules: [{alert: A, expr: up}]}]": "'a': template: column 4: undef",
}


@pytest.mark.parametrize("text", UNWISE)
def test_what_is_unwise_is_reported_and_loaded_as_prometheus_loads_it(text: str) -> None:
    (warning,) = map(str, rulefile.parse(text, "f.yml").warnings)
    assert UNWISE[text] in warning


@pytest.mark.parametrize("end", ["---\n", "---\n---\n# c\n", "...\n", "# c\n", "--- # c\n...\n\n"])
def test_empty_content_after_a_document_does_not_matter(end: str) -> None:
    assert rulefile.parse(RULE + end, "f.yml").warnings == ()


def test_a_groups_label_that_is_not_a_template_fails_as_in_prometheus() -> None:
    """Prometheus reads it when an alert fires only."""
    text = "groups: [{name: g, labels: {a: '{{ nope }}'}, rules: [{alert: A, expr: up}]}]"
    (rule,) = rulefile.parse(text, "f.yml").groups[0].rules
    assert isinstance(rule, AlertingRule)
    with pytest.raises(RenderError) as caught:
        rule.labels[0][1].render(Root({}, 1.0, {}, ""), lambda _: [])
    assert str(caught.value) == ('error parsing template __alert_A: template: __alert_A:1: function "nope" not defined')


def test_a_file_is_what_it_says() -> None:
    loaded = rulefile.parse(
        "groups:\n- name: g\n  interval: 1m30s\n  limit: 5\n  query_offset: 10s\n  labels: {team: hpc, tier: a}\n"
        "  rules:\n  - {record: 'a:b', expr: sum(t), labels: {x: 'y'}}\n"
        "  - {alert: Hot, expr: t > 80, for: 2m, keep_firing_for: 1h, labels: {tier: b}}\n",
        "f.yml",
    )
    (group,) = loaded.groups
    assert (group.name, group.interval, group.limit, group.query_offset) == ("g", 90.0, 5, 10.0)
    recording, alerting = group.rules
    assert isinstance(recording, RecordingRule)
    assert isinstance(alerting, AlertingRule)
    assert recording.labels == (("team", "hpc"), ("tier", "a"), ("x", "y"))
    assert (alerting.terms.hold, alerting.terms.keep_firing, alerting.expression) == (120.0, 3600.0, "t > 80")
    assert [(name, template.source) for name, template in alerting.labels] == [("team", "hpc"), ("tier", "b")]
    assert (recording.line, alerting.line, loaded.rule_count) == (8, 9, 2)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "latin.yml").write_bytes(b"groups: [{name: \xe9}]")
    for name, reason in (("none.yml", "No such file"), ("latin.yml", "not UTF-8"), (".", "directory")):
        with pytest.raises(RuleFileError, match=reason):
            rulefile.load(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("0", 0, "0s"),
        ("5m", 300, "5m"),
        ("90s", 90, "1m30s"),
        ("1h30m", 5400, "1h30m"),
        ("1500ms", 1.5, "1s500ms"),
        ("14d", 1209600, "2w"),
        ("90d", 7776000, "90d"),
        ("1y1d", 31622400, "366d"),
    ],
)
def test_durations_are_read_and_shown_as_prometheus_does(text: str, seconds: float, shown: str) -> None:
    assert durations.parse(text) == seconds
    assert durations.show(seconds) == shown


@pytest.mark.parametrize("text", ["", "5", "m", "1m1h", "-5m", "5 m", "1.5h", "5M"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


def test_a_message_is_one_readable_line_whatever_a_file_contains() -> None:
    name = "x" * 5000
    for text in (
        f'groups: [{{name: "a\\nb\\x1b[2J{name}", zzz: 1}}]',
        f'groups: [{{name: g, rules: [{{alert: "{name}\\u2028", exp: up}}]}}]',
        f'{{"gr\\noups{name}": []}}',
        f"groups: [{{name: g, rules: [{{alert: A, expr: up, for: '{name}', labels: {{'{name}': x}}}}]}}]",
    ):
        with pytest.raises(RuleFileError) as caught:
            rulefile.parse(text, "f.yml")
        assert all(str(problem).isprintable() for problem in caught.value.problems)
        assert all(len(str(problem)) < 900 for problem in caught.value.problems)


def test_a_query_that_is_too_long_is_refused_by_its_place() -> None:
    text = f"groups: [{{name: g, rules: [{{record: a, expr: '{'1+' * 6000}1'}}]}}]"
    with pytest.raises(RuleFileError, match=r"group 'g', rule 1.*expr: .*has more than 10000 words"):
        rulefile.parse(text, "f")
    asked = "{{ query `" + "1+" * 6000 + "1` }}"
    file = rulefile.parse(f"groups: [{{name: g, rules: [{{alert: a, expr: b, annotations: {{x: '{asked}'}}}}]}}]", "f")
    (warning,) = map(str, file.warnings)
    assert "annotation 'x': template: query: " in warning
    assert "has more than 10000 words" in warning


def test_aliases_count_as_often_as_they_are_compiled_and_long_texts_count_too() -> None:
    text = "groups:\n- name: g\n  rules:\n  - &r {record: a, expr: b}\n" + "  - *r\n" * 499
    assert rulefile.parse(text, "f").rule_count == 500
    with pytest.raises(RuleFileError, match="exceed 500, the most on a node"):
        rulefile.parse(text + "  - *r\n", "f")
    text = "groups:\n- name: g\n  rules:\n"
    text += "".join(
        f"  - {{alert: a{number}, expr: b, annotations: {{x: '{'x' * 50_000}'}}}}\n" for number in range(60)
    )
    assert rulefile.parse(text, "f").rule_count == 60
    text += f"  - {{alert: long, expr: b, annotations: {{x: '{'x' * 50_000}'}}}}\n" * 25
    with pytest.raises(RuleFileError, match="exceed 40000 words and signs"):
        rulefile.parse(text, "f")


READ = {
    "1 2.5 -3": [1, 2.5, -3],
    "1x3": [1, 1, 1, 1],
    "1x0": [1],
    "1+2x3": [1, 3, 5, 7],
    "10-5x2 +7": [10, 5, 0, 7],
    "-1-1x1": [-1, -2],
    "_ 1 _x2 2": [None, 1, None, None, 2],
    "_x0 3": [3],
    ".5x1 1.e3x1 1e2+1e1x1": [0.5, 0.5, 1000, 1000, 100, 110],
    "0x2": [0, 0, 0],
    "0+0.1x3": [0, 0.1, 0.2, 0.1 + 0.1 + 0.1],  # steps add up with their rounding
    "inf -Inf +INF": [math.inf, -math.inf, math.inf],
    "1\n\t2": [1, 2],
    "": [],
}


@pytest.mark.parametrize("text", READ)
def test_values_are_expanded(text: str) -> None:
    assert list(chain.from_iterable(notation.values(text))) == READ[text]


def test_stale_is_the_marker_and_nan_is_a_value() -> None:
    stale, nan = chain.from_iterable(notation.values("stale NaN"))
    assert stale is not None
    assert nan is not None
    assert is_stale(stale)
    assert math.isnan(nan)
    assert not is_stale(nan)


@pytest.mark.parametrize(
    "text", ["NaNx2", "stalex2", "1 x5", "1+1", "1--1x2", "1_000", "5m", "1x2x3", "1,2", "1x-1", "x", "{{schema:1}}"]
)
def test_what_promtool_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is invalid|is not a value|native histograms are not supported"):
        notation.values(text)


def test_samples_are_made_as_they_are_read() -> None:
    for text in ("1x99999999999", "0+1x99999999999", "_x99999999999 stale"):
        assert sum(run.count for run in notation.values(text)) > 99_999_999_999
    with pytest.raises(ValueError, match="makes too many samples"):
        notation.values("1x" + "9" * 19)


METRICS = {
    "m": (("__name__", "m"),),
    'm{b="2",a="1"}': (("__name__", "m"), ("a", "1"), ("b", "2")),
    'm{a="1",}': (("__name__", "m"), ("a", "1")),
    '{__name__="m"}': (("__name__", "m"),),
    '{a="}"}': (("a", "}"),),
    r'm{a="x\"y\\\n"}': (("__name__", "m"), ("a", 'x"y\\\n')),
    "m{a='it\\'s \"q\"', b=`\\raw`}": (("__name__", "m"), ("a", 'it\'s "q"'), ("b", "\\raw")),
    'm{a=""}': (("__name__", "m"),),
    "job:m:sum{}": (("__name__", "job:m:sum"),),
    r'm{a="\x41\u00e9\101"}': (("__name__", "m"), ("a", "A\u00e9A")),
    '{"m", "a b"="c"}': (("__name__", "m"), ("a b", "c")),
    'm{__name__="x"}': (("__name__", "m"),),
}


@pytest.mark.parametrize("text", METRICS)
def test_a_series_is_read(text: str) -> None:
    assert notation.series(text) == METRICS[text]


NO_SERIES = [
    "",
    "{}",
    "1m",
    "bool",
    'm{a=~"b"}',
    "m{a}",
    'm{a="b" c="d"}',
    'm{a="b"',
    'm {a="b"}',
    'm{a="b",a="c"}',
    r'm{a="\/"}',
    "m{a='\\\"'}",
]


@pytest.mark.parametrize("text", NO_SERIES)
def test_what_is_not_a_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a series"):
        notation.series(text)


BASE = "https://docs.example/gpu/runbooks"
TLS = "tls_server_config: {cert_file: node.pem, key_file: node.key}\n"


def links(files: tuple[RuleFile, ...]) -> dict[str, str]:
    rules = (rule for file in files for group in file.groups for rule in group.rules)
    return {rule.name: dict(rule.annotations)["runbook_url"].source for rule in rules if isinstance(rule, AlertingRule)}


def configured(text: str, folder: Path = Path()) -> dict[str, str]:
    return links(load_files(parse(text, "c.yaml"), folder))


def test_without_an_address_the_agents_show_their_runbooks() -> None:
    found = configured("rules: {}")
    assert found["GpuLost"] == "http://{{ $labels.instance }}/runbooks/GpuLost"
    assert found["RackPowerHigh"].endswith('http://{{ . | first | label "instance" }}{{ end }}/runbooks/RackPowerHigh')


def test_with_an_address_every_alert_of_the_pack_leads_there_but_for_an_override(tmp_path: Path) -> None:
    found = configured(f"rules: {{runbook_base: '{BASE}/'}}")
    assert len(found) > 50
    assert found == {name: f"{BASE}/{name}" for name in found}
    assert cli.main(["render", "rules", "--output", str(tmp_path), "--runbook-base", BASE]) == 0
    assert links(tuple(load(path) for path in tmp_path.glob("*.yml"))) == found
    own = "override: {GpuHot: {annotations: {runbook_url: 'https://wiki.example/hot'}}}"
    overridden = configured(f"rules: {{runbook_base: '{BASE}', {own}}}")
    assert overridden == {**found, "GpuHot": "https://wiki.example/hot"}


def test_links_to_agents_that_serve_tls_begin_with_https_on_node_and_server(tmp_path: Path) -> None:
    """By http such an agent answers 400."""
    web = tmp_path / "web.yml"
    for text, scheme in (("basic_auth_users: {}\n", "http"), (TLS, "https")):
        web.write_text(text)
        found = configured(f"web: {{config_file: '{web}'}}")
        assert len(found) > 50
        assert [url for url in found.values() if f"{scheme}://" not in url] == []
        assert cli.main(["render", "rules", "--output", str(tmp_path / scheme), "--web.config.file", str(web)]) == 0
        assert links(tuple(load(path) for path in (tmp_path / scheme).glob("*.yml"))) == found
    based = configured(f"web: {{config_file: '{web}'}}\nrules: {{runbook_base: '{BASE}'}}")
    assert based["AgentDown"] == f"{BASE}/AgentDown"


@pytest.mark.parametrize(
    ("answers", "link"), [([], ""), ([Element({"instance": "n2:1"}, 1.0)], "http://n2:1/runbooks/AgentDown")]
)
def test_an_agent_that_is_down_has_the_runbook_of_another_or_no_link(answers: list[Element], link: str) -> None:
    """A path without a host is not a link that a pager can open."""
    template = compile_template(configured("rules: {}")["AgentDown"], "AgentDown")
    assert template.render(Root({"instance": "n1:1"}, 0.0, {}, ""), lambda _: answers) == link


def test_links_of_others_stay(tmp_path: Path) -> None:
    urls = {"Own": "https://wiki.example/runbooks/Own", "Bare": "/runbooks/Bare", "Text": "see the wiki", "None": ""}
    rules = "".join(
        f"  - {{alert: {name}, expr: up, annotations: {{runbook_url: '{url}'}}}}\n" for name, url in urls.items()
    )
    (tmp_path / "own.yml").write_text(f"groups:\n- name: own\n  rules:\n{rules}")
    found = configured(f"rules: {{files: [own.yml], runbook_base: '{BASE}'}}", tmp_path)
    assert found == {**urls, "Bare": f"{BASE}/Bare"}


@pytest.mark.parametrize(
    "wrong", ["docs.example", "ftp://docs.example", "https://a b", "https://a/{{ 1 }}", "https://a?b", ""]
)
def test_an_address_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"rules\.runbook_base"):
        parse(f"rules: {{runbook_base: '{wrong}'}}", "c.yaml")
    assert cli.main(["render", "rules", "--output", "/nowhere/x", "--runbook-base", wrong]) == 2
    assert "--runbook-base" in capsys.readouterr().err
