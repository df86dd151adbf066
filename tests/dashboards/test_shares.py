"""What pieces of queries that several boards share answer, by promtool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.queries import BREACH, THROTTLED
from tests.dashboards.conftest import filled, load
from tests.dashboards.rig import promtool

SERIES = {
    'rack:time_to_breach_seconds:linear5m{rack="rises"}': "300x8",
    'rack:power_ratio:max{rack="rises"}': "0.9x8",
    'rack:power_ratio:max{rack="over"}': "1.12x8",
    'rack:power_ratio:max{rack="falls"}': "0.7x8",
    'coldplate_gpu_throttle_seconds_total{gpu="0",reason="hw_power_brake"}': "0+16x8",
    'coldplate_gpu_throttle_seconds_total{gpu="1",reason="hw_power_brake"}': "0+3x8",
    'coldplate_gpu_throttle_seconds_total{gpu="1",reason="gpu_idle"}': "0+15x8",
}
ANSWERS: dict[str, dict[str, float]] = {
    BREACH: {'{rack="rises"}': 300, '{rack="over"}': 0},
    THROTTLED: {'{gpu="0",reason="hw_power_brake"}': 1, '{gpu="1",reason="hw_power_brake"}': 0.2},
}


@pytest.mark.parametrize("expr", ANSWERS, ids=("breach", "throttled"))
def test_a_piece_of_a_query_answers(expr: str, tmp_path: Path) -> None:
    asked = {
        "expr": f"round({filled(expr, {'__rate_interval': '1m'})}, 0.001)", "eval_time": "2m",
        "exp_samples": [{"labels": labels, "value": value} for labels, value in ANSWERS[expr].items()],
    }  # fmt: skip
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    file = tmp_path / "shares.test.yml"
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [asked]}
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", str(file))


def test_no_share_of_time_is_more_than_all_of_it() -> None:
    """rate() reckons beyond the samples: a GPU that is throttled all the time would be so for 105%."""
    for board in load().values():
        for where, expr in board.queries():
            for name in ("coldplate_gpu_throttle_seconds_total", "coldplate_node_pressure_waiting_seconds_total"):
                assert expr.count(f"rate({name}") == expr.count(f"clamp_max(rate({name}"), where
