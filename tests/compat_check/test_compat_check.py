"""The command: verdicts on queries, what it prints, and its exit status."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.commands import compat_check
from agent.commands.compat_check.query_extraction import ExtractedQuery
from agent.commands.compat_check.query_verdicts import QueryVerdict, evaluate_query
from exporters.compatibility import PROFILES

ROOT = Path(__file__).resolve().parents[2]
TWELVE_TWO_THREE_NINE = [
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
]


def verdict(text: str, *labels: str) -> QueryVerdict:
    return evaluate_query(ExtractedQuery("p", text, labels=labels))


@pytest.mark.parametrize("query", TWELVE_TWO_THREE_NINE)
def test_the_official_dashboard_finds_all_under_dcgms_names(query: str) -> None:
    query_verdict = verdict(query)
    assert query_verdict.finds_data and query_verdict.remarks == ()
    assert {metric.source for metric in query_verdict.metrics} == {"dcgm"}


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 'coldplate_gpu_clock_hertz{domain="sm"} / 1e6'),
        ("DCGM_FI_DEV_FB_USED", "coldplate_gpu_memory_used_bytes / 2^20"),
        ("DCGM_FI_DEV_GPU_UTIL", "coldplate_gpu_utilization_ratio * 100"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "rate(coldplate_gpu_pcie_transmit_bytes_total[1m])"),
        ("DCGM_FI_PROF_NVLINK_RX_BYTES", "rate(coldplate_gpu_nvlink_receive_bytes_total[1m])"),
        ("DCGM_FI_DEV_XID_ERRORS", "coldplate_gpu_xid_last_timestamp_seconds"),
        ("gpu_memory_percent_Percentage", "coldplate_gpu_memory_used_bytes * 100 / coldplate_gpu_memory_total_bytes"),
        ("node_infiniband_port_data_received_bytes_total", "coldplate_infiniband_port_data_received_bytes_total"),
        ("nvidia_smi_fabric_state", "coldplate_gpu_fabric_state"),
        # not served under their names
        ("DCGM_EXP_XID_ERRORS_COUNT", "increase(coldplate_gpu_xid_errors_total[5m])"),
        ("dcgm_sm_clock", "DCGM_FI_DEV_SM_CLOCK"),
        ("nvidia_smi_pstate", "coldplate_gpu_throttle_active"),
        ("node_cpu_seconds_total", ""),
    ],
)
def test_what_to_use_instead_is_in_the_tables(name: str, instead: str) -> None:
    (metric,) = verdict(name).metrics
    assert metric.instead == instead


def test_every_suggestion_is_a_query_that_finds_data() -> None:
    for profile in PROFILES.values():
        for name in (*(foreign.name for foreign in profile.names), *(foreign.name for foreign in profile.not_served)):
            (metric,) = verdict(name).metrics
            if metric.instead:
                better = verdict(metric.instead)
                assert better.finds_data and better.remarks == (), f"{name}: {metric.instead}: {better}"


def test_a_query_is_as_good_as_its_worst_metric_but_an_or_needs_one_side() -> None:
    assert not verdict("DCGM_FI_DEV_GPU_TEMP / nothing_known").finds_data
    assert verdict("DCGM_FI_DEV_GPU_TEMP or nothing_known").finds_data
    assert verdict("(nothing_known or DCGM_FI_DEV_GPU_TEMP) * on (gpu) up").finds_data
    assert not verdict("nothing_known or nothing_either").finds_data
    assert verdict("up == 0").finds_data
    assert verdict('{__name__=~"DCGM_FI_.*"}').finds_data
    assert not verdict('{__name__=~"nothing_.*"}').finds_data


@pytest.mark.parametrize(
    "text",
    [
        'm{instance=~"$instance", gpu=~"$gpu"}',
        "rate(m[$__rate_interval])",
        "rate(m[${__rate_interval}])",
        "increase(m[$__range])",
        "m * $factor",
        "sum by ($by) (m)",
        "sum by (${by:csv}) (m{gpu='[[b]]'})",
        "avg_over_time(m[$window:$__interval])",
        "rate(m[5m] offset $offset)",
        "topk($n, m)",
        'm{gpu=~"${b:regex}"}',
        "topk by (gpu) ([[n]], m)",
        "histogram_quantile($q, m)",
        "quantile(${q}, m)",
        "m offset $offset",
        'sum by (host) (label_replace(m, "host", "$1", "instance", "(.*):.*"))',
        'count_values("version", m)',
    ],
)
def test_a_metric_is_found_whatever_grafana_fills_in_around_it(text: str) -> None:
    query_verdict = verdict(re.sub(r"\bm\b", "coldplate_gpu_xids_total", text))
    assert "coldplate_gpu_xids_total" in {metric.name for metric in query_verdict.metrics}
    assert (query_verdict.finds_data, query_verdict.remarks, query_verdict.unread) == (True, (), "")


@pytest.mark.parametrize("text", ["$metric", "node_${what}_total", '{__name__=~"$m"}', "[[metric]]{a='b'}"])
def test_a_name_that_grafana_fills_in_is_open(text: str) -> None:
    assert verdict(text).open


@pytest.mark.parametrize(
    "text",
    ["", "   ", "sum(", "((((", "\ud800", "x" * 70_000, "5 +", "rate(m) keep_metric_names", "m default 0", "info(m)"],
)
def test_what_rules_do_not_support_is_unread(text: str) -> None:
    assert verdict(text).unread


def test_labels_that_are_not_there_are_told_with_those_that_are() -> None:
    assert verdict('DCGM_FI_DEV_GPU_TEMP{Hostname="a", hostname="a", UUID="b", pod="c"}').remarks == ()
    (remark,) = verdict('DCGM_FI_DEV_GPU_TEMP{exported_pod="a"}').remarks
    assert remark.startswith("DCGM_FI_DEV_GPU_TEMP has no label exported_pod; it is pod, unless scraping adds")
    assert verdict('coldplate_gpu_temperature_celsius{UUID="b"}').remarks == (
        "coldplate_gpu_temperature_celsius has no label UUID; it is uuid",
    )
    assert verdict("sum by (Hostname) (coldplate_gpu_power_watts)").remarks == (
        "no metric of the query has the label Hostname; it is instance, or a label that scraping adds",
    )
    assert verdict("DCGM_FI_DEV_GPU_TEMP", "exported_pod").remarks != ()
    assert verdict('DCGM_FI_DEV_GPU_TEMP{exported_pod=~"$pod"}').remarks == ()
    assert verdict("sum by (Hostname) (nothing_known)").remarks == ()


def test_our_own_boards_and_rules_find_all(capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        *ROOT.glob("dashboards/generated/*.json"),
        *ROOT.glob("alerts/rules/*.yml"),
        *ROOT.glob("alerts/server/*.rules.yml"),
    ]
    assert len(files) > 15
    assert check(*files) == 0
    assert "NONE" not in capsys.readouterr().out


def check(*files: Path, as_json: bool = False) -> int:
    return compat_check.run(argparse.Namespace(files=list(files), json=as_json))


def board(folder: Path, *queries: str) -> Path:
    path = folder / "board.json"
    panels: list[dict[str, Any]] = [
        {"title": f"panel {number}", "targets": [{"expr": query}]} for number, query in enumerate(queries)
    ]
    path.write_text(json.dumps({"panels": panels}))
    return path


def test_the_exit_status_is_that_of_the_worst_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, broken = board(tmp_path, *TWELVE_TWO_THREE_NINE, "$metric", "vector(1)"), tmp_path / "broken.json"
    broken.write_text("{")
    assert check(good) == 0
    output = capsys.readouterr().out
    assert "9 of 9 queries find data" in output and output.endswith("metrics: {compatibility: [dcgm]}\n")
    assert "OPEN    panel 7: a name that only Grafana knows" in output
    assert "OK      panel 8: no metric is needed" in output
    assert check(board(tmp_path, "DCGM_FI_DEV_FAN_SPEED")) == 1
    assert "NONE    panel 0: DCGM_FI_DEV_FAN_SPEED (nowhere)" in capsys.readouterr().out
    assert check(broken, board(tmp_path, "coldplate_gpu_up")) == 2
    captured = capsys.readouterr()
    assert "1 of 1 queries find data" in captured.out
    assert captured.err.startswith(f"coldplate compat-check: {broken}: line 1: is not JSON")


def test_what_one_file_records_another_may_ask_for(tmp_path: Path) -> None:
    rules = tmp_path / "r.yml"
    rules.write_text("groups: [{name: g, rules: [{record: 'node:gpu_up:sum', expr: sum(coldplate_gpu_up)}]}]")
    asking = board(tmp_path, "node:gpu_up:sum")
    assert check(asking) == 1
    assert check(asking, rules) == 0


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(board(tmp_path, "DCGM_FI_DEV_GPU_TEMP + nvidia_smi_pstate", "sum("), as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["compatibility"] == ["dcgm"]
    first, second = document["files"][0]["queries"]
    assert first["verdict"] == "NONE"
    assert [metric["source"] for metric in first["metrics"]] == ["dcgm", ""]
    assert (second["verdict"], second["metrics"]) == ("UNREAD", []) and second["unread"]


def test_what_is_not_our_promql_is_listed_as_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(board(tmp_path, "coldplate_gpu_up", "rate(coldplate_gpu_up) keep_metric_names", "nothing_known")) == 1
    output = capsys.readouterr().out
    assert "1 of 3 queries find data, 1 unread" in output
    assert '  UNREAD  panel 1: line 1, column 24: unexpected identifier "keep_metric_names"' in output
    assert check(board(tmp_path, "coldplate_gpu_up", "sum(")) == 1
