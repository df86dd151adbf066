"""Whatever a template is made of, it is refused when it is read or fails when it is rendered, and costs no more."""

import itertools

import pytest

from alerts.promql.budget import Budget
from alerts.promql.labels import LimitError
from alerts.template import Element, RenderError, Root, TemplateError, compile_template
from alerts.template.values import DEEPEST_NESTING
from tests.stack import far_down

ROOT = Root(
    {"job": "a", "value": "1e300", "odd": "\\xé{{"}, 80.5, {"cluster": "east"}, "http://prometheus.example/path"
)
SERIES = [Element({"gpu": str(number)}, float(number)) for number in range(3)]


def rendered(template: str, series: list[Element] = SERIES, seconds: float = 100.0) -> str:
    """The template's text, where a look at the timer takes a second."""
    looks = itertools.count()
    return compile_template(template).render(
        ROOT, lambda _text: series, Budget(lambda: float(next(looks)), seconds=seconds)
    )


NESTINGS = [
    ("{{ if true }}", "x", "{{ end }}", "x"),
    ("{{ if false }}y{{ else }}", "x", "{{ end }}", "x"),
    ("{{ with 1 }}", "x", "{{ end }}", "x"),
    ("{{ range query `x` | len | eq 1 | not | printf `%v` | query }}", "x", "{{ end }}", "x"),
    ("{{ if (len `a`) }}", "x", "{{ end }}", "x"),
]


@pytest.mark.parametrize(("before", "inner", "after", "printed"), NESTINGS, ids=[each[0] for each in NESTINGS])
def test_the_deepest_branches_need_half_of_the_stack(before: str, inner: str, after: str, printed: str) -> None:
    levels = DEEPEST_NESTING - before.count("(")
    template = before * levels + inner + after * levels
    assert far_down(lambda: rendered(template, SERIES[:1])) == printed
    with pytest.raises(TemplateError, match=f"nested more than {DEEPEST_NESTING} levels deep"):
        far_down(lambda: compile_template(before * DEEPEST_NESTING + before + inner))


@pytest.mark.parametrize("call", ["", "print ", "and 1 ", "query `x` | len | or ", "eq "])
def test_the_deepest_parentheses_need_half_of_the_stack(call: str) -> None:
    opened = ("(" + call) * DEEPEST_NESTING
    after = " 1)" if call == "eq " else ")"

    def attempt() -> None:
        try:
            rendered("{{ " + opened + "1" + after * DEEPEST_NESTING + " }}")
        except RenderError:
            assert call == "eq "  # it compares 1 with what an inner comparison gave

    far_down(attempt)
    with pytest.raises(TemplateError, match=f"column .*: is nested more than {DEEPEST_NESTING} levels deep"):
        far_down(lambda: compile_template("{{ (" + opened + "1 }}"))


@pytest.mark.parametrize(
    "piece", ["(", "{{if true}}", "{{ (", "{{range .Labels}}", "{{", "{{.}}", "{{/*", "`", '"', "\n", "{"]
)
def test_a_hundred_thousand_of_anything_are_refused(piece: str) -> None:
    for template in (piece * 100_000, "{{ " + piece * 100_000, "{{ " + piece * 20_000):
        with pytest.raises(TemplateError):
            compile_template(template)


def test_a_chain_of_else_if_may_be_long_and_later_arms_know_its_variables() -> None:
    count = 900
    arms = "".join(f"{{{{ else if eq $x {number} }}}}{number}" for number in range(1, count))
    template = f"{{{{ $x := len `{'a' * (count - 1)}` }}}}{{{{ if eq $x 0 }}}}0{arms}{{{{ else }}}}none{{{{ end }}}}"
    assert far_down(lambda: rendered(template)) == str(count - 1)
    assert far_down(lambda: rendered(template.replace("len `a", "len `aa"))) == "none"
    template = "{{ if $a := `` }}{{ else if $b := `x` }}{{ $a }}{{ $b }}{{ else }}{{ $b }}{{ end }}"
    assert rendered(template) == "x"
    assert rendered(template.replace("`x`", "``")) == ""
    with pytest.raises(TemplateError, match=r"undefined variable \$b"):
        compile_template("{{ if $a := 1 }}{{ $b }}{{ else if $b := 2 }}{{ end }}")
    with pytest.raises(TemplateError, match=r"undefined variable \$b"):
        compile_template("{{ if $a := 1 }}{{ else if $b := 2 }}{{ end }}{{ $b }}")


