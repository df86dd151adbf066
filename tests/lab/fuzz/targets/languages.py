"""What is written inside rules: queries, templates, regular expressions, durations and the notation of rule tests."""

import time
from pathlib import Path

from agent.config.quantities import duration, moment, size
from agent.lib.yamltree import Bounds, YamlError, load
from alerts import durations
from alerts.promql import EvaluationError, PromqlError, Storage, compile_query, make_labels
from alerts.promql.budget import Budget
from alerts.promql.labels import LimitError
from alerts.regex import Regex, RegexError, TextTooLongError
from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from tests.lab.fuzz.target import Target
from tests.rule_tests import notation

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
    regex = Regex(pattern, groups=True)
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


TARGETS = (
    Target("promql", ("alerts/promql/compiler.py", "alerts/promql/syntax/literals.py", "alerts/promql/storage.py"),
           use_query, (), (PromqlError, EvaluationError, TextTooLongError), shown=False),
    Target("templates", ("alerts/template/parser.py", "alerts/go_literals.py", "alerts/template/printf.py"),
           use_template, (), (TemplateError, RenderError, LimitError, TextTooLongError), shown=False,
           words=(b"%[1]*d", b"%.*f", b"0x1p-2", b"1i", b"'\\u00e9'", b".Labels", b"$v :=")),
    Target("regexes", ("alerts/regex/linear.py",), use_regex, (b"(a|b)+[[:alpha:]]{2,5}\nabcd",
           rb"(?P<n>x)(?i:y)\d\pL\x{41}\Q.*\E$" + b"\nxy1", b".*\\.example\\.com|a{1000}\nx.example.com",
           b"^(?:(?:a?){3}){50}$\naaaa", "[^é-ü]\\b\n".encode()), (RegexError, TextTooLongError), shown=False),
    Target("quantities", ("agent/config/quantities.py",), use_words),
    Target("yaml", ("agent/lib/yamltree.py",),
           lambda data, folder: load(data.decode("utf-8", "surrogateescape"), BOUNDS), (), (YamlError,), shown=False),
)  # fmt: skip
