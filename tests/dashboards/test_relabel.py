"""`coldplate render dashboards`: the committed dashboards, in the names of a site."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from agent import cli
from alerts.promql.syntax import parse
from tests.dashboards.conftest import GENERATED, NAMES, filled, load

ANY = dict.fromkeys(("cluster", "rack", "node", "gpu", "job"), "x")


def render(folder: Path, *options: str) -> int:
    return cli.main(["render", "dashboards", "--output", str(folder), *options])


def test_without_options_it_writes_the_committed_dashboards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert render(tmp_path / "new") == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [f"{name}.json" for name in NAMES]
    for name in NAMES:
        assert (tmp_path / "new" / f"{name}.json").read_bytes() == (GENERATED / f"{name}.json").read_bytes()
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "new" / f"{name}.json") for name in NAMES]


def test_it_needs_no_grafanalib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in ("grafanalib", "dashboards")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafanalib", None)
    assert render(tmp_path) == 0


def test_labels_and_prefix_are_replaced_in_every_query_and_nowhere_else(tmp_path: Path) -> None:
    labels = ("--label", "instance=host", "--label", "rack=cabinet", "--label", "job_id=slurm_job")
    assert render(tmp_path, *labels, "--prefix", "acme_gpu_") == 0
    before, after = load(), load(tmp_path)
    back = {"host": "instance", "cabinet": "rack", "slurm_job": "job_id"}
    for name in NAMES:
        for (where, old), (_, new) in zip(before[name].queries(), after[name].queries(), strict=True):
            parse(filled(new, ANY))
            bare = re.sub(r'"[^"]*"', "", new)
            assert not re.search(r"\b(instance|rack|job_id)\b(?!:)", bare), where
            assert "coldplate_" not in bare, where
            assert old == _undone(new, back), where
        assert [panel["title"] for panel in before[name].panels()] == [panel["title"] for panel in after[name].panels()]


def _undone(expr: str, names: dict[str, str]) -> str:
    for new, old in names.items():
        expr = re.sub(rf'\b{new}\b(?=[^"]*(?:"[^"]*"[^"]*)*$)', old, expr)
        expr = expr.replace(f', "{new}"', f', "{old}"')  # an argument of label_replace
    return expr.replace("acme_gpu_", "coldplate_")


def test_legends_columns_and_variables_follow_the_labels(tmp_path: Path) -> None:
    assert render(tmp_path, "--label", "instance=host") == 0
    fleet = load(tmp_path)["fleet"]
    table = next(panel for panel in fleet.panels() if panel["title"] == "Firing alerts")
    assert table["transformations"][-1]["options"]["renameByName"]["host"] == "Node"
    legends = {target["legendFormat"] for panel in load(tmp_path)["agents"].panels() for target in panel["targets"]}
    assert "{{host}}" in legends
    assert not any("{{instance}}" in legend for legend in legends)
    node = load(tmp_path)["node"].variables()["node"]
    assert node["definition"] == 'label_values(coldplate_build_info{cluster=~"$cluster"}, host)'
    assert node["query"]["query"] == node["definition"]
    assert "$node" in json.dumps(load(tmp_path)["node"].json)


def test_boards_open_with_the_data_source_that_is_given(tmp_path: Path) -> None:
    assert render(tmp_path, "--datasource", "mimir") == 0
    for board in load(tmp_path).values():
        assert board.variables()["datasource"]["current"] == {"text": "mimir", "value": "mimir"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label", "instance"], "--label: 'instance' must be OLD=NEW with a label name, such as instance=host"),
        (["--label", "instance=a-b"], "--label: 'instance=a-b' must be OLD=NEW"),
        (["--label", "gpu=x"], "--label: 'gpu' cannot be renamed; use one of cluster, instance, rack, job_id"),
        (["--label", "rack=a", "--label", "rack=b"], "--label: rack has two new names, a and b; give one"),
        (["--prefix", "9a"], "--prefix: '9a' cannot start a metric name; use letters, digits and _"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert render(tmp_path, *options) == 2
    assert capsys.readouterr().err.startswith(f"coldplate: {message}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert render(tmp_path / "out") == 2
    assert "is not a directory; name one" in capsys.readouterr().err


def test_the_directory_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["render", "dashboards"])
    assert "the following arguments are required: --output" in capsys.readouterr().err


def test_options_of_dashboards_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["render", "metrics", "--prefix", "x_"])
    assert "coldplate render metrics: unknown option '--prefix'" in capsys.readouterr().err
