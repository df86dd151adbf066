"""Generated templates, rendered here and by a running Prometheus for the same alert."""

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from alerts.go_literals import from_octets, printable
from alerts.promql import EvaluationError, PromqlError, Sample, Scalar, Storage, compile_query, make_labels
from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from tests.grammar import Grammar
from tests.lab.parity.oracles import ALIKE, DIFFERS, Judged, Recent
from tests.servers import prometheus

ALERT = "A"
VALUES = (80.5, 0.0, 1234567.0, -0.05, 3.0)
LABELS = {"__name__": "m", "job": "gpu burn-in", "instance": "node1.example.com:9400", "odd": 'a"b\\ é'}
SERIES = {("n", "a"): 1.0, ("n", "b"): 2.5}
URL = "http://prometheus.example:9090/path"
EXTERNAL = {"cluster": "east"}
COUNT = 4000

_RULES = {
    "number": ("0", "1", "-3", "7", "0x1F", "1.5", "2.0", "-1e3", "1e-7", "1_000", "0b11", "017", "1e21", "'a'",
               "'\\n'", "9223372036854775807", "9223372036854775808", "0x1p4", ".5"),
    "text": ('""', '"a"', '"gpu burn-in"', "`raw \\n`", '"a\\tb\\u00e9"', '"80.5"', '"NaN"', '"0x1p2"', '"x.y:1"',
             '"up"', '"1h30m"', '"it\'s <b>&\\"c\\""', '"\\xff"', '"%d %s"', '"k"', '"job"', '"straße"',
             '"10.0.0.1:9"'),
    "variable": ("$labels.job", "$labels.instance", "$labels.nope", "$labels", "$value", ".Value", ".Labels.job",
                 ".Labels", "$externalLabels.cluster", "$externalURL", ".ExternalURL", "$", ".", "nil", "true",
                 "false", "$labels.odd", ".Nope", "$value.x", "$labels.a.b", "$.Value", "$x", "$y"),
    "result": ('(query "n")', '(query "nothing")', "(query `n > 2`)", '(query "n" | sortByLabel "k")',
               '(query "1+1")'),
    "sample": ('(first (query "n"))', '(index (query "n") 1)', '(first (query "nothing"))', "nil"),
    "format": ("%v", "%d", "%s", "%q", "%t", "%f", "%e", "%g", "%.2f", "%8.3f|", "%-8v|", "%08d", "%+d", "%+q",
               "%%", "%.3s", "%6.2s|", "% d", "%.0f", "%5t|", "%05s", "%.5d", "%.f", "%+.1e", "%s %s",
               "%d%d", "%v %v %v"),
    "unary": ("humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "humanizeTimestamp", "title",
              "toUpper", "toLower", "stripPort", "stripDomain", "len", "not", "parseDuration", "html", "js",
              "urlquery", "print", "println", "safeHtml", "graphLink", "tableLink", "toTime", "call", "first",
              "value", "strvalue", "printf"),
    "variadic": ("and", "or", "print", "println", "args", "eq", "html"),
    "method": ("Year", "Month", "Weekday", "Unix", "Format `2006-01-02 15:04 Mon Jan`", "Nope", "YearDay"),
    "compared": ("eq", "ne", "lt", "le", "gt", "ge"),
    "operand": (
        "<number>", "<text>", "<variable>", "<variable>", "<variable>", "<sample>", "<result>",
        *("(<command>)",) * 4, "(<command>).x", "(<command>).Value", "(<command>).Labels.k", "(<command>).Year",
    ),
    "command": (
        "<unary> <operand>", "<unary> <operand>", "<compared> <operand> <operand>",
        "<variadic> <operand> <operand> <operand>", "index <operand> <operand>", "slice <text> <number>",
        "slice <result> <number> 2", "slice <text> <number> 1 2", "label <text> <sample>",
        "sortByLabel <text> <result>", "match <matched> <operand>", "reReplaceAll `(.)u` `<$1>` <operand>",
        "reReplaceAll <matched> `$0$0` <operand>", 'printf "<format>" <operand>',
        'printf "<format> <format>" <operand> <operand>', 'printf "<format>"', "<unary> <operand> <operand>",
        "<variable>", "externalURL", "pathPrefix", "$value <operand>", "$labels.job <operand>", "1 <operand>",
        "(toTime <number>).<method>",
    ),
    "matched": ("`^gpu`", "`(`", "`a*`", "`[z-a]`", "`x{2,1}`", "`)`", "`*`"),
    "stage": ("<unary>", "<unary>", "printf `%v|%d`", "eq 1", "or 1", "print 1", "index 0", "sortByLabel `k`"),
    "pipeline": (*("<command>",) * 4, "<operand>", "<command> | <stage>", "<command> | <stage> | <stage>"),
    "left": ("{{", "{{ ", "{{- "),
    "right": ("}}", " }}", " -}}"),
    "action": (*("<left><pipeline><right>",) * 6, "<left>$x := <pipeline><right>", "<left>$y = <pipeline><right>",
               "<left>$value := <pipeline><right>"),
    "plain": (" text ", "\n", "é", "{ }", "{{/* c */}}", "{{- /* c */ -}}", " \n x"),
    "called": ('{{template "t" .}}', '{{template "u"}}', '{{block "b" $value}}<{{.}}>{{end}}',
               '{{template "t" $labels}}'),
    "ranged": ("$labels", '(query "n")', "3", "$x", "<result>", "(args 1 `a`)", "<text>"),
    "body": ("<node>", "<node>", "<node><node>"),
    "node": (
        "<action>", *("<action>",) * 8, *("<plain>",) * 5, "<called>",
        "{{if <pipeline>}}<body>{{end}}", "{{if <pipeline>}}<body>{{else if <pipeline>}}<body>{{end}}",
        "{{with <pipeline>}}<body>{{else}}<body>{{end}}", "{{range <ranged>}}<body>{{else}}<body>{{end}}",
        "{{range $i, $e := <ranged>}}<body>{{$i}}{{<unary> $e}}{{end}}",
        "{{range $e := <ranged>}}<body>{{if $e}}{{break}}{{end}}<body>{{end}}",
        "{{range <ranged>}}<body>{{continue}}{{end}}",
    ),
    "begin": ("", "", '{{define "t"}}[{{.}}{{if .}}!{{end}}]{{end}}', '{{define "u"}}u{{.}}{{end}}'),
    "known": ("1", '"a"', "$value", "$labels", '(query "n")', "1.5"),
    "template": ("<begin>{{$x := <known>}}{{$y := <known>}}<body>",),
}  # fmt: skip


