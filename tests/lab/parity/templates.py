"""Generated templates, rendered here and by a running Prometheus for the same alert."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from alerts.promql import EvaluationError, PromqlError, Sample, Scalar, Storage, compile_query, make_labels
from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from alerts.template.quoting import from_octets, printable
from tests.lab.parity.oracles import Recent, told
from tests.servers import prometheus

ALERT = "A"
VALUES = (80.5, 0.0, 1234567.0, -0.05, 3.0)
LABELS = {"__name__": "m", "job": "gpu burn-in", "instance": "node1.example.com:9400", "odd": 'a"b\\ é'}
SERIES = {("n", "a"): 1.0, ("n", "b"): 2.5}
URL = "http://prometheus.example:9090/path"
EXTERNAL = {"cluster": "east"}
MOST = 4000

NUMBERS = ("0", "1", "-3", "7", "0x1F", "1.5", "2.0", "-1e3", "1e-7", "1_000", "0b11", "017", "1e21", "'a'",
           "'\\n'", "2i", "9223372036854775807", "9223372036854775808", "0x1p4", ".5")  # fmt: skip
TEXTS = ('""', '"a"', '"gpu burn-in"', "`raw \\n`", '"a\\tb\\u00e9"', '"80.5"', '"NaN"', '"0x1p2"', '"x.y:1"', '"up"',
         '"1h30m"', '"it\'s <b>&\\"c\\""', '"\\xff"', '"%d %s"', '"k"', '"job"', '"straße"',
         '"10.0.0.1:9"')  # fmt: skip
VARIABLES = ("$labels.job", "$labels.instance", "$labels.nope", "$labels", "$value", ".Value", ".Labels.job", ".Labels",
             "$externalLabels.cluster", "$externalURL", ".ExternalURL", "$", ".", "nil", "true", "false", "$labels.odd",
             ".Nope", "$value.x", "$labels.a.b", "$.Value")  # fmt: skip
RESULTS = ('(query "n")', '(query "nothing")', "(query `n > 2`)", '(query "n" | sortByLabel "k")', '(query "1+1")')
SAMPLES = ('(first (query "n"))', '(index (query "n") 1)', '(first (query "nothing"))', "nil")
FORMATS = ("%v", "%d", "%s", "%q", "%x", "%X", "%t", "%f", "%e", "%g", "%G", "%.2f", "%8.3f|", "%-8v|", "%08d", "%+d",
           "%+v", "%#v", "%#x", "%#q", "%+q", "%c", "%U", "%#U", "%o", "%O", "%b", "%T", "%%", "%!", "%z", "%[2]v",
           "%[1]d", "%[9]d", "%*d", "%.*f", "%.3s", "%6.2s|", "% d", "% x", "%.3x", "%#g", "%.0f",
           "%5t|", "%05s", "%.5d", "%w", "%[x]d",
           "%", "%-", "%.f", "%+.1e", "%#.3o", "%x %x", "%d%d", "%v %v %v", "%é")  # fmt: skip
UNARY = ("humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "humanizeTimestamp", "title", "toUpper",
         "toLower", "stripPort", "stripDomain", "len", "not", "parseDuration", "html", "js", "urlquery", "print",
         "println", "safeHtml", "graphLink", "tableLink", "toTime", "call", "first", "value",
         "strvalue", "printf")  # fmt: skip
VARIADIC = ("and", "or", "print", "println", "args", "eq", "html")
METHODS = ("Year", "Month", "Weekday", "Unix", "Format `2006-01-02 15:04 Mon Jan`", "Nope", "YearDay")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


class Maker:
    """Makes templates, mostly such as make sense."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._known: list[str] = []

    def _of(self, choices: Sequence[str]) -> str:
        return self._dice.choice(choices)

    def operand(self, depth: int = 2) -> str:
        kinds: list[Callable[[], str]] = [
            lambda: self._of(NUMBERS), lambda: self._of(TEXTS), lambda: self._of(VARIABLES),
            lambda: self._of(VARIABLES), lambda: self._of(self._known or VARIABLES), lambda: self._of(SAMPLES),
            lambda: self._of(RESULTS),
        ]  # fmt: skip
        if depth:
            kinds += [lambda: f"({self.command(depth - 1)})"] * 4
            kinds += [lambda: f"({self.command(depth - 1)}).{self._of(('x', 'Value', 'Labels.k', 'arg0', 'Year'))}"]
        return self._dice.choice(kinds)()

    def command(self, depth: int = 2) -> str:
        dice, operand = self._dice, lambda: self.operand(depth)
        kinds: list[Callable[[], str]] = [
            lambda: f"{self._of(UNARY)} {operand()}",
            lambda: f"{self._of(UNARY)} {operand()}",
            lambda: f"{self._of(COMPARED)} {operand()} {operand()}",
            lambda: f"{self._of(VARIADIC)} {operand()} {operand()} {operand()}",
            lambda: f"index {operand()} {operand()}",
            lambda: f"slice {self._of((*TEXTS, *RESULTS))} {self._of(NUMBERS)}{dice.choice(('', ' 2', ' 3', ' 1 2'))}",
            lambda: f"label {self._of(TEXTS)} {self._of(SAMPLES)}",
            lambda: f"sortByLabel {self._of(TEXTS)} {self._of(RESULTS)}",
            lambda: f"match {self._of(('`^gpu`', '`(`', '`a*`', '`[z-a]`', '`x{2,1}`', '`)`'))} {operand()}",
            lambda: f"reReplaceAll {self._of(('`(.)u`', '`*`', '`a*`'))} {self._of(('`<$1>`', '`$0$0`'))} {operand()}",
            lambda: f"printf {self.format()} {' '.join(operand() for _ in range(dice.randrange(4)))}",
            lambda: f"printf {self.format()} {' '.join(operand() for _ in range(dice.randrange(4)))}",
            lambda: f"{self._of(UNARY)} {operand()} {operand()}",
            lambda: self._of((*VARIABLES, "externalURL", "pathPrefix", "toUpper", "print", "args")),
            lambda: f"{self._of(('$value', '.Value', '$labels.job', '1', 'nil'))} {operand()}",
            lambda: f"(toTime {self._of(NUMBERS)}).{self._of(METHODS)}",
        ]  # fmt: skip
        return dice.choice(kinds)()

    def format(self) -> str:
        return '"' + " ".join(self._of(FORMATS) for _ in range(self._dice.randrange(1, 3))) + '"'

    def pipeline(self) -> str:
        pieces = [self.command() if self._dice.random() < 0.8 else self.operand()]
        while self._dice.random() < 0.3:
            pieces.append(self._of((*UNARY, "printf `%v|%d`", "eq 1", "or 1", "print 1", "index 0", "sortByLabel `k`")))
        return " | ".join(pieces)

    def action(self) -> str:
        dice = self._dice
        chance = dice.random()
        if chance < 0.15:
            name = self._of(("$x", "$y", "$value"))
            text = f"{name} {':=' if name not in self._known or dice.random() < 0.5 else '='} {self.pipeline()}"
            self._known.append(name)
        else:
            text = self.pipeline()
        left, right = self._of(("{{", "{{ ", "{{- ")), self._of(("}}", " }}", " -}}"))
        return f"{left}{text}{right}"

    def body(self, depth: int = 2) -> str:
        return "".join(self.node(depth) for _ in range(self._dice.randrange(1, 4)))

    def node(self, depth: int) -> str:
        dice = self._dice
        chance = dice.random()
        if chance < 0.25:
            return self._of((" text ", "\n", "é", "{ }", "{{/* c */}}", "{{- /* c */ -}}", " \n x"))
        if chance < 0.7 or not depth:
            return self.action()
        if chance < 0.95:
            return self._branch(depth)
        return self._of(
            ('{{template "t" .}}', '{{template "u"}}', '{{block "b" $value}}<{{.}}>{{end}}', '{{template "t" $labels}}')
        )

    def _branch(self, depth: int) -> str:
        kind = self._of(("if", "with", "range", "range"))
        known = len(self._known)
        head = self.pipeline()
        if kind == "range":
            head = self._of(("$labels", '(query "n")', "3", "$x", head, "(args 1 `a`)"))
            head = self._of(("", "", "$i, $e := ", "$e := ")) + head
            self._known += ["$e"] if "$e" in head else []
        inner = self.body(depth - 1)
        if kind == "range" and self._dice.random() < 0.3:
            inner += self._of(("{{break}}", "{{continue}}", "{{if .}}{{break}}{{end}}"))
        other = ""
        if self._dice.random() < 0.5:
            again = f" {kind} {self.pipeline()}" if kind != "range" and self._dice.random() < 0.4 else ""
            other = f"{{{{else{again}}}}}{self.body(depth - 1)}"
        del self._known[known:]
        return f"{{{{{kind} {head}}}}}{inner}{other}{{{{end}}}}"

    def template(self) -> str:
        self._known = []
        defined = self._of(("", "", '{{define "t"}}[{{.}}{{if .}}!{{end}}]{{end}}', '{{define "u"}}u{{.}}{{end}}'))
        text = defined + self.body()
        if self._dice.random() < 0.1:  # broken somewhere
            cut = self._dice.randrange(len(text) + 1)
            text = (
                text[:cut]
                + self._of(("{{", "}}", "|", "(", ")", '"', "$q", ",", ":=", "{{end}}", ""))
                + text[cut + 1 :]
            )
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
        samples = [Sample((), 1000.0, result.value)] if isinstance(result, Scalar) else result
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


def differences(recent: Recent, dice: random.Random, count: int) -> Iterator[str]:
    maker = Maker(dice)
    for begin in range(0, count, MOST):
        value = dice.choice(VALUES)
        templates = [(number, maker.template()) for number in range(begin, min(begin + MOST, count))]
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            wrong = refused(recent, templates, folder)
            printed = printed_there(recent, [each for each in templates if each[0] not in wrong], value, folder)
        for number, template in templates:
            theirs, ours = comparable(printed.get(number)), comparable(printed_here(template, value))
            if theirs != ours:
                yield f"{template!r} for {value!r}\n  Prometheus: {theirs!r}\n  coldplate:  {ours!r}"


def compare(recent: Recent, options: argparse.Namespace) -> bool:
    """Whether both print the same, errors included, for `options.templates` templates."""
    found = differences(recent, random.Random(options.seed), options.templates)
    return told(f"templates: {options.templates}", found, options.show)
