"""YAML is read within bounds, whatever it says."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.lib.wording import UserError
from agent.lib.yamltree import Bounds, YamlError, YamlList, YamlMapping, compose, load, plain

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = Bounds(depth=32, nodes=1000, characters=10_000, scalar=1000)


def value(text: str) -> Any:
    return plain(compose(text, BOUNDS).root)


def refusal(text: str) -> str:
    with pytest.raises(YamlError) as caught:
        value(text)
    return str(caught.value)


VALUES = {
    "": None,
    "# nothing\n": None,
    "a: 1\nb: [x, ~, 0x1f, 010, 1_000, -7, 0b11]\n": {"a": 1, "b": ["x", None, 31, 8, 1000, -7, 3]},
    "[1.5, 1e9, .5, 1.0e+3, .inf, 1.]": [1.5, "1e9", 0.5, 1000.0, float("inf"), 1.0],
    "[yes, No, on, 'yes', y, TRUE]": [True, False, True, "yes", "y", True],
    "[2020-01-01, 2020-99-99, 12:30, 1:2:3, =]": ["2020-01-01", "2020-99-99", "12:30", "1:2:3", "="],
    "['5', \"~\", !!str 5, ! 5, !!int '5', !!float 5, !!null '', !!bool true]": [
        "5",
        "~",
        "5",
        "5",
        5,
        5.0,
        None,
        True,
    ],
    "{5: a, true: b, ~: c, x: }": {5: "a", True: "b", None: "c", "x": None},
    "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n": {"a": {"x": 1, "y": 2}, "b": {"y": 3, "x": 1}},
    "{<<: [{x: 1}, {x: 2, y: 2}], z: 3}": {"z": 3, "x": 1, "y": 2},
    "{<<: {<<: {x: 1, y: 1}, y: 2}}": {"y": 2, "x": 1},
    "{<<: [], x: 1}": {"x": 1},
    "{'<<': 1}": {"<<": 1},
    "[&a 1, *a, &a 2, *a]": [1, 1, 2, 2],
    "a: &a b\n*a : c\n": {"a": "b", "b": "c"},
    "x: |\n  a\n   b\n\ny: >-\n  c\n  d\n": {"x": "a\n b\n", "y": "c d"},
    "a:\t1\nb: x\ty\nc: [\t1,\t2 ]\t\n": {"a": 1, "b": "x\ty", "c": [1, 2]},
    "a: 1\r\nb: 2\r\n": {"a": 1, "b": 2},
    "a: 1\n---\n---\n...\n# end\n": {"a": 1},
    "%YAML 1.1\n---\na: 1\n": {"a": 1},
    "? a\n: b\n": {"a": "b"},
}


@pytest.mark.parametrize("text", VALUES)
def test_a_text_means_what_people_take_it_for(text: str) -> None:
    assert repr(value(text)) == repr(VALUES[text])


REFUSED = {
    "a: &x {b: *x}": "line 1: column 11: *x is inside &x itself; write the value out",
    "a: 1\nb: &x\n  <<: *x\n": "line 3: column 7: *x is inside &x itself",
    "a: *b": "line 1: undefined alias *b; define &b before it",
    "[" * 33 + "]" * 33: "line 1: is nested more than 32 levels deep; is it the right file?",
    "[" + "a," * 1001 + "]": "line 1: has more than 1000 values; split the file",
    "[" + ("x" * 900 + ",") * 12 + "]": "line 1: has more than 10000 characters; split the file",
    "a: 1\nb: " + "x" * 1001: "line 2: a string of more than 1000 characters starts here; shorten it",
    "a: 1\nb: 2\na: 3\n": "line 3: a: duplicate key; remove one",
    "a: {b: 1, 'b': 2}": "line 1: a: b: duplicate key; remove one",
    "{5: a, 0x5: b}": "line 1: 0x5: duplicate key; remove one",
    "{<<: {a: 1}, <<: {b: 1}}": "line 1: <<: duplicate key; remove one",
    "{<<: 1}": "line 1: <<: merges only mappings; give one, an alias of one, or a list of them",
    "{<<: [[{a: 1}]]}": "line 1: <<: merges only mappings",
    "{[a]: b}": "line 1: a key must be a plain name, not a list or a mapping",
    "a: !foo b": "line 1: a: the tag '!foo' is not supported; remove it",
    "a: !foo {b: c}": "line 1: a: the tag '!foo' is not supported; remove it",
    "a: !!binary aGk=": "line 1: 'aGk=' has the tag '!!binary', which is not supported; remove the tag",
    "a: !!int x": "line 1: 'x' has the tag '!!int', which is not supported",
    "a: !!bool yes": "line 1: 'yes' has the tag '!!bool', which is not supported",
    "a: !!python/object/apply:os.system [x]": "a list with the tag !!python/object/apply:os.system is not",
    "a: !!set {b}": "line 1: a mapping with the tag !!set is not supported; remove the tag",
    "a: 99999999999999999999": "line 1: a: '99999999999999999999' is too large for a number; put it in quotes",
    "a: 1\n---\nb: 2\n": "line 3: a second document starts here, but only one is read; merge them into one",
    "---\n" * 102: "line 101: has more than 100 documents",
    "%YAML 1.2\n---\na: 1\n": "line 1: is not valid YAML: directives other than %YAML 1.1 are not supported",
    "# x\n%TAG ! y\n---\na: 1\n": "line 2: is not valid YAML: directives other than %YAML 1.1",
    "a: 1\n" + "\n%TAG ! y" * 20: "line 1: has more than 16 lines that start with %; indent them",
    "a: 1\nb: \0": "line 2: is not valid YAML: contains the character U+0000; remove it",
    "a: 1\n\ufeffb: 2": "line 2: is not valid YAML: contains a byte order mark inside the text; remove it",
    "a: \x1b[2J": "line 1: is not valid YAML: contains the character U+001B; remove it",
    'a: "\\ud800"': "line 1: is not valid YAML: found invalid Unicode character escape code",
    'a: "\\/"': "line 1: is not valid YAML: \\/ is not an escape; write /",
    "a: [b?]": "line 1: is not valid YAML: a ? inside brackets or braces must be in quotes",
    "a:\n\tb: 1\n": "; indent with spaces, not with tabs",
    "a: [1\nb: 2\n": "line 2: is not valid YAML: ",
    "a: b: c": "line 1: is not valid YAML: mapping values are not allowed",
}


@pytest.mark.parametrize("text", REFUSED, ids=[message[:60] for message in REFUSED.values()])
def test_what_is_refused_is_reported_with_its_line_and_remedy(text: str) -> None:
    assert REFUSED[text] in refusal(text)


def laughs(first: str, then: str) -> str:
    """Ten lines, each of which holds the one before it nine times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n + 1}: &a{n + 1} {then % ', '.join([f'*a{n}'] * 9)}" for n in range(10)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [laughs("[x]", "[%s]"), laughs("{x: y}", "{<<: [%s]}"), laughs("{x: y}", "{z: [%s]}")])
