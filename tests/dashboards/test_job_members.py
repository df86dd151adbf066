"""Which GPUs the Job board counts as the job's, on a server where the driver no longer tells who held a lost one."""

from __future__ import annotations

from pathlib import Path

from tests.dashboards.conftest import filled, load
from tests.dashboards.rig import promtool

HISTORY = """
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="0", uuid="G0", job_id="7", mig="0"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="1", uuid="G1", job_id="7", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="2", uuid="G2", job_id="7", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="3", uuid="G3", job_id="8", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="0", uuid="G0"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="1", uuid="G1"}}', values: '1x20 0x40'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="2", uuid="G2"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="3", uuid="G3"}}', values: '1x20 0x40'}}
  promql_expr_test:
  - expr: '{state}'
    eval_time: 50m
    exp_samples:
    - {{labels: '{{{a}, gpu="0"}}', value: 1}}
    - {{labels: '{{{a}, gpu="1"}}', value: 0}}
"""
"""GPU 1 was lost while job 7 held it, GPU 2 was given back, GPU 3 was another job's."""


def test_a_gpu_that_was_lost_stays_with_the_job_that_held_it_and_one_that_was_given_back_does_not(
    tmp_path: Path,
) -> None:
    (panel,) = (each for each in load()["job"].panels() if each["title"] == "Cause")
    chosen = {"cluster": ".*", "node": ".*", "gpu": ".*", "job": "7", "__range": "1h"}
    expr = filled(panel["targets"][0]["expr"], chosen)
    path = tmp_path / "members.yml"
    path.write_text(HISTORY.format(a='instance="n"', state=expr.replace("'", "''")))
    promtool("test", "rules", str(path))
