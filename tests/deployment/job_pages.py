"""The pages of a job's nodes as series of a unit test of rules: what its GPUs do, and how that shows."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.rule_tests.command import run_files

RULES = Path(__file__).resolve().parents[2] / "packaging" / "fleet" / "rules"
STEP_SECONDS = 15
MODEL = "NVIDIA H100 80GB HBM3"
GROUPS = ["coldplate_shard_job_clocks", "coldplate_shard_job_rails", "coldplate_shard_job_states",
          "coldplate_global_job_gpus", "coldplate_global_job_rails", "coldplate_global_job_hangs"]  # fmt: skip


class Activity(NamedTuple):
    """What a GPU does, and how that shows. `state` is the ledger's."""

    state: str
    power: float
    busy: float
    tensor: float
    dram: float


COMPUTES = Activity("computing", 690, 1, 0.5, 0.4)
DECODES = Activity("computing", 150, 1, 0.01, 0.5)
WAITS = Activity("waiting", 150, 1, 0.01, 0.01)
SAVES = Activity("saving", 150, 1, 0.01, 0.01)
AWAITED = Activity("awaited", 90, 0, 0, 0)
HELD = Activity("held", 90, 0, 0, 0)
LOST = Activity("lost", 0, 0, 0, 0)
ENDED = Activity("", 90, 0, 0, 0)
"""No process of the job is on the GPU any more."""
WAYS = ("transmitted", "received")
Series = dict[str, str]


def series(name: str, labels: Mapping[str, object], values: Sequence[float | None]) -> Series:
    """Return one input series; None is a scrape without it, and the end of a series is marked as stale."""
    text = ",".join(f"{key}={json.dumps(str(value))}" for key, value in labels.items())
    words = ["_" if value is None else repr(value) for value in values]
    for place in range(1, len(values)):
        if values[place] is None and values[place - 1] is not None:
            words[place] = "stale"
    return {"series": f"{name}{{{text}}}", "values": " ".join(words)}


def growing(rates: Sequence[float | None]) -> list[float | None]:
    """Return a counter that grows by these each step."""
    total, found = 0.0, list[float | None]()
    for rate in rates:
        total += rate or 0.0
        found.append(None if rate is None else total)
    return found


def node_pages(
    number: int,
    gpus: Sequence[Sequence[Activity]],
    sends: Sequence[bool],
    *,
    gone: int | None = None,
    port_down: int | None = None,
    xid: Mapping[int, int] | None = None,
) -> list[Series]:
    """Return the pages of a node of job 7: what each GPU does in each step, and whether its port sends.

    From step `gone` on its agent does not answer; from `port_down` on its port is down; `xid` is a GPU and its step.
    """
    steps = range(len(sends))
    job = {"scheduler": "slurm", "job_id": "7"}
    node = {"cluster": "east", "rack": "r1", "instance": f"n{number}:19400"}

    def there(values: Sequence[float | None]) -> list[float | None]:
        return [None if gone is not None and step >= gone else value for step, value in enumerate(values)]

    found = [series("up", {"job": "coldplate", **node}, [float(gone is None or step < gone) for step in steps])]
    states = {each.state for gpu in gpus for each in gpu} - {""}
    for state in sorted(states):
        seconds = [sum(STEP_SECONDS * (gpu[step].state == state) for gpu in gpus) for step in steps]
        labels = {**node, **job, "state": state}
        found.append(series("coldplate_job_gpu_seconds_total", labels, there(growing(seconds))))
    whole = [float(sum(gpu[step] is not ENDED for gpu in gpus)) or None for step in steps]
    found.append(series("coldplate_job_exclusive_gpus", {**node, **job}, there(whole)))
    found.append(series("coldplate_node_gpus_up", node, there([float(len(gpus))] * len(sends))))
    port = {**node, "device": "mlx5_0", "port": "1"}
    up = [float(port_down is None or step < port_down) for step in steps]
    found.append(series("coldplate_infiniband_port_up", port, there(up)))
    carried = there(growing([3e11 * each for each in sends]))
    found += [series(f"coldplate_infiniband_port_data_{way}_bytes_total", port, carried) for way in WAYS]
    for place, gpu in enumerate(gpus):
        labels = {**node, "gpu": str(place), "uuid": f"GPU-{number}-{place}"}
        errors = [float(xid is not None and step >= xid.get(place, len(sends))) for step in steps]
        shown: dict[str, list[float | None]] = {
            "up": [float(each is not LOST) for each in gpu],
            "xids_total": list(errors),
            "power_watts": [each.power for each in gpu],
            "power_limit_watts": [700.0 for _ in gpu],
            "utilization_ratio": [each.busy for each in gpu],
            "busy_seconds_total": growing([STEP_SECONDS * each.busy for each in gpu]),
            "tensor_active_ratio": [each.tensor for each in gpu],
            "dram_active_ratio": [each.dram for each in gpu],
        }
        found += [series(f"coldplate_gpu_{name}", labels, there(values)) for name, values in shown.items()]
        held = {**labels, **job, "mig": "0", "shared": "false"}
        found.append(series("coldplate_gpu_job_info", held, there([None if each is ENDED else 1.0 for each in gpu])))
    return found


