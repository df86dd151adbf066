"""The same files through promtool and through coldplate: the same verdicts, case by case, and the same exit status."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"
PASSING = sorted(DATA.glob("*.test.yml"))
FAILING = sorted(DATA.glob("*.failing.yml"))


def test_both_pass_what_is_right(promtool: Any, coldplate: Any) -> None:
    for path, theirs in promtool.each("test", PASSING).items():
        assert theirs.status == coldplate("test", path).status == 0, theirs.text


def test_both_fail_where_a_rule_cannot_be_evaluated_and_for_the_same_reason(promtool: Any, coldplate: Any) -> None:
    for path, theirs in promtool.each("test", FAILING).items():
        ours = coldplate("test", path)
        assert (theirs.status, ours.status) == (1, 1)
        assert ours.failed == theirs.failed != []
        assert theirs.text.split("err: ")[1].splitlines()[0] in ours.text


def cases(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for test in document["tests"]:
        yield from test.get("alert_rule_test", ())


def expect_nothing(document: dict[str, Any]) -> None:
    for case in cases(document):
        case["exp_alerts"] = []


def expect_one_more(document: dict[str, Any]) -> None:
    for case in cases(document):
        case.setdefault("exp_alerts", []).append({"exp_labels": {"gpu": "made up"}})


def expect_another_label(document: dict[str, Any]) -> None:
    for case in cases(document):
        for alert in case.get("exp_alerts", ()):
            alert.setdefault("exp_labels", {})["severity"] = "made up"


def expect_another_annotation(document: dict[str, Any]) -> None:
    for case in cases(document):
        for alert in case.get("exp_alerts", ()):
            alert.setdefault("exp_annotations", {})["summary"] = "made up"


def ask_earlier(document: dict[str, Any]) -> None:
    for case in cases(document):
        case["eval_time"] = "15s"


def expect_other_samples(document: dict[str, Any]) -> None:
    for test in document["tests"]:
        for case in test.get("promql_expr_test", ()):
            case["exp_samples"] = [{"labels": 'made_up{a="b"}', "value": 1.5}]
    expect_nothing(document)


def lose_a_series(document: dict[str, Any]) -> None:
    for test in document["tests"]:
        test["input_series"].pop()


def misspell_a_series(document: dict[str, Any]) -> None:
    document["tests"][0]["input_series"][0]["values"] = "1 2 NaNx3"


def misspell_a_key(document: dict[str, Any]) -> None:
    document["tests"][0]["alert_rule_tests"] = document["tests"][0].pop("alert_rule_test")


def misspell_a_duration(document: dict[str, Any]) -> None:
    document["tests"][0]["interval"] = "15 seconds"


def name_no_alert(document: dict[str, Any]) -> None:
    next(cases(document)).pop("alertname")


def ask_a_broken_query(document: dict[str, Any]) -> None:
    document["tests"][0].setdefault("promql_expr_test", []).append({"expr": "sum by", "eval_time": "1m"})


def repeat_a_group(document: dict[str, Any]) -> None:
    document["group_eval_order"] = ["x", "x"]


BREAKS = [
    expect_nothing,
    expect_one_more,
    expect_another_label,
    expect_another_annotation,
    ask_earlier,
    expect_other_samples,
    lose_a_series,
    misspell_a_series,
    misspell_a_key,
    misspell_a_duration,
    name_no_alert,
    ask_a_broken_query,
    repeat_a_group,
]


def test_both_fail_the_same_cases_of_a_broken_copy(tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    copies = []
    for path in PASSING:
        document = yaml.safe_load(path.read_text())
        document["rule_files"] = [str(DATA / name) for name in document["rule_files"]]
        for broken in BREAKS if "detectors" not in path.name else BREAKS[:1]:
            copies.append(tmp_path / f"{broken.__name__}-{path.name}")
            broken(changed := copy.deepcopy(document))
            copies[-1].write_text(yaml.safe_dump(changed, sort_keys=False))
    for path, theirs in promtool.each("test", copies).items():
        ours = coldplate("test", path)
        assert (theirs.status, ours.status) == (1, 1), (path.name, theirs.text, ours.text)
        assert ours.failed == theirs.failed, path.name


def test_both_refuse_a_file_that_is_not_there(tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    for action in ("check", "test"):
        theirs, ours = promtool(action, tmp_path / "none.yml"), coldplate(action, tmp_path / "none.yml")
        assert (theirs.status, ours.status) == (1, 1)
