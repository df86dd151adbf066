"""The same files, unit tests and YAML through promtool and coldplate: the same verdicts."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from alerts import rulefile
from alerts.rulefile import RuleFileError
from tests.alerts.conftest import Promtool
from tests.alerts.oddities import NAMES_OF_ANY_LETTERS, ODDITIES, STRICTER
from tests.servers import need, version_of

DATA = Path(__file__).parent / "data"
PASSING = sorted(DATA.glob("*.test.yml"))
FAILING = """rule_files: ['{rules}']
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: '{name}{{job="a",i="0"}}', values: 1x5}}
  - {{series: '{name}{{job="a",i="1"}}', values: 1x5}}
  - {{series: 'five{{job="a"}}', values: 1x5}}
  promql_expr_test: [{{expr: vector(1), eval_time: 2m, exp_samples: [{{labels: '{{}}', value: 1}}]}}]
"""
"""Tests of bad-evaluation.rules.yml, of which each series makes one rule fail."""


def test_both_pass_what_is_right_and_refuse_a_file_that_is_not_there(
    promtool: Any, coldplate: Any, tmp_path: Path
) -> None:
    for path, theirs in promtool.each("test", PASSING).items():
        assert theirs.status == coldplate("test", path).status == 0, theirs.text
    for action in ("check", "test"):
        theirs, ours = promtool(action, tmp_path / "none.yml"), coldplate(action, tmp_path / "none.yml")
        assert (theirs.status, ours.status) == (1, 1)


def test_both_fail_where_a_rule_cannot_be_evaluated_and_for_the_same_reason(
    tmp_path: Path, promtool: Any, coldplate: Any
) -> None:
    paths = [tmp_path / f"{name}.yml" for name in ("many", "two", "three", "four")]
    for path in paths:
        path.write_text(FAILING.format(rules=DATA / "bad-evaluation.rules.yml", name=path.stem))
    for path, theirs in promtool.each("test", paths).items():
        ours = coldplate("test", path)
        assert (theirs.status, ours.status) == (1, 1)
        assert ours.failed == theirs.failed != []
        assert theirs.text.split("err: ")[1].splitlines()[0] in ours.text


def cases(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for test in document["tests"]:
        yield from test.get("alert_rule_test", ())


def expected(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for case in cases(document):
        yield from case.get("exp_alerts", ())


def first(document: dict[str, Any]) -> dict[str, Any]:
    test: dict[str, Any] = document["tests"][0]
    return test


def expect_other_samples(document: dict[str, Any]) -> None:
    for test in document["tests"]:
        for case in test.get("promql_expr_test", ()):
            case["exp_samples"] = [{"labels": 'made_up{a="b"}', "value": 1.5}]
    BREAKS["nothing expected"](document)


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing expected": lambda file: [case.update(exp_alerts=[]) for case in cases(file)],
    "one more": lambda file: [
        case.setdefault("exp_alerts", []).append({"exp_labels": {"gpu": "x"}}) for case in cases(file)
    ],
    "another label": lambda file: [alert.setdefault("exp_labels", {}).update(severity="x") for alert in expected(file)],
    "another text": lambda file: [
        alert.setdefault("exp_annotations", {}).update(summary="x") for alert in expected(file)
    ],
    "asked earlier": lambda file: [case.update(eval_time="15s") for case in cases(file)],
    "other samples": expect_other_samples,
    "a series less": lambda file: [test["input_series"].pop() for test in file["tests"]],
    "no values": lambda file: first(file)["input_series"][0].update(values="1 2 NaNx3"),
    "no key": lambda file: first(file).update(alert_rule_tests=first(file).pop("alert_rule_test")),
    "no duration": lambda file: first(file).update(interval="15 seconds"),
    "no alert": lambda file: next(cases(file)).pop("alertname"),
    "a broken query": lambda file: (
        first(file).setdefault("promql_expr_test", []).append({"expr": "sum by", "eval_time": "1m"})
    ),
    "a group twice": lambda file: file.update(group_eval_order=["x", "x"]),
}
"""What is changed in a copy of a file of tests that pass."""


def test_both_fail_the_same_cases_of_a_broken_copy(tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    copies = []
    for path in PASSING:
        document = yaml.safe_load(path.read_text())
        document["rule_files"] = [str(DATA / name) for name in document["rule_files"]]
        for broken in BREAKS:
            copies.append(tmp_path / f"{broken.replace(' ', '-')}-{path.name}")
            BREAKS[broken](changed := copy.deepcopy(document))
            copies[-1].write_text(yaml.safe_dump(changed, sort_keys=False))
    for path, theirs in promtool.each("test", copies).items():
        ours = coldplate("test", path)
        assert (theirs.status, ours.status) == (1, 1), (path.name, theirs.text, ours.text)
        assert ours.failed == theirs.failed, path.name


NEWER = 3
"""The version of Prometheus whose verdicts count; older ones know fewer names."""


def theirs_of(promtool: Promtool, files: Sequence[str | bytes], folder: Path) -> list[int | None]:
    """How many rules promtool finds in each file; None for one that it refuses."""
    paths = [folder / f"{number}.yml" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = (re.search(r"SUCCESS: (\d+) rules found", each.text) for each in promtool.each("check", paths).values())
    return [None if each is None else int(each[1]) for each in found]


def ours(content: str | bytes, folder: Path) -> tuple[int | None, str]:
    path = folder / "ours.yml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        return rulefile.load(path).rule_count, ""
    except RuleFileError as error:
        return None, str(error)


def test_odd_yaml_is_judged_as_prometheus_does(promtool: Promtool, tmp_path: Path) -> None:
    version, differ = version_of(need("promtool"))[0], {}
    counts = theirs_of(promtool, list(ODDITIES.values()), tmp_path)
    for (name, content), theirs in zip(ODDITIES.items(), counts, strict=True):
        mine, said = ours(content, tmp_path)
        if mine != theirs:
            differ[name] = (theirs, mine, said)
    if version < NEWER:
        differ = {name: verdict for name, verdict in differ.items() if name not in NAMES_OF_ANY_LETTERS}
    assert {name: verdict for name, verdict in differ.items() if name not in STRICTER} == {}
    assert all(mine is None for _, mine, _ in differ.values())
    if version >= NEWER:
        assert set(differ) == set(STRICTER), "a difference is gone: take it off the list"
