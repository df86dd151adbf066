"""A rule with a long range is refused by itself: the pack beside it keeps what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import cli
from agent.backends.synthetic import load_scenario
from alerts import rulefile
from alerts.engine import Ruleset
from alerts.rulefile import RuleFile
from tests.lab.score.play import Play

SITE = """groups:
- name: site
  rules:
  - {record: x, expr: "avg_over_time(coldplate_gpu_up[30d])"}
  - {record: y, expr: "avg_over_time(coldplate_gpu_power_watts[1y])"}
  - {record: z, expr: "avg_over_time(coldplate_gpu_power_watts[1h])"}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yml"
    path.write_text(SITE)
    return path


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_lost_gpu_is_found_beside_rules_that_look_back_for_months(
    site: Path, pack: list[RuleFile], reloaded: bool
) -> None:
    both = [rulefile.load(site), *pack]
    play = Play(load_scenario("gpu-lost"), pack if reloaded else both).until(20)
    play.reload(Ruleset(tuple(both)))
    play.until(70)
    play.close()
    fired = {firing.alert: firing.at for firing in play.firings}
    assert 60 <= fired["GpuLost"] <= 68
    assert fired.pop("RulesFailing") < 60
    assert min(fired.values()) >= 60
    reports = {rule.name: rule for group in play.engine.reports() for rule in group.rules}
    assert {name: reports[name].health.value for name in "xyz"} == {"x": "err", "y": "err", "z": "ok"}
    assert "30d" in reports["x"].error and "MiB" in reports["x"].error
    assert play.engine.windows.dropped == 0
    assert play.engine.windows.bytes < 64 * 2**20


def test_rules_check_names_the_price_of_a_range(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "check", str(site)]) == 1
    failed = [line for line in capsys.readouterr().err.splitlines() if "MiB" in line]
    assert [line.strip().partition(":")[2].partition(":")[0] for line in failed] == ["4", "5"]