class Clock(NamedTuple):
    """A GPU at work: its clock and what its tensor cores do, both as shares of what is usual, and what limits it."""

    node: int
    gpu: int
    clock: float = 1.0
    tensor: float = 1.0
    is_capped: bool = False
    limit: float = 700.0


def clock_pages(gpus: Sequence[Clock], steps: int) -> list[Series]:
    """Return what the rules about clocks read of GPUs of job 7."""
    found = []
    for each in gpus:
        labels = {"cluster": "east", "rack": "r1", "instance": f"n{each.node}:19400", "gpu": each.gpu,
                  "uuid": f"GPU-{each.node}-{each.gpu}"}  # fmt: skip
        held = {**labels, "scheduler": "slurm", "job_id": "7", "mig": "0", "shared": "false"}
        capped = {**labels, "reason": "sw_power_cap"}
        found += [
            series("coldplate_gpu_clock_mean_hertz", {**labels, "domain": "sm"}, [1.6e9 * each.clock] * steps),
            series("coldplate_gpu_tensor_active_mean_ratio", labels, [0.5 * each.tensor] * steps),
            series("coldplate_gpu_power_limit_watts", labels, [each.limit] * steps),
            series("coldplate_gpu_info", {**labels, "model": MODEL}, [1.0] * steps),
            series("coldplate_gpu_job_info", held, [1.0] * steps),
            series("coldplate_gpu_throttle_seconds_total", capped, growing([30.0 * each.is_capped] * steps)),
        ]
    return found


def ports_pages(nodes: Sequence[Sequence[float]], steps: int) -> list[Series]:
    """Return what the rules about rails read of nodes that job 7 holds whole: the share that each port carries."""
    found = []
    for number, ports in enumerate(nodes):
        node = {"cluster": "east", "rack": "r1", "instance": f"n{number}:19400"}
        job = {"scheduler": "slurm", "job_id": "7"}
        found.append(series("coldplate_node_gpus_up", node, [8.0] * steps))
        found.append(series("coldplate_job_exclusive_gpus", {**node, **job}, [8.0] * steps))
        for place, share in enumerate(ports):
            port = {**node, "device": f"mlx5_{place}", "port": "1"}
            carried = growing([3e11 * share] * steps)
            found += [series(f"coldplate_infiniband_port_data_{way}_bytes_total", port, carried) for way in WAYS]
    return found


def check_alerts(
    folder: Path, pages: list[Series], interval: int, expected: Sequence[tuple[int, str, Sequence[str]]]
) -> None:
    """Assert what queries return over the rules about whole jobs: each a time in seconds, a query and label sets.

    `interval` is that of pages and rules, in seconds.
    """
    queries = [
        {
            "expr": query,
            "eval_time": f"{at}s",
            "exp_samples": [{"labels": f"{{{each}}}", "value": 1} for each in labels],
        }
        for at, query, labels in expected
    ]
    document = {
        "rule_files": [str(RULES / f"{name}.rules.yml") for name in ("jobs-shard", "jobs-global")],
        "group_eval_order": GROUPS,
        "evaluation_interval": f"{interval}s",
        "tests": [{"interval": f"{interval}s", "input_series": pages, "promql_expr_test": queries}],
    }
    (folder / "t.yml").write_text(json.dumps(document))
    assert run_files([folder / "t.yml"]) == 0
