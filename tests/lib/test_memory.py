"""No file takes the machine's memory, whatever it holds: measured in a process of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.lib.measured_files import Figures, figures
from tests.lib.test_yamltree import laughs

MEBIBYTE = 2**20
MOST = 80 * MEBIBYTE
"""64 MiB is what a file may take; the rest is for what an interpreter does not give back at once."""


def rules(each: Callable[[int], str], count: int, head: str = "") -> str:
    return f"groups:\n- name: g\n{head}  rules:\n" + "".join(f"  - {each(number)}\n" for number in range(count))


WHATEVER: dict[str, Callable[[], str]] = {
    "aliases of aliases": lambda: laughs("[x]", "[%s]"),
    "merges of merges": lambda: laughs("{x: y}", "{<<: [%s]}"),
    "a list without end": lambda: "[" + "a," * 900_000,
    "mappings": lambda: "{a: 1}\n- " * 200_000,
    "anchors": lambda: "".join(f"- &a{number} x\n" for number in range(150_000)),
    "one long text": lambda: "a: '" + "x" * 3_000_000 + "'",
    "one long text of wide characters": lambda: "a: '" + "\U0001f600" * 900_000 + "'",
    "long texts with one wide character": lambda: "".join(
        f"a{number}: '{'x' * 60_000}\U0001f600'\n" for number in range(60)
    ),
    "digits": lambda: "a: " + "9" * 1_000_000,
}
RULES: dict[str, Callable[[], str]] = {
    "many small rules": lambda: rules(lambda number: f"{{record: r{number}, expr: b}}", 100_000),
    "rules of operators": lambda: rules(lambda number: f"{{record: r{number}, expr: {'-' * 300}a}}", 9_000),
    "one rule again and again": lambda: (
        "groups:\n- name: g\n  rules:\n  - &r {record: a, expr: b}\n" + "  - *r\n" * 140_000
    ),
    "rules that merge a large one": lambda: rules(lambda number: f"{{<<: *l, record: r{number}}}", 4_000).replace(
        "rules:", "labels: &l {" + ", ".join(f"l{number}: x" for number in range(500)) + "}\n  rules:"
    ),
    "labels of a group": lambda: rules(
        lambda number: f"{{alert: A{number}, expr: b}}",
        20_000,
        "  labels: {" + ", ".join(f"l{number}: x" for number in range(200)) + "}\n",
    ),
    "templates": lambda: rules(
        lambda number: f"{{alert: A{number}, expr: b, annotations: {{x: '{'{{.Value}}{{$labels.x}}' * 20}'}}}}", 8_000
    ),
    "wrong rules": lambda: rules(lambda number: f"{{record: r{number}, exprr: b, labels: [c]}}", 25_000),
    "wrong queries": lambda: rules(lambda number: f"{{record: r{number}, expr: 'b{{{number}'}}", 25_000),
}


def measure(kind: str, text: str, small: str, folder: Path) -> Figures:
    path, first = folder / "file.yaml", folder / "first.yaml"
    path.write_text(text)
    first.write_text(small)
    answer: Figures = warm.call(figures, kind, path, first, seconds=600)
    return answer


LONG = ("many small rules", "labels of a group", "templates", "wrong rules", "wrong queries")
"""What takes seconds to be refused."""


@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=pytest.mark.release if each in LONG else ()) for each in (*WHATEVER, *RULES)]
)
def test_no_rule_file_takes_more_than_it_may(what: str, tmp_path: Path) -> None:
    small = "groups: [{name: a, rules: [{alert: a, expr: 'b > 1', annotations: {x: '{{$value}}'}}]}]"
    said, taken = measure("rules", (WHATEVER | RULES)[what](), small, tmp_path)
    assert taken < MOST, (taken / MEBIBYTE, said)


@pytest.mark.parametrize(
    "kind", ["config", *(pytest.param(each, marks=pytest.mark.release) for each in ("peers", "scenario"))]
)
@pytest.mark.parametrize("what", WHATEVER)
def test_nor_does_another_file(kind: str, what: str, tmp_path: Path) -> None:
    text = WHATEVER[what]()
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


def test_as_many_alerts_of_the_usual_size_as_a_site_may_load_are_loaded(tmp_path: Path) -> None:
    said, taken = measure("rules", rules(usual, 500), "{}", tmp_path)
    assert said == 500
    assert taken < 8 * MEBIBYTE
