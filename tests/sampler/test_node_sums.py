"""The sums over a node's GPUs, and over those of each job: what is added up, and what is left out."""

from __future__ import annotations

from agent.catalogue import BY_NAME
from agent.model import Gpu, Reading, Series
from agent.sampler.node_sums import NodeSums
from tests.frames import frame_of

GPUS = [Gpu(str(number), f"GPU-{number}") for number in range(3)]
NODE, JOB = "coldplate_node_", "coldplate_job_"


def reading(name: str, gpu: Gpu, value: float, **labels: str) -> Reading:
    return Reading(Series(BY_NAME[f"coldplate_gpu_{name}"], gpu, tuple(labels.items())), value)


def throttled(gpu: Gpu, **seconds: float) -> list[Reading]:
    return [reading("throttle_seconds_total", gpu, value, reason=reason) for reason, value in seconds.items()]


def holds(job: str, gpu: Gpu, mig: str = "0") -> Reading:
    return reading("job_info", gpu, 1, scheduler="slurm" if job else "", job_id=job, user="ada", mig=mig)


def summed(sums: NodeSums, *reads: list[Reading]) -> dict[str, float]:
    """The sums of these frames, by name and labels."""
    frame = sums.frame([frame_of(each) for each in reads])
    return {".".join([each.metric.name, *(value for _, value in each.labels)]): each.value for each in frame.readings}


def test_the_node_is_the_sum_the_mean_or_the_worst_of_its_gpus() -> None:
    presence = [reading("up", gpu, up) for gpu, up in zip(GPUS, (1, 1, 0), strict=True)]
    first = [
        reading("power_mean_watts", GPUS[0], 600), reading("utilization_mean_ratio", GPUS[0], 0.9),
        reading("temperature_margin_celsius", GPUS[0], 20),
    ]  # fmt: skip
    second = [
        reading("power_mean_watts", GPUS[1], 100), reading("utilization_mean_ratio", GPUS[1], 0.1),
        reading("temperature_margin_celsius", GPUS[1], -3),
    ]  # fmt: skip
    assert summed(NodeSums(), first, presence, second) == {
        f"{NODE}gpus_up": 2, f"{NODE}gpu_power_mean_watts": 700, f"{NODE}gpu_utilization_mean_ratio": 0.5,
        f"{NODE}gpu_temperature_margin_celsius": -3,
    }  # fmt: skip


def test_what_no_gpu_tells_is_absent_and_not_0() -> None:
    assert summed(NodeSums(), [reading("up", GPUS[0], 0)]) == {f"{NODE}gpus_up": 0}
    assert summed(NodeSums()) == {}


def test_a_job_has_the_gpus_that_it_holds_whole_and_alone() -> None:
    holders = [holds("7", GPUS[0]), holds("7", GPUS[1]), holds("", GPUS[2], mig=""), holds("8", GPUS[2], mig="3")]
    values = [
        each
        for gpu, ratio in zip(GPUS, (0.2, 0.8, 1.0), strict=True)
        for each in (reading("utilization_mean_ratio", gpu, ratio), reading("power_mean_watts", gpu, 500))
    ]
    found = summed(NodeSums(), values, holders)
    assert {name: value for name, value in found.items() if name.startswith(JOB)} == {
        f"{JOB}whole_gpus.slurm.7": 2,
        f"{JOB}gpu_utilization_mean_ratio.slurm.7": 0.5,
        f"{JOB}gpu_utilization_lowest_ratio.slurm.7": 0.2,
        f"{JOB}gpu_utilization_highest_ratio.slurm.7": 0.8,
        f"{JOB}gpu_power_mean_watts.slurm.7": 1000,
    }


def test_a_job_whose_gpus_are_silent_has_them_all_the_same() -> None:
    assert summed(NodeSums(), [holds("7", GPUS[0])]) == {f"{JOB}whole_gpus.slurm.7": 1}


def counted(sums: NodeSums, *reads: list[Reading]) -> tuple[float, dict[str, float]]:
    """Seconds throttled in all, and by reason."""
    found = summed(sums, *reads)
    by_reason = {
        name.rpartition(".")[2]: value for name, value in found.items() if f"{NODE}gpu_throttle_seconds" in name
    }
    return found.get(f"{NODE}gpu_throttled_seconds_total", -1), by_reason


def test_throttling_is_counted_from_when_it_is_first_seen_and_reasons_that_overlap_count_once() -> None:
    sums = NodeSums()
    before = throttled(GPUS[0], sw_thermal_slowdown=100, hw_power_brake=50, gpu_idle=7, sw_power_cap=9)
    assert counted(sums, before, throttled(GPUS[1], hw_power_brake=3)) == (
        0, {"sw_thermal_slowdown": 0, "hw_power_brake": 0},
    )  # fmt: skip
    after = throttled(GPUS[0], sw_thermal_slowdown=101, hw_power_brake=50.5, gpu_idle=99, sw_power_cap=99)
    assert counted(sums, after, throttled(GPUS[1], hw_power_brake=3.25)) == (
        1.25, {"sw_thermal_slowdown": 1, "hw_power_brake": 0.75},
    )  # fmt: skip


def test_a_total_never_falls_when_a_gpu_is_silent_its_driver_starts_over_or_another_one_comes() -> None:
    sums = NodeSums()
    counted(sums, throttled(GPUS[0], hw_power_brake=10), throttled(GPUS[1], hw_power_brake=10))
    counted(sums, throttled(GPUS[0], hw_power_brake=12), throttled(GPUS[1], hw_power_brake=10))
    assert counted(sums, throttled(GPUS[1], hw_power_brake=11))[0] == 3, "GPU 0 is silent"
    assert counted(sums, throttled(GPUS[0], hw_power_brake=0), throttled(GPUS[1], hw_power_brake=11))[0] == 3
    assert counted(sums, throttled(GPUS[0], hw_power_brake=1), throttled(GPUS[1], hw_power_brake=11))[0] == 4
    assert counted(sums, throttled(GPUS[2], hw_power_brake=500))[0] == 4, "a GPU that was not known"
    assert counted(sums) == (4, {"hw_power_brake": 4})
