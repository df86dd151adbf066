"""Plays a kind of work (work.py) through the real ledger and rules, a thousand times faster than time passes.

Where play.py plays a whole node, only what the rules about jobs read is here: levels of GPUs, their means of a minute,
and counters of the host.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import EMPTY_LAYOUT, Entity, Frame, Gpu, Instant, Labels, Layout, Node, Series, Snapshot
from agent.sampler.ledger import GpuLedger
from agent.sampler.rolling import RollingWindow
from alerts.engine import RuleEngine, Ruleset
from alerts.rulefile import RuleFile
from tests.lab.score.expected import WALL
from tests.lab.score.play import EPOCH, TARGET, begun
from tests.lab.score.work import GPUS, Second, Work

LIMIT_WATTS = 700.0
MEMORY_BYTES = 80.0 * 2**30
MEAN_SECONDS = 60.0
JOB = (("scheduler", "slurm"), ("job_id", "7"))
_GPUS = tuple(Gpu(str(number), f"GPU-{number}") for number in range(GPUS))
_MEANS = ("utilization_mean_ratio", "power_mean_watts", "tensor_active_mean_ratio", "clock_mean_hertz")
_FAST = (
    "up", "utilization_ratio", "power_watts", "power_limit_watts", "tensor_active_ratio", "sm_active_ratio",
    "dram_active_ratio", "memory_used_bytes", "memory_total_bytes", "throttle_active", *_MEANS,
)  # fmt: skip
_LABELS: dict[str, Labels] = {"throttle_active": (("reason", "sw_power_cap"),), "clock_mean_hertz": (("domain", "sm"),)}


def _row(name: str, entity: Entity, labels: Labels = ()) -> Series:
    return Series(BY_NAME[f"coldplate_{name}"], entity, labels)


_OF_GPUS = Layout(tuple(_row(f"gpu_{name}", gpu, _LABELS.get(name, ())) for gpu in _GPUS for name in _FAST))
_OF_HOST = Layout((_row("node_disk_written_bytes_total", Node(), (("device", "nvme0n1"),)),
                   _row("node_disk_read_bytes_total", Node(), (("device", "nvme0n1"),))))  # fmt: skip
_HOLDS = Layout(
    (
        *(_row("gpu_job_info", gpu, (*JOB, ("user", "ada"), ("name", "x"), ("mig", "0"), ("shared", "false")))
          for gpu in _GPUS),
        *(_row("gpu_info", gpu, (("model", "NVIDIA H100 80GB HBM3"),)) for gpu in _GPUS),
        _row("job_exclusive_gpus", Node(), JOB),
    )
)  # fmt: skip
_HELD = Frame(_HOLDS, (*(1.0,) * (2 * GPUS), float(GPUS)))


class WorkFiring(NamedTuple):
    """The beginning of an alert, in seconds of the play."""

    alert: str
    severity: str
    gpu: str
    at: float


def rules_for_jobs(pack: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """Return the file of the pack whose rules read what is played here."""
    return tuple(file for file in pack if Path(file.path).stem == "imbalance")


def play_work(
    work: Work, seconds: float, rules: Sequence[RuleFile], seed: int = 1, tick: float = 1.0
) -> list[WorkFiring]:
    """Play a kind of work, and return every beginning of an alert. An error of a rule is an AssertionError."""
    random = Random(seed)
    engine = RuleEngine(Ruleset(tuple(rules)), TARGET, Instant(EPOCH, WALL))
    found: list[WorkFiring] = []
    for second, snapshot in _snapshots(work, seconds, random, tick):
        done = engine.round(snapshot, snapshot.at)
        failures = [failure for each in done for failure in each.outcome.failures]
        assert not failures, failures
        for alert in begun(done):
            labels = dict(alert.labels)
            found.append(WorkFiring(alert.rule, labels["severity"], labels.get("gpu", ""), second))
    return found


def _snapshots(work: Work, seconds: float, random: Random, tick: float) -> Iterator[tuple[float, Snapshot]]:
    ledger, means, written, read = GpuLedger(), RollingWindow(MEAN_SECONDS, len(_MEANS) * GPUS), 0.0, 0.0
    second, number = 0.0, 0
    while second < seconds:
        now = Instant(EPOCH + second, WALL + second)
        done = work(second, random)
        written, read = written + done.written * tick, read + done.read * tick
        frames = [Frame(_OF_GPUS, _values(done, means, now.mono)), Frame(_OF_HOST, (written, read)), _HELD]
        frames.extend(ledger.frames(now.mono, frames))
        yield second, Snapshot(number, now, tuple(each for each in frames if each.layout is not EMPTY_LAYOUT))
        number, second = number + 1, second + tick


def _values(done: Second, means: RollingWindow, mono: float) -> tuple[float, ...]:
    means.add(mono, [value for each in done.gpus for value in (
        each.busy, each.power * LIMIT_WATTS, each.tensor, each.clock * 1e6)])  # fmt: skip
    found: list[float] = []
    for gpu, level in enumerate(done.gpus):
        minute = means.means[len(_MEANS) * gpu : len(_MEANS) * (gpu + 1)]
        found += (
            1.0, level.busy, level.power * LIMIT_WATTS, LIMIT_WATTS, level.tensor, level.sm, level.dram,
            level.used * MEMORY_BYTES, MEMORY_BYTES, float(level.capped), *minute,
        )  # fmt: skip
    return tuple(found)
