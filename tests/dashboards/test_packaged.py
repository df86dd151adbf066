"""What packaging/ holds for Prometheus and Grafana fits together, and fits the dashboards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from agent import cli
from tests.dashboards.conftest import GENERATED, ROOT
from tests.dashboards.rig import promtool

PROMETHEUS = ROOT / "packaging" / "prometheus"
PROVISIONING = ROOT / "packaging" / "grafana" / "provisioning"
FLEET_TEST = ROOT / "tests" / "dashboards" / "fleet.test.yml"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_prometheus_loads_the_packaged_configuration_with_all_rules(tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    config = tmp_path / "prometheus" / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/coldplate/rules", str(ROOT / "alerts" / "rules")))
    checked = promtool("check", "config", str(config))
    files = len(list((ROOT / "alerts" / "rules").glob("*.yml"))) + 1
    assert checked.count("rules found") == files


def test_the_fleet_rules_say_what_they_should() -> None:
    promtool("test", "rules", str(FLEET_TEST))


def test_coldplate_judges_the_fleet_rules_as_promtool_does() -> None:
    assert cli.main(["rules", "test", str(FLEET_TEST)]) == 0


def test_the_scrape_job_has_the_name_that_agents_and_rules_expect() -> None:
    config = read(PROMETHEUS / "prometheus.yml")
    assert [job["job_name"] for job in config["scrape_configs"]] == ["coldplate"]
    targets = read(PROMETHEUS / "targets" / "nodes.yml")
    assert all(target.endswith(":19400") for group in targets for target in group["targets"])


def test_grafana_is_told_the_scrape_interval_of_the_server() -> None:
    """Grafana computes $__rate_interval from it: a shorter one leaves rates without data."""
    source = read(PROVISIONING / "datasources" / "coldplate.yml")["datasources"][0]
    assert source["type"] == "prometheus"
    interval = read(PROMETHEUS / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


def test_the_documented_mounts_are_those_of_the_provisioning() -> None:
    provider = read(PROVISIONING / "dashboards" / "coldplate.yml")["providers"][0]
    text = (ROOT / "docs" / "fleet.md").read_text()
    assert f"dashboards/generated:{provider['options']['path']}" in text
    assert "alerts/rules:/etc/coldplate/rules" in text


def test_no_two_dashboards_share_an_identity() -> None:
    uids = [json.loads(path.read_text())["uid"] for path in GENERATED.glob("*.json")]
    assert len(set(uids)) == len(uids) == 6
    assert all(len(uid) <= 40 for uid in uids)