LONG = "longer than 65536 characters"
LAVISH = {
    "{{ range 9223372036854775807 }}{{ end }}": "turns of range in one text; range over less",
    "{{ $x := `ab` }}" + "{{ $x = print $x $x }}" * 60: LONG,
    "{{ $x := `ab` }}" + "{{ $x = printf `%s%s` $x $x }}" * 60: LONG,
    "{{ $x := `ab` }}" + "{{ $x = reReplaceAll `.` `$0$0` $x }}" * 60: "timed out",
    "{{ $x := printf `%999d` 1 }}"
    + f"{{{{ $x = reReplaceAll `.*` `{'$0' * 5000}` $x }}}}" * 5: "replacement is too long",
    "{{ $x := reReplaceAll `.` `%999d` `" + "x" * 9000 + "` }}{{ printf $x 1 }}": "timed out",
    "{{ $x := printf `%999d` 1 }}" + "{{ $x }}" * 5000: LONG,
    "{{ range query `x` }}" * 20 + "{{ . | value }}" + "{{ end }}" * 20: "timed out",
    "{{ range query `x` }}" * 20 + "{{ end }}" * 20: "timed out",
}


@pytest.mark.parametrize("template", LAVISH, ids=[each[:40] for each in LAVISH])
def test_a_template_that_uses_too_much_fails(template: str) -> None:
    with pytest.raises((RenderError, LimitError), match=LAVISH[template]):
        rendered(template, seconds=50)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ('"\\a\\x41\\101\\u00e9"', "\aAAé"), ('"\\xc3\\xa9"', "é"), ('"a\\"b"', 'a"b'), ('"é"', "é"),
        ("`\\n`", "\\n"),
        ('"a\\xffb"', "a\ufffdb"), ('len "\\xff"', "1"), ('printf "%x" "\\xff"', "ff"),  # a byte that is no character
        ('printf "%q" 55296', "'\N{REPLACEMENT CHARACTER}'"),  # half a pair of surrogates
        ('printf "%.' + "0" * 5000 + '1f" 1.26', "1.3"),  # leading zeros make no width
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_texts_and_widths_are_read_as_go_reads_them(action: str, text: str) -> None:
    assert rendered("{{ " + action + " }}") == text


@pytest.mark.parametrize(
    ("constant", "words"),
    [('"\\q"', "unknown escape sequence"), ('"\\ud800"', "invalid Unicode code point"),
     ('"\\\'"', "unknown escape sequence"), ("9" * 20, "overflows a 64-bit integer; write a float"),
     ("1e999", "overflows a 64-bit float"), ("-1e999", "overflows a 64-bit float"), ("1__0.5", "is not a number")],
)  # fmt: skip
def test_a_constant_that_go_refuses_is_refused(constant: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        compile_template("{{ " + constant + " }}")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ('$x := "%1001d" }}{{ printf $x 1', "is wider than 1000"),
        ('$x := "%.1001f" }}{{ printf $x 1', "is wider than 1000"),
        ('$x := "%G" }}{{ printf $x 1', "printf cannot write '%G'"),
        ('printf "%x" 1.5', "printf cannot write a float by %x; use %g"),
        *((f"humanizeTimestamp {value}", "overflows int64") for value in ("1e300", "-1e300", "1e308", "9.3e9")),
        ("lt $labels $labels", "invalid type for comparison"),
        ("first 1", "can't handle 1 for arg of type"),
    ],
)
def test_too_large_a_width_a_time_beyond_the_calendar_and_no_order_are_errors(action: str, words: str) -> None:
    with pytest.raises(RenderError, match=words):
        rendered("{{ " + action + " }}")