class Maker:
    """Makes templates, mostly such as make sense; one in ten is broken somewhere."""

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._grammar = dice, Grammar(_RULES, dice)

    def template(self) -> str:
        text = self._grammar.say("template", self._dice.choice((2, 3, 4, 5)))
        if self._dice.random() < 0.1:
            cut = self._dice.randrange(len(text) + 1)
            scrap = self._dice.choice(("{{", "}}", "|", "(", ")", '"', "$q", ",", ":=", "{{end}}", ""))
            text = text[:cut] + scrap + text[cut + 1 :]
        return text


def rules_of(templates: Sequence[tuple[int, str]], value: float) -> str:
    """A rule file with an alert for each template; its label `i` is the template's number."""
    expr = f"vector({value!r})"
    for name, text in LABELS.items():
        expr = f"label_replace({expr}, {json.dumps(name)}, {json.dumps(text, ensure_ascii=False)}, '', '')"
    series = " or ".join(f'label_replace(vector({each!r}), "k", "{k}", "", "")' for (_, k), each in SERIES.items())
    alerts = [
        {"alert": ALERT, "expr": "m", "labels": {"i": str(number)}, "annotations": {"t": text}}
        for number, text in templates
    ]
    made = [{"record": "m", "expr": expr}, {"record": "n", "expr": series}]
    return json.dumps({"groups": [{"name": "g", "interval": "5s", "rules": [*made, *alerts]}]})


def refused(recent: Recent, templates: Sequence[tuple[int, str]], folder: Path) -> set[int]:
    """The numbers of the templates that promtool finds no templates."""
    path = folder / "all.yml"
    path.write_text(rules_of(templates, 1.0))
    done = subprocess.run([recent.promtool, "check", "rules", str(path)], capture_output=True, text=True, check=False)
    places = re.findall(rf'rule (\d+), "{ALERT}": annotation', done.stdout + done.stderr)
    return {templates[int(place) - 3][0] for place in places}


def printed_there(recent: Recent, templates: Sequence[tuple[int, str]], value: float, folder: Path) -> dict[int, str]:
    (folder / "rules.yml").write_text(rules_of(templates, value))
    config = json.dumps({"global": {"external_labels": EXTERNAL}, "rule_files": ["rules.yml"]})
    found: dict[int, str] = {}
    prefix = "--web.route-prefix=/"  # the path of the external URL, which templates show, is not that of its pages
    with prometheus(config, folder, recent.prometheus, f"--web.external-url={URL}", prefix) as url:
        end = time.monotonic() + 120
        while len(found) < len(templates):
            assert time.monotonic() < end, (folder / "prometheus.log").read_text()[-2000:]
            time.sleep(0.2)
            with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=30) as answer:
                text = printable(from_octets(answer.read()))  # a text's bytes are written as they are
            alerts = json.loads(text)["data"]["alerts"]
            found = {int(alert["labels"]["i"]): alert["annotations"].get("t", "") for alert in alerts}
    return found


def printed_here(template: str, value: float) -> str | None:
    """What coldplate prints; None where it finds no template."""
    store = Storage()
    store.append(make_labels(LABELS), 1000.0, value)
    for (name, k), each in SERIES.items():
        store.append(make_labels({"k": k}, name), 1000.0, each)

    def ask(text: str) -> list[Element]:
        try:
            result = compile_query(text).evaluate(store, 1000.0)
        except (PromqlError, EvaluationError) as error:
            raise RenderError(str(error)) from None
        samples = [Sample((), result.value)] if isinstance(result, Scalar) else result
        assert isinstance(samples, list)
        return [Element(dict(each.labels), each.value) for each in samples]

    try:
        compiled = compile_template(template, ALERT)
    except TemplateError:
        return None
    try:
        return compiled.render(Root(LABELS, value, EXTERNAL, URL), ask)
    except RenderError as error:
        return f"<error expanding template: {error}>"


def comparable(text: str | None) -> str | None:
    """Without addresses, which are others each time, and without the words of a query's error, which are ours."""
    if text is None:
        return None
    text = re.sub(r"(0[xXbo])?(?:[0-9a-fA-F]{10,})", "#", text)
    return re.sub(r"error calling query: .*", "error calling query", text, flags=re.DOTALL)


def judged(recent: Recent, options: argparse.Namespace) -> Judged:
    """Whether both print the same, errors included."""
    dice = random.Random(options.seed)
    maker, value = Maker(dice), dice.choice(VALUES)
    templates = [(number, maker.template()) for number in range(COUNT)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        wrong = refused(recent, templates, folder)
        printed = printed_there(recent, [each for each in templates if each[0] not in wrong], value, folder)
    for number, template in templates:
        theirs, ours = comparable(printed.get(number)), comparable(printed_here(template, value))
        words = f"{template!r} for {value!r}\n  Prometheus: {theirs!r}\n  coldplate:  {ours!r}"
        yield ALIKE if theirs == ours else DIFFERS, words
