"""What happens on a node within hours, as a scenario of the synthetic source."""

from __future__ import annotations

from pathlib import Path

from agent.backends.synthetic import Scenario
from agent.backends.synthetic.loader import load_scenario

JOB_SECONDS = 600
GPUS = 8

FAULTS = """\
faults:
  - {kind: ib-down, port: mlx5_3, at: 300s, duration: 90s, repeat: 20m}
  - {kind: hang, gpu: 2, at: 700s, duration: 60s, repeat: 50m}
  - {kind: xid, gpu: 5, at: 900s, repeat: 15m, code: 31}
  - {kind: ecc, gpu: 6, at: 400s, duration: 5m, repeat: 30m, corrected_rate: 1}
  - {kind: nvlink-down, gpu: 1, link: 4, at: 500s, duration: 2m, repeat: 35m}
  - {kind: missing, gpu: 4, at: 200s, duration: 3m, repeat: 25m, metric: coldplate_gpu_temperature_celsius}
  - {kind: sentinel, gpu: 3, at: 250s, duration: 3m, repeat: 45m, metric: coldplate_gpu_power_watts}
"""


def busy_hours(folder: Path, seconds: int) -> Scenario:
    """A job after the other, each with a number of its own, and each GPU lost and back in its turn."""
    jobs = "".join(map(_job, range(seconds // JOB_SECONDS + 1)))
    lost = "".join(
        f"  - {{kind: lost, gpu: {gpu}, at: {180 + 300 * gpu}s, duration: 60s, repeat: 41m}}\n" for gpu in range(GPUS)
    )
    path = folder / "busy-hours.yaml"
    path.write_text(f"description: Hours of changes.\ntopology: dgx-h100\nseed: 1\njobs:\n{jobs}{FAULTS}{lost}")
    return load_scenario(str(path))


def _job(number: int) -> str:
    start = JOB_SECONDS * number
    return (
        f'  - {{id: "{7000 + number}", name: train-{number}, user: u{number}, account: a{number}, partition: h100,\n'
        f"     gpus: 0-{3 + number % 5}, parallelism: data, memory: 0.8, start: {start}s, end: {start + 540}s,\n"
        f"     phases: [{{kind: training}}]}}\n"
    )
