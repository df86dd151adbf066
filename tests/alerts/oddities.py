"""Well-formed rule files in odd YAML, and mistakes of YAML in rule files."""

RULES = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n    labels: {severity: page}\n"
SECOND = "  - alert: B\n    expr: up == 1\n"


def more(text: str) -> str:
    """A second rule with something more."""
    return f"{RULES}{SECOND}    {text}\n"


def group(text: str) -> str:
    return RULES.replace("name: g", f"name: g\n  {text}")


def annotation(text: str) -> str:
    return more(f"annotations:\n      a: {text}")


PLACES = ("g", "A", "up == 0", "page")
"""The texts of `RULES` that may be written in many ways."""
WAYS = ('"{}"', "'{}'", "!!str {}", "! {}", "&a {}", "{}  # comment", "\t{}\t", "|-\n          {}",
        ">\n          {}\n\n", "\n          {}")  # fmt: skip
NOISE = ("\n", "# comment\n", "   \n", "\t\n", "\t# comment\n")
TAG_DIRECTIVE = "%TAG !e! tag:e,1:\n---\n"
BLOCKS = RULES.replace("{severity: page}", "\n      severity: page")


def written(way: str, place: str) -> str:
    return BLOCKS.replace(f": {place}\n", f": {way.format(place)}\n")


