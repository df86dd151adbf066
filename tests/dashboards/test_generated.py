"""The committed JSON is what the boards say, as grafanalib and Grafana's SDK read it, in the package and relabelled."""

import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafanalib._gen import generate_dashboards

from agent import cli
from alerts import packs
from alerts.promql.syntax import parse
from dashboards import alert_thresholds
from dashboards.generate import BOARDS, boards
from dashboards.panels import graph
from dashboards.relabel import as_text
from tests.dashboards.conftest import GENERATED, NAMES, ROOT, filled, load
from tests.dashboards.rig import promtool
from tests.rule_tests.command import run_files


def test_the_committed_dashboards_are_current_and_no_two_share_an_identity() -> None:
    made = {f"{name}.json": as_text(board) for name, board in boards().items()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.iterdir()}
    assert made == committed, "run make generate"
    uids = [json.loads(path.read_text())["uid"] for path in GENERATED.glob("*.json")]
    assert len(set(uids)) == len(uids) == 6
    assert all(len(uid) <= 40 for uid in uids)


def test_the_stock_command_of_grafanalib_makes_the_same_dashboards(tmp_path: Path) -> None:
    for path in BOARDS.glob("*.dashboard.py"):
        shutil.copy(path, tmp_path)
    generate_dashboards([str(path) for path in tmp_path.glob("*.dashboard.py")])
    for name in NAMES:
        theirs = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert theirs == json.loads((GENERATED / f"{name}.json").read_text(encoding="utf-8"))


def test_panels_about_unknown_metrics_and_alerts_are_refused() -> None:
    with pytest.raises(ValueError, match="no known series in 'coldplate_gpu_powr_watts'"):
        graph("coldplate_gpu_powr_watts", "low.")
    for name in ("GpuHott", "GpuXidUnknown"):
        with pytest.raises(KeyError, match=name):
            alert_thresholds.steps(name)


def sdk() -> None:
    try:
        import grafana_foundation_sdk  # noqa: F401 - only whether it is there
    except ImportError:
        if os.environ.get("CI") == "true" and sys.version_info >= (3, 11):
            pytest.fail("grafana-foundation-sdk is missing, and CI=true")
        pytest.skip("grafana-foundation-sdk is not installed: NOTHING shows here that Grafana knows every field")


def dropped(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where a value of ours is gone or another one after the round trip."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{path}.{key}"
            else:
                yield from dropped(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from dropped(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


def round_trip(board: dict[str, Any]) -> Any:
    sdk()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it would rather have the second version of the schema
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))


@pytest.mark.parametrize("name", NAMES)
def test_a_round_trip_loses_nothing(name: str) -> None:
    board = load()[name].json
    assert sorted(set(dropped(board, round_trip(board)))) == []


PROMETHEUS = ROOT / "packaging" / "prometheus"
PROVISIONING = ROOT / "packaging" / "grafana" / "provisioning"
FLEET_TEST = ROOT / "tests" / "dashboards" / "fleet.test.yml"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_prometheus_loads_the_packaged_configuration_with_all_rules(tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    assert cli.main(["render", "rules", "--output", str(tmp_path / "rules")]) == 0
    config = tmp_path / "prometheus" / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/coldplate/rules", str(tmp_path / "rules")))
    checked = promtool("check", "config", str(config))
    assert checked.count("rules found") == len(packs.builtin_files()) + 1


def test_promtool_and_coldplate_find_that_the_fleet_rules_say_what_they_should() -> None:
    promtool("test", "rules", str(FLEET_TEST))
    assert run_files([FLEET_TEST]) == 0


def test_packaged_files_agree_with_agents_rules_and_documents() -> None:
    config = read(PROMETHEUS / "prometheus.yml")
    assert [(job["job_name"], job["honor_labels"]) for job in config["scrape_configs"]] == [("coldplate", True)]
    targets = read(PROMETHEUS / "targets" / "nodes.yml")
    assert all(target.endswith(":19400") for group in targets for target in group["targets"])
    assert {group["labels"]["cluster"] for group in targets} == {config["global"]["external_labels"]["cluster"]}
    source = read(PROVISIONING / "datasources" / "coldplate.yml")["datasources"][0]
    assert source["type"] == "prometheus"
    interval = read(PROMETHEUS / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval, "$__rate_interval is made of it: rates would have no data"
    provider = read(PROVISIONING / "dashboards" / "coldplate.yml")["providers"][0]
    text = (ROOT / "docs" / "fleet.md").read_text()
    assert f"dashboards/generated:{provider['options']['path']}" in text
    assert "coldplate render rules --min-interval" in text
    assert "coldplate-rules:/etc/coldplate/rules" in text


ANY = dict.fromkeys(("cluster", "rack", "node", "gpu", "job"), "x")


def render(folder: Path, *options: str) -> int:
    return cli.main(["render", "dashboards", "--output", str(folder), *options])


def test_without_options_and_grafanalib_it_writes_the_committed_dashboards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in ("grafanalib", "dashboards")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafanalib", None)
    assert render(tmp_path / "new") == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [f"{name}.json" for name in NAMES]
    for name in NAMES:
        assert (tmp_path / "new" / f"{name}.json").read_bytes() == (GENERATED / f"{name}.json").read_bytes()
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "new" / f"{name}.json") for name in NAMES]


def test_links_to_runbooks_follow_tls_and_the_base_of_a_site(tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: node.pem, key_file: node.key}\n")
    committed = (GENERATED / "fleet.json").read_text()
    for name, options, begin in (
        ("tls", ["--web.config.file", str(web)], "https://${__value.raw}/runbooks/"),
        ("base", ["--runbook-base", "https://wiki.example/gpu/"], "https://wiki.example/gpu/"),
    ):
        assert render(tmp_path / name, *options) == 0
        expected = committed.replace("http://${__value.raw}/runbooks/", begin)
        assert expected != committed
        assert (tmp_path / name / "fleet.json").read_text() == expected


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
    assert render(tmp_path, "--label", "instance=host", "--datasource", "mimir") == 0
    for board in load(tmp_path).values():
        assert board.variables()["datasource"]["current"] == {"text": "mimir", "value": "mimir"}
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
    assert capsys.readouterr().err.startswith(f"coldplate render dashboards: {message}")
    assert list(tmp_path.iterdir()) == []
