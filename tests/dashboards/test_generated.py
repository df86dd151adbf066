"""The committed JSON is what the boards say, and grafanalib's own command reads the boards too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from grafanalib._gen import generate_dashboards

from dashboards import alert_thresholds, queries
from dashboards.board import Board
from dashboards.generate import BOARDS, GENERATED, as_text, boards
from dashboards.panels import graph
from dashboards.queries import narrowed
from tests.dashboards.conftest import NAMES


def test_the_committed_dashboards_are_current() -> None:
    made = {f"{name}.json": as_text(board) for name, board in boards().items()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.iterdir()}
    assert made == committed, "run make generate"


def test_the_stock_command_of_grafanalib_makes_the_same_dashboards(tmp_path: Path) -> None:
    for path in BOARDS.glob("*.dashboard.py"):
        shutil.copy(path, tmp_path)
    generate_dashboards([str(path) for path in tmp_path.glob("*.dashboard.py")])
    for name in NAMES:
        theirs = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert theirs == json.loads((GENERATED / f"{name}.json").read_text(encoding="utf-8"))


def test_a_panel_takes_all_it_can_from_the_catalogue() -> None:
    panel = graph("coldplate_gpu_sm_active_ratio", "high.")
    assert (panel.title, panel.unit) == ("GPU SM active", "percentunit")
    assert panel.description.startswith("Share of cycles in which a multiprocessor had at least one warp")


def test_a_panel_about_a_metric_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no known series in 'coldplate_gpu_powr_watts'"):
        graph("coldplate_gpu_powr_watts", "low.")


@pytest.mark.parametrize(
    ("expr", "unit"),
    [
        ("rate(coldplate_gpu_energy_joules_total[5m])", "watt"),
        ("rate(coldplate_gpu_throttle_seconds_total[5m])", "percentunit"),
        ("rate(coldplate_gpu_nvlink_transmit_bytes_total[5m])", "Bps"),
        ("increase(coldplate_gpu_energy_joules_total[5m])", "joule"),
        ("count by (gpu) (coldplate_gpu_power_watts)", "short"),
    ],
)
def test_the_unit_follows_from_what_the_query_does(expr: str, unit: str) -> None:
    assert graph(expr, "good.").unit == unit


def test_series_are_narrowed_only_by_labels_that_they_have() -> None:
    matchers = {"instance": 'instance="$node"', "gpu": 'gpu=~"$gpu"'}
    expr = 'sum(coldplate_gpu_power_watts) / on () coldplate_node_power_watts{source="ipmi"}'
    assert narrowed(expr, matchers) == (
        'sum(coldplate_gpu_power_watts{instance="$node", gpu=~"$gpu"})'
        ' / on () coldplate_node_power_watts{instance="$node", source="ipmi"}'
    )


def test_a_matcher_that_the_board_wrote_itself_is_kept() -> None:
    assert narrowed('coldplate_gpu_up{gpu!=""}', {"gpu": 'gpu="$gpu"'}) == 'coldplate_gpu_up{gpu!=""}'


def test_recorded_series_of_gpus_are_narrowed_by_job_where_their_query_keeps_it() -> None:
    matchers = {"job_id": 'job_id="$job"'}
    assert narrowed("gpu:computing_ratio:rate5m", matchers) == 'gpu:computing_ratio:rate5m{job_id="$job"}'
    assert narrowed("gpu:pcie_replays_total:each1m", matchers) == "gpu:pcie_replays_total:each1m"


def test_thresholds_come_from_the_rules() -> None:
    assert alert_thresholds.steps("GpuHot") == (("orange", None), ("green", 5.0))
    assert alert_thresholds.steps("GpuHot.memory") == (("green", None), ("orange", 95.0))
    assert alert_thresholds.steps("GpuThrottled") == (("green", None), ("red", 0.05))
    levels = (("green", None), ("orange", 0.8), ("orange", 0.9), ("red", 1.0), ("red", 1.35))
    assert alert_thresholds.steps("RackPowerHigh") == levels
    assert alert_thresholds.steps("RackPowerSwing", level="ramp") == (("green", None), ("blue", 0.03))
    assert alert_thresholds.steps("RackCoolantSupplyHot") == (("green", None), ("orange", 40.0), ("red", 45.0))
    assert alert_thresholds.steps("RackBreaker") == (("red", None), ("orange", 300.0), ("green", 1800.0))


@pytest.mark.parametrize("name", ["GpuHott", "GpuXidUnknown"])
def test_thresholds_of_an_alert_that_has_none_are_refused(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        alert_thresholds.steps(name)


def test_panels_flow_over_the_grid() -> None:
    board = Board("node", "A test.")
    board.add(*(graph("coldplate_gpu_power_watts", "good.", title=str(number), size=(10, 8)) for number in range(3)))
    board.row("Next")
    board.add(graph("coldplate_gpu_power_watts", "good."))
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in board.to_json_data()["panels"]]
    assert places == [(0, 0, 10, 8), (10, 0, 10, 8), (0, 8, 10, 8), (0, 16, 24, 1), (0, 17, 12, 8)]


def test_names_are_put_into_words() -> None:
    assert queries.title_of("coldplate_gpu_pcie_replays_total") == "GPU PCIe replays"
    assert queries.title_of("rack:power_watts:mean1m") == "Power"