ODDITIES: dict[str, str | bytes] = {
    # the same rule, written as nobody would
    **{f"{place} as {way!r}": written(way, place) for way in WAYS for place in PLACES},
    **{f"{line!r} before line {number}": "".join([*BLOCKS.splitlines(keepends=True)[:number], line,
                                                 *BLOCKS.splitlines(keepends=True)[number:]])
       for line in NOISE for number in range(8)},
    # documents and directives: what may stand at the end, and before
    **{f"{text!r} at the end": RULES + text for text in (
        "", "---\n", "---", "---\n...\n", "...\n", "---\n# x\n", "---\n---\n---\n", "---\n" + RULES, "---\nx\n",
        "---\nnull\n", "---\n}{\n", "...\n}{\n", "\0", " - alert: X\n   expr: up\n", "   - alert: X\n     expr: up\n",
        "\t- alert: C\n", "  - alert: C\n\texpr: up\n", "\t\n" + SECOND, "\t# x\n" + SECOND,
        "  -\talert: C\n    expr: up\n", "groups: []\n", "  - record: foo-bar\n    expr: up\n",
    )},
    **{f"{text!r} before": text + RULES for text in (
        "---\n", "---\t\n", "---\n---\n", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%YAML 2.0\n---\n", "%FOO a\n---\n",
        TAG_DIRECTIVE, "\ufeff", "!!map\n",
    )},
    "--- on the line of the content": "--- " + "{groups: [{name: g, rules: [{record: a, expr: b}]}]}\n",
    # characters
    "CRLF": RULES.replace("\n", "\r\n"),
    "CR": RULES.replace("\n", "\r"),
    "Latin-1": more("labels: {a: é}").encode("latin-1"),
    "UTF-16": RULES.encode("utf-16"),
    "half a pair of surrogates": more('labels: {a: "\ud800"}').encode("utf-8", "surrogatepass"),
    **{f"a label {value!r}": more(f"labels: {{a: {value}}}") for value in (
        '"x\ufeffy"', '"x\0y"', '"x\\0y"', '"x\x07y"', '"x\x7fy"', '"x\x85y"', '"x\u2028y"', '"\\ud800"',
        '"\\ud83d\\ude00"', '"\\U00110000"', '"\\UFFFFFFFF"', '"\\x41"', '"\\xzz"', '"\\/"', "\"\\'\"",
        # indicators
        "b?", "b? c", "b:c", "b,", "b,,", "b,\n        c: d", "b\n", "b #x\n    ", "@b", "`b", "-",
        # tags
        "!!int 5", "!!int abc", "!!bool yes", "!!null x", "!!binary aGVsbG8=", '!!binary "%%"',
        "!!timestamp 2020-01-01", "!!timestamp x", "!!python/object:os.system x",
        # values
        "yes", "0x1f", "1e999", "9" * 10_000, ".nan", "2020-01-01", "2020-99-99", "null", "[b]",
    )},
    # blocks and plain texts, with tabs and breaks
    **{f"an annotation {text!r}": annotation(text) for text in (
        "|\n        x\n---", '"x\n---\ny"', "|\t\n        x", "|\n        \tx", "|\n      \tx", "x\ty",
        "x\n        \ty", '"x\n\ty"', "|#x\n        x", "|2\n         x", "|0\n         x", "|+\n        x\n\n\n",
        "|10\n                x",
    )},
    # keys, in words and in signs
    **{text: more(text) for text in (
        "for:\t5m", "for: 5m\t", "labels:\t\n      a: b", "labels: {\ta:\tb\t}", "? for\n    : 5m", "labels: {? a : b}",
        'labels: {"a":b}', "labels: {a}", "labels: {,}", "labels: [a: b]", "labels:\n      : b", "for: 5m#x",
        "for : 5m", '"for": 5m', 'labels: {a: "b}', "labels: {a: b", "expr: up", 'labels: {a: b, "a": c}',
        "labels: {{a: b}: c}", "labels: {true: b}", "labels: {null: b}", "labels:", "labels: []", "labels: ''",
        "foo: bar", "foo:", "For: 5m", "labels: {é: b}", "labels: {foo-bar: b}", 'labels: {"": b}', "labels: {5: b}",
        # anchors, aliases, merges
        "for: &f 5m\n    keep_firing_for: *f", "labels: &l {a: b}\n    annotations: *l", "labels: {a: &k b, *k : c}",
        "for: &a 5m\n    keep_firing_for: &a 6m\n    labels: {x: *a }", "for: *zz", "for: *zz\n    labels: {a: &zz b}",
        "labels: &x {a: *x}", "labels: &x {<<: *x}", "for: &a", "for: & 5m", "for: &a &b 5m",
        "for: &a 5m\n    keep_firing_for: &b *a", "<<: {for: 5m}", "<<: [{for: 5m}, {for: 6m}]",
        "<<: {for: 5m}\n    <<: {keep_firing_for: 5m}", "<<: null", "<<:", "<<: abc", "<<: [abc]", "<<: [[{for: 5m}]]",
        "<<: {<<: {for: 5m}}", "labels: &l [{for: 5m}]\n    <<: *l", "for: 1m\n    <<: {for: 5m}",
        "<<: {for: 5m}\n    for: 1m", "<<: {foo: 5m}", "labels: {<<: {a: b}, c: d}", "<<: []", "<<: {for: 5m, for: 6m}",
        '"<<": {for: 5m}',
        # tags
        "for: !foo 5m", "for: !!str 5m", "for: ! 5m", "for: !!str !!str 5m", "for: !a!b 5m", "!!str for: 5m",
        "labels: !!set {a: b}", "labels: !!map {a: b}", "labels: !!seq {a: b}",
        # durations
        "for: 0", "for: 5", "for: null", "for: ''", 'for: " 5m"', "for: 1y2w3d4h5m6s7ms", "for: 9223372036854ms",
        f"for: {'9' * 5000}d",
        f"labels: {{{'a' * 1100}: b}}", "labels: " + "[" * 20_000 + "]" * 20_000,
    )},
    **{f"a group with {text}": group(text) for text in ("interval: 60", "interval:", *(f"limit: {value}" for value in (
        "1", "1.0", "1.5", '"1"', "x", "-1", "+5", "0x10", "010", "09", "0o10", "0b11", "1_0", "1e3", "1:30", ".inf",
        "99999999999999999999", "null", "true", '""',
    )))},
    # the first rule written otherwise
    **{f"{new!r} for {old!r}": RULES.replace(old, new) for old, new in (
        ("- alert: A", "- - alert: A"), ("up == 0", "up\n      == 0"), ("up == 0", "up\n    == 0"),
        ("up == 0", ">-\n      up ==\n        0\n\n"), ("up == 0", "5.50"), ("up == 0", "[up]"),
        ("alert: A", "alert: 5"), ("alert: A", "alert: [A]"),
        ("alert: A", 'alert: "A\\nB"'), ("alert: A", 'alert: "Ä B"'),
    )},
    # whole files in odd YAML, and what Prometheus before version 3 refuses
    **{text: text + "\n" for text in (
        "", "# x", "---", "groups: &g\n- *g",
        "groups:\n-\n- name: g\n  rules:\n  -\n  - {record: a, expr: b}",
        "groups:\n- name: g\n  rules:\n  - &r {alert: A, expr: up}\n  - {<<: *r, alert: B}",
        "groups:\n- &g\n  name: g\n  rules: []\n- <<: *g\n  name: h", "groups:\n- <<: {name: g}\n  rules: []",
        '{"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up", "labels": {"n": 1, "b": true}}]}]}',
        "groups: [{name: g, rules: [{alert: A, expr: up, labels: {s: a}}, {alert: A, expr: up, labels: {s: b}}]}]",
        "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a-b: c}}]}]",
    )},
}  # fmt: skip

STRICTER = {
    f"{TAG_DIRECTIVE!r} before": "nobody needs it, and thousands of them cost minutes",
    "UTF-16": "files are UTF-8",
    **{f"a label {value!r}": reason for value, reason in {
        '"x\ufeffy"': "the two parsers differ about it",
        "\"\\'\"": "no escape of YAML",
        "!!binary aGVsbG8=": "Prometheus decodes it",
        "!!timestamp 2020-01-01": "a date is a text",
        "!!python/object:os.system x": "not understood",
    }.items()},
    "labels: !!set {a: b}": "not understood",
    "labels: !!seq {a: b}": "not understood",
}  # fmt: skip
"""What Prometheus 3 loads and coldplate refuses, and why."""
NAMES_OF_ANY_LETTERS = (
    "labels: {é: b}", "labels: {foo-bar: b}", "labels: {5: b}",
    repr("  - record: foo-bar\n    expr: up\n") + " at the end",
    "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a-b: c}}]}]",
)  # fmt: skip
"""What Prometheus knows from version 3 on."""
