"""A slowed GPU of a job that spans nodes is found by the rules of a fleet's servers."""

from __future__ import annotations

import json
from pathlib import Path

from tests import warm
from tests.simulate.played_site import PlayedSite

RULES = Path(__file__).resolve().parents[2] / "packaging" / "fleet" / "rules"
SITE = """
cluster: east
nodes_per_job: 2
racks: [{count: 1, nodes: 2}]
faults: [{kind: slow, node: node2, gpu: 5, at: 0s, factor: 0.85}]
"""
STEP, STEPS = 30, 22
READ = ("coldplate_gpu_clock_mean_hertz", "coldplate_gpu_tensor_active_mean_ratio", "coldplate_gpu_job_info",
        "coldplate_gpu_info", "coldplate_gpu_power_limit_watts", "coldplate_gpu_throttle_seconds_total")  # fmt: skip


def recorded() -> list[dict[str, str]]:
    """What the rules read of the pages of all nodes, as the series of a unit test of rules."""
    site = PlayedSite(SITE, stride=15)
    values: dict[str, list[str]] = {}
    for step in range(STEPS):
        for name in site.nodes:
            for series, value in site.sample(name, step * STEP):
                if series.metric.name in READ:
                    labels = [*series.all_labels, ("instance", name), ("cluster", "east"), ("rack", "r1")]
                    text = ",".join(f"{label}={json.dumps(each)}" for label, each in labels)
                    kept = values.setdefault(f"{series.metric.name}{{{text}}}", ["_"] * STEPS)
                    kept[step] = repr(value)
    return [{"series": series, "values": " ".join(each)} for series, each in values.items()]


def test_a_slowed_gpu_is_the_one_that_its_job_is_slow_for(tmp_path: Path) -> None:
    question = {
        "expr": 'count by (instance, gpu) (ALERTS{alertname="JobGpuSlow",alertstate="firing"})',
        "eval_time": f"{(STEPS - 1) * STEP}s",
        "exp_samples": [{"labels": '{instance="node2",gpu="5"}', "value": 1}],
    }
    document = {
        "rule_files": [str(RULES / f"{name}.rules.yml") for name in ("jobs-shard", "jobs-global")],
        "evaluation_interval": f"{STEP}s",
        "tests": [{"interval": f"{STEP}s", "input_series": recorded(), "promql_expr_test": [question]}],
    }
    (tmp_path / "t.yml").write_text(json.dumps(document))
    ended = warm.command(["rules", "test", str(tmp_path / "t.yml")])
    assert ended.status == 0, ended.error.decode()
