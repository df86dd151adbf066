"""No file takes the machine's memory, whatever it holds: measured in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backends.synthetic import ScenarioError, load_scenario
from agent.config import reading as config
from agent.config.schema import ConfigError
from agent.rack.targets import read_file
from alerts import rulefile
from alerts.rulefile import RuleFileError
from tests import warm

MEBIBYTE = 2**20
MOST = 80 * MEBIBYTE
"""64 MiB is what a file may take; the rest is for what an interpreter does not give back at once."""

Figures = tuple[object, int]


def used() -> int:
    """Bytes: not what getrusage tells, which begins with what the parent had."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def use(kind: str, path: Path) -> object:
    if kind == "config":
        config.load(path)
    elif kind == "rules":
        return rulefile.load(path).rule_count
    elif kind == "peers":
        read_file(path)
    else:
        load_scenario(str(path))
    return None


def outcome(kind: str, path: Path) -> object:
    try:
        return use(kind, path)
    except (ConfigError, RuleFileError, ScenarioError, ValueError) as error:
        return str(error)[:2000]


def figures(kind: str, path: Path, small: Path) -> Figures:
    """What is said of a file, and the memory that it took, in bytes."""
    outcome(kind, small)
    before = used()
    return outcome(kind, path), used() - before


def rules(each: Callable[[int], str], count: int, head: str = "") -> str:
    return f"groups:\n- name: g\n{head}  rules:\n" + "".join(f"  - {each(number)}\n" for number in range(count))


def laughs(link: str) -> str:
    lines = ["groups: &a0 [x, {y: z}]" if link == "[%s]" else "a: &a0 {x: y}"]
    lines += [f"b{n}: &a{n + 1} {link % ', '.join([f'*a{n}'] * 10)}" for n in range(12)]
    return "\n".join(lines)


WHATEVER: dict[str, str] = {
    "aliases of aliases": laughs("[%s]"),
    "merges of merges": laughs("{<<: [%s]}"),
    "merges within": laughs("{y: {<<: [%s]}}"),
    "a list without end": "[" + "a," * 900_000,
    "mappings": "{a: 1}\n- " * 200_000,
    "anchors": "".join(f"- &a{number} x\n" for number in range(150_000)),
    "one long text": "a: '" + "x" * 3_000_000 + "'",
    "one long text of wide characters": "a: '" + "\U0001f600" * 900_000 + "'",
    "long texts with one wide character": "".join(f"a{number}: '{'x' * 60_000}\U0001f600'\n" for number in range(60)),
    "comments": "# x\n" * 900_000,
    "documents": "---\n" * 250_000,
    "open brackets": "[" * 1_000_000,
    "digits": "a: " + "9" * 1_000_000,
    "hexadecimal digits": "a: 0x" + "f" * 60_000,
    "NUL": "\0" * 1_000_000,
    "many small rules": rules(lambda number: f"{{record: r{number}, expr: b}}", 100_000),
    "rules of operators": rules(lambda number: f"{{record: r{number}, expr: {'-' * 300}a}}", 9_000),
    "one rule again and again": "groups:\n- name: g\n  rules:\n  - &r {record: a, expr: b}\n" + "  - *r\n" * 140_000,
    "rules that merge a large one": rules(lambda number: f"{{<<: *l, record: r{number}}}", 4_000).replace(
        "rules:", "labels: &l {" + ", ".join(f"l{number}: x" for number in range(500)) + "}\n  rules:"
    ),
    "labels of a group": rules(
        lambda number: f"{{alert: A{number}, expr: b}}", 20_000,
        "  labels: {" + ", ".join(f"l{number}: x" for number in range(200)) + "}\n",
    ),
    "templates": rules(
        lambda number: f"{{alert: A{number}, expr: b, annotations: {{x: '{'{{.Value}}{{$labels.x}}' * 20}'}}}}", 8_000
    ),
    "wrong rules": rules(lambda number: f"{{record: r{number}, exprr: b, labels: [c]}}", 25_000),
    "wrong queries": rules(lambda number: f"{{record: r{number}, expr: 'b{{{number}'}}", 25_000),
}  # fmt: skip


def measure(kind: str, text: str, small: str, folder: Path) -> Figures:
    path, first = folder / "file.yaml", folder / "first.yaml"
    path.write_text(text)
    first.write_text(small)
    answer: Figures = warm.call(figures, kind, path, first, seconds=600)
    return answer


@pytest.mark.parametrize("what", WHATEVER)
def test_no_rule_file_takes_more_than_it_may(what: str, tmp_path: Path) -> None:
    small = "groups: [{name: a, rules: [{alert: a, expr: 'b > 1', annotations: {x: '{{$value}}'}}]}]"
    said, taken = measure("rules", WHATEVER[what], small, tmp_path)
    assert taken < MOST, (taken / MEBIBYTE, said)


@pytest.mark.parametrize("kind", ["config", "peers", "scenario"])
@pytest.mark.parametrize("what", [what for what, text in WHATEVER.items() if "rules" not in text])
def test_nor_does_another_file(kind: str, what: str, tmp_path: Path) -> None:
    text = WHATEVER[what]
    limit = {"config": 2**20, "peers": 2**16, "scenario": 2**18}[kind]
    said, taken = measure(kind, text[: limit - text.count("\U0001f600", 0, limit) * 3 - 10], "{}", tmp_path)
    assert taken < MOST / 2, (taken / MEBIBYTE, said)


def usual(number: int) -> str:
    return f"""alert: Alert{number}
    expr: >-
      avg by (gpu, uuid) (avg_over_time(coldplate_gpu_temperature_celsius{{gpu="{number}"}}[5m])) > {number % 97}
      and on (gpu) coldplate_gpu_up == 1
    for: 5m
    keep_firing_for: 1m
    labels: {{severity: warning, team: t{number}}}
    annotations:
      summary: "GPU {{{{ $labels.gpu }}}} is at {{{{ $value | humanize }}}} degrees"
      description: Check the cooling of GPU {{{{ $labels.gpu }}}} before it throttles, see number {number}
      runbook_url: http://node/runbooks/{number}"""


def test_thousands_of_alerts_of_the_usual_size_are_loaded(tmp_path: Path) -> None:
    """The limit must not be what a large site meets first."""
    said, taken = measure("rules", rules(usual, 5_000), "{}", tmp_path)
    assert said == 5_000
    assert taken < 48 * MEBIBYTE


def test_more_than_can_be_held_is_refused_where_it_begins(tmp_path: Path) -> None:
    said, taken = measure("rules", rules(usual, 6_000), "{}", tmp_path)
    assert "exceed their memory limit of 28 MiB; load fewer" in str(said)
    assert taken < MOST
