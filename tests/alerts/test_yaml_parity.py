"""Prometheus is the judge of what a rule file is: what it refuses is refused here, and what it loads is loaded."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from alerts import rulefile
from alerts.rulefile import RuleFileError
from tests.alerts.oddities import ODDITIES, STRICTER
from tests.servers import need, version_of

Counts = Callable[[Sequence["str | bytes"]], "list[int | None]"]
"""How many rules each file has; None for one that is refused."""
TAKEN = re.compile(r"Checking (\S+)\n\s+SUCCESS: (\d+) rules found")
NEWER = 3
"""The version of Prometheus whose verdicts count; older ones know fewer names."""
NAMES_OF_ANY_LETTERS = ("labels in another alphabet", "a label with a dash", "a label that is a number",
                        "a record with a dash", "bad annotation name")  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> tuple[str, int]:
    """The program and its version."""
    found = need("promtool", left_out="NOTHING shows here that a Prometheus server loads the same rule files")
    return found, version_of(found)[0]


@pytest.fixture
def prometheus(promtool: tuple[str, int], tmp_path: Path) -> Counts:
    def judge(files: Sequence[str | bytes]) -> list[int | None]:
        paths = [tmp_path / f"{number}.yml" for number in range(len(files))]
        for path, content in zip(paths, files, strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        command = [promtool[0], "check", "rules", "--lint=none", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        taken = {path: int(count) for path, count in TAKEN.findall(done.stdout)}
        assert done.stdout.count("Checking ") == len(files), done.stderr
        return [taken.get(str(path)) for path in paths]

    return judge


def ours(content: str | bytes, folder: Path) -> tuple[int | None, str]:
    path = folder / "ours.yml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        return rulefile.load(path).rule_count, ""
    except RuleFileError as error:
        return None, str(error)


def test_odd_yaml_is_judged_as_prometheus_does(prometheus: Counts, promtool: tuple[str, int], tmp_path: Path) -> None:
    differ = {}
    for (name, content), theirs in zip(ODDITIES.items(), prometheus(list(ODDITIES.values())), strict=True):
        mine, said = ours(content, tmp_path)
        if mine != theirs:
            differ[name] = (theirs, mine, said)
    if promtool[1] < NEWER:
        differ = {name: verdict for name, verdict in differ.items() if name not in NAMES_OF_ANY_LETTERS}
    assert {name: verdict for name, verdict in differ.items() if name not in STRICTER} == {}
    assert all(mine is None for _, mine, _ in differ.values())
    if promtool[1] >= NEWER:
        assert set(differ) == set(STRICTER), "a difference is gone: take it off the list"


STYLES = (
    lambda text: text,
    lambda text: f'"{text}"',
    lambda text: f"'{text}'",
    lambda text: f"!!str {text}",
    lambda text: f"&{{}} {text}",
    lambda text: f"{text}  # comment",
    lambda text: f"\t{text}\t",
    lambda text: f"|-\n{{indent}}{text}",
    lambda text: f">\n{{indent}}{text}\n\n",
    lambda text: f"\n{{indent}}{text}",
    lambda text: f"! {text}",
)
NOISE = ("", "\n", "# comment\n", "   \n") * 8 + ("\t\n", "\t# comment\n")


def odd_file(seed: int) -> str:
    """A file of good rules, written as nobody would."""
    chance = random.Random(seed)
    lines = [chance.choice(("", "---\n", "--- # x\n", "%YAML 1.1\n---\n", "\ufeff", "# x\n---\n"))]
    names = iter(range(1000))

    def scalar(text: str, indent: int) -> str:
        style = chance.choice((*STYLES, *STYLES[:1] * 20))(text)
        return style.replace("{indent}", " " * (indent + 2)).replace("&{}", f"&a{next(names)}")

    lines.append("groups:\n")
    for number in range(chance.randint(1, 3)):
        lines += [chance.choice(NOISE), f"- name: {scalar(f'g{number}', 2)}\n"]
        if chance.random() < 0.3:
            lines.append(f"  interval: {scalar('30s', 2)}\n")
        dash = chance.choice(("  - ", "    - ", "  -   "))
        inner = len(dash)
        lines.append("  rules:" + chance.choice(("", " ", " # x", "\t")) + "\n")
        for rule in range(chance.randint(1, 4)):
            if chance.random() < 0.25:
                lines.append(f"{dash}{{alert: A{number}{rule}, expr: up == {rule}, labels: {{a: b,}},}}\n")
                continue
            lines += [chance.choice(NOISE), f"{dash}alert: {scalar(f'A{number}{rule}', inner)}\n"]
            keys = [("expr", f"up == {rule}"), ("for", "5m")]
            chance.shuffle(keys)
            lines += [f"{' ' * inner}{key}: {scalar(text, inner)}\n" for key, text in keys]
            if chance.random() < 0.5:
                label = scalar("b", inner + 2)
                lines.append(f"{' ' * inner}labels:\n{' ' * (inner + 2)}a: {label}\n")
            if chance.random() < 0.2:
                lines.append(f"{' ' * inner}<<: {{keep_firing_for: 1m}}\n")
    lines.append(chance.choice(("", "---\n", "...\n", "---\n...\n", "\n\n", "# x")))
    text = "".join(lines)
    return text.replace("\n", "\r\n") if chance.random() < 0.1 else text


def test_good_rules_in_odd_yaml_are_loaded_where_prometheus_loads_them(prometheus: Counts, tmp_path: Path) -> None:
    files = [odd_file(seed) for seed in range(400)]
    loaded = 0
    for content, theirs in zip(files, prometheus(files), strict=True):
        mine, said = ours(content, tmp_path)
        assert mine == theirs, (said, content)
        loaded += theirs is not None
    assert loaded > 200, "most of these files are good ones"