def test_aliases_and_merges_count_as_often_as_they_are_written(text: str) -> None:
    assert "has more than 1000 values when its aliases are expanded; use fewer, or split the file" in refusal(text)
    assert "has more than 10000 characters" in refusal("- &a " + "x" * 900 + "\n" + "- *a\n" * 12)


def test_lines_are_those_of_the_text_and_aliases_share_their_node() -> None:
    root = compose("a: 1\n\nb:\n- &x x\n- {y: z}\n- *x\n", BOUNDS).root
    assert isinstance(root, YamlMapping)
    assert [key.line for key, _ in root.pairs] == [1, 3]
    found = root.pairs[1][1]
    assert isinstance(found, YamlList)
    assert [each.line for each in found.items[:2]] == [4, 5]
    assert found.items[2] is found.items[0]


DEEP = {
    "brackets": "[" * 100_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "brackets on lines": "[\n" * 100_000,
    "braces": "{a: " * 100_000,
    "keys within keys": "{" * 100_000,
    "dashes": "- " * 100_000,
    "question marks": "? " * 100_000,
    "mappings on lines": "".join(f"{' ' * level}a:\n" for level in range(2_000)),
    "lists on lines": "".join(f"{' ' * level}-\n" for level in range(2_000)),
    "quotes": "'" * 100_001,
    "anchors": "- &a" + " &a" * 100_000,
    "documents": "---\n" * 20_000,
}


def test_depth_costs_neither_the_process_nor_its_stack(tmp_path: Path) -> None:
    """In a process of its own: a stack that overflows in C takes the process along."""
    for kind, text in DEEP.items():
        (tmp_path / kind).write_text(text)
    code = (
        "import resource, sys; from agent.lib.yamltree import *\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))\n"
        "for kind in sys.argv[1:]:\n"
        " try: compose(open(kind).read(), Bounds()); print(kind, 'read')\n"
        " except YamlError as error: print(kind, str(error)[:5])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *DEEP],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{kind} line " for kind in DEEP]


def test_pyyaml_without_libyaml_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    with pytest.raises(UserError, match=r"^PyYAML was built without libyaml, .*pip install"):
        load("a: 1", BOUNDS)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<~1", max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(plain_values, st.booleans())
def test_what_is_written_as_yaml_is_read_as_it_was(written: Any, flow: bool) -> None:
    text = yaml.safe_dump(written, default_flow_style=flow, allow_unicode=False)
    assert load(text, Bounds()) == written
