"""From the entries of a configuration to rule files: each is found, or an error says what was looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alerts import packs
from alerts.promql import Storage
from alerts.rulefile import RuleFileError, TooManyRulesError

RULES = "groups: [{{name: {name}, rules: [{{alert: A, expr: up}}]}}]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub[1]").mkdir()
    for name in ("a.yml", "b.yml", "sub[1]/c.yml"):
        (tmp_path / name).write_text(RULES.format(name=Path(name).stem))
    return tmp_path


def test_builtin_is_the_shipped_pack_in_the_order_of_its_names() -> None:
    found = packs.find("builtin", Path("/nowhere"))
    assert found == packs.builtin_files()
    assert [path.name for path in found] == sorted(path.name for path in found)
    assert {"thermal.yml", "agent.yml"} <= {path.name for path in found}
    assert all(path.is_file() for path in found)


def test_advice_is_shipped_and_loaded_only_by_its_name() -> None:
    assert [path.name for path in packs.find("advice", Path("/nowhere"))] == ["advice.yml"]
    assert {path.name for path in packs.shipped_files()} - {path.name for path in packs.builtin_files()} == {
        "advice.yml"
    }
    assert [Path(file.path).stem for file in packs.load_all(["advice"], None, 60.0)] == ["advice"]


def test_an_entry_is_relative_to_the_configuration_and_may_be_a_pattern(folder: Path) -> None:
    assert packs.find("a.yml", folder) == [folder / "a.yml"]
    assert packs.find("*.yml", folder) == [folder / "a.yml", folder / "b.yml"]
    assert packs.find(f"{folder}/[b].yml", Path("/nowhere")) == [folder / "b.yml"]
    assert packs.find("*.yml", folder / "sub[1]") == [folder / "sub[1]" / "c.yml"]
    assert packs.find("sub[1]/c.yml", folder) == [folder / "sub[1]" / "c.yml"]


def test_without_a_configuration_file_an_entry_is_relative_to_where_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert packs.find("a.*", None) == [Path("a.yml")]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("none.yml", r"'none.yml' matches no file \(.*/none.yml\); name a rule file, a pattern such as 'rules/\*.yml'"),
        ("*.yaml", r"'\*.yaml' matches no file"),
        ("sub*", r"'sub\*' matches no file"),
        ("sub[1]", r"'sub\[1\]' is a directory; name its files, such as 'sub\[1\]/\*.yml'"),
        ("bultin", r"'builtin' or 'advice'"),
        *((entry, "matches no file") for entry in ("x" * 300, "x" * 5000, "a\0b", "[", "a/b/c", "../" * 50 + "none")),
    ],
)
def test_an_entry_that_names_no_file_is_an_error(folder: Path, entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packs.load_all(["builtin", entry], folder, 60.0)


def test_a_file_that_several_entries_name_is_loaded_once(folder: Path) -> None:
    (folder / "link.yml").symlink_to(folder / "a.yml")
    loaded = packs.load_all(["b.yml", "*.yml", str(folder / "a.yml")], folder, 60.0)
    assert [file.groups[0].name for file in loaded] == ["b", "a"]
    assert [file.path for file in loaded] == [str(folder / "b.yml"), str(folder / "a.yml")]


def test_the_problems_of_all_files_are_reported_at_once(folder: Path) -> None:
    (folder / "x.yml").write_text("groups: 7")
    (folder / "y.yml").write_text("groups: [{name: g, intervall: 1m}]")
    with pytest.raises(RuleFileError) as caught:
        packs.load_all(["*.yml"], folder, 60.0)
    assert [Path(each.file).name for each in caught.value.problems] == ["x.yml", "y.yml"]


def test_the_default_step_is_that_of_subqueries_without_one(folder: Path) -> None:
    (folder / "a.yml").write_text("groups: [{name: g, rules: [{record: r, expr: 'sum_over_time(vector(1)[1m:])'}]}]")
    (file,) = packs.load_all(["a.yml"], folder, 15.0)
    (sample,) = file.groups[0].rules[0].query.evaluate(Storage(), 60.0)
    assert sample.value == 4.0


def test_an_entry_that_is_not_a_regular_file_is_reported_as_what_it_is(folder: Path) -> None:
    os.mkfifo(folder / "fifo.yml")
    (folder / "broken.yml").symlink_to("nowhere")
    for entry, problem in (("fifo.yml", "is a FIFO, not a file"), ("broken.yml", "cannot be read: No such file")):
        with pytest.raises(RuleFileError, match=problem):
            packs.load_all([entry], folder, 1.0)


def rules(name: str, count: int) -> str:
    each = ", ".join(f"{{alert: A{number}, expr: up > {number}}}" for number in range(count))
    return f"groups: [{{name: {name}, rules: [{each}]}}]"


def test_the_rules_of_a_site_are_counted_over_its_files_and_beside_the_shipped_ones(folder: Path) -> None:
    (folder / "a.yml").write_text(rules("a", 300))
    (folder / "b.yml").write_text(rules("b", 200))
    shipped = sum(file.rule_count for file in packs.load_all(["builtin", "advice"], None, 1.0))
    loaded = packs.load_all(["builtin", "advice", "?.yml"], folder, 1.0)
    assert sum(file.rule_count for file in loaded) == shipped + 500
    (folder / "b.yml").write_text(rules("b", 201))
    with pytest.raises(TooManyRulesError) as caught:
        packs.load_all(["?.yml", "builtin"], folder, 1.0)
    assert str(caught.value) == (
        f"{folder}/b.yml:1: here the rules of this site exceed 500, the most on a node; "
        "give the rest to a Prometheus server"
    )


def test_the_words_of_a_sites_rules_are_counted_too(folder: Path) -> None:
    for name in "ab":
        row = " + ".join(["up"] * 4000)
        each = ", ".join(f"{{record: r{number}, expr: {row}}}" for number in range(3))
        (folder / f"{name}.yml").write_text(f"groups: [{{name: {name}, rules: [{each}]}}]")
    assert packs.load_all(["a.yml"], folder, 1.0)
    with pytest.raises(
        TooManyRulesError, match=r"b\.yml:1: here the rules of this site exceed 40000 words and signs, "
    ):
        packs.load_all(["?.yml"], folder, 1.0)


def test_of_too_many_problems_in_many_files_not_all_are_reported(folder: Path) -> None:
    for number in range(20):
        (folder / f"bad{number}.yml").write_text("groups: [" + "{nam: x}, " * 40 + "]")
    with pytest.raises(RuleFileError) as caught:
        packs.load_all(["bad*.yml"], folder, 1.0)
    assert 50 <= len(caught.value.problems) <= 102


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MOST_FILES", 1)
    with pytest.raises(ValueError, match="matches more than 1 files; use a narrower pattern"):
        packs.find("*.yml", folder)
    with pytest.raises(ValueError, match="2 files; the limit is 1"):
        packs.load_all(["a.yml", "b.yml"], folder, 1.0)
