"""The sums over a node's GPUs, and over those of each job: what is added up, and what is left out."""

from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Lane, NvLink, Reading, Series
from agent.sampler.node_sums import NodeSums
from agent.sampler.schedule import Settings
from tests.frames import frame_of
from tests.sampler.rig import SamplerRig

GPUS = [Gpu(str(number), f"GPU-{number}") for number in range(3)]
NODE, JOB = "coldplate_node_", "coldplate_job_"


def reading(name: str, gpu: Gpu, value: float, **labels: str) -> Reading:
    return Reading(Series(BY_NAME[f"coldplate_gpu_{name}"], gpu, tuple(labels.items())), value)


def throttled(gpu: Gpu, **seconds: float) -> list[Reading]:
    return [reading("throttle_seconds_total", gpu, value, reason=reason) for reason, value in seconds.items()]


def holds(job: str, gpu: Gpu, mig: str = "0") -> Reading:
    return reading("job_info", gpu, 1, scheduler="slurm" if job else "", job_id=job, user="ada", mig=mig)


def summed(sums: NodeSums, *reads: list[Reading]) -> dict[str, float]:
    frame = sums.frame([frame_of(each) for each in reads])
    return {".".join([each.metric.name, *(value for _, value in each.labels)]): each.value for each in frame.readings}


def test_the_node_is_the_sum_the_mean_or_the_worst_of_its_gpus() -> None:
    presence = [reading("up", gpu, up) for gpu, up in zip(GPUS, (1, 1, 0), strict=True)]
    first = [
        reading("power_mean_watts", GPUS[0], 600),
        reading("utilization_mean_ratio", GPUS[0], 0.9),
        reading("temperature_margin_celsius", GPUS[0], 20),
    ]
    second = [
        reading("power_mean_watts", GPUS[1], 100),
        reading("utilization_mean_ratio", GPUS[1], 0.1),
        reading("temperature_margin_celsius", GPUS[1], -3),
    ]
    assert summed(NodeSums(), first, presence, second) == {
        f"{NODE}gpus_up": 2,
        f"{NODE}gpu_power_mean_watts": 700,
        f"{NODE}gpu_utilization_mean_ratio": 0.5,
        f"{NODE}gpu_temperature_margin_celsius": -3,
    }


def test_what_no_gpu_reports_is_absent_and_not_0() -> None:
    assert summed(NodeSums(), [reading("up", GPUS[0], 0)]) == {f"{NODE}gpus_up": 0}
    assert summed(NodeSums()) == {}
    assert summed(NodeSums(), [holds("7", GPUS[0])]) == {f"{JOB}exclusive_gpus.slurm.7": 1}


def test_a_job_has_the_gpus_that_it_holds_whole_and_alone() -> None:
    holders = [holds("7", GPUS[0]), holds("7", GPUS[1]), holds("", GPUS[2], mig=""), holds("8", GPUS[2], mig="3")]
    values = [
        each
        for gpu, ratio in zip(GPUS, (0.2, 0.8, 1.0), strict=True)
        for each in (reading("utilization_mean_ratio", gpu, ratio), reading("power_mean_watts", gpu, 500))
    ]
    found = summed(NodeSums(), values, holders)
    assert {name: value for name, value in found.items() if name.startswith(JOB)} == {
        f"{JOB}exclusive_gpus.slurm.7": 2,
        f"{JOB}gpu_utilization_mean_ratio.slurm.7": 0.5,
        f"{JOB}gpu_utilization_lowest_ratio.slurm.7": 0.2,
        f"{JOB}gpu_utilization_highest_ratio.slurm.7": 0.8,
        f"{JOB}gpu_power_mean_watts.slurm.7": 1000,
    }


def counted(sums: NodeSums, *reads: list[Reading]) -> tuple[float, dict[str, float]]:
    """Seconds throttled in all, and by reason."""
    found = summed(sums, *reads)
    by_reason = {
        name.rpartition(".")[2]: value for name, value in found.items() if f"{NODE}gpu_throttle_seconds" in name
    }
    return found.get(f"{NODE}gpu_throttle_any_reason_seconds_total", -1), by_reason


def test_throttling_is_counted_from_its_start_and_overlaps_count_once() -> None:
    sums = NodeSums()
    before = throttled(GPUS[0], sw_thermal_slowdown=100, hw_power_brake=50, gpu_idle=7, sw_power_cap=9)
    assert counted(sums, before, throttled(GPUS[1], hw_power_brake=3)) == (
        0,
        {"sw_thermal_slowdown": 0, "hw_power_brake": 0},
    )
    after = throttled(GPUS[0], sw_thermal_slowdown=101, hw_power_brake=50.5, gpu_idle=99, sw_power_cap=99)
    assert counted(sums, after, throttled(GPUS[1], hw_power_brake=3.25)) == (
        1.25,
        {"sw_thermal_slowdown": 1, "hw_power_brake": 0.75},
    )


def test_a_total_never_falls_when_a_gpu_or_driver_comes_or_goes() -> None:
    sums = NodeSums()
    counted(sums, throttled(GPUS[0], hw_power_brake=10), throttled(GPUS[1], hw_power_brake=10))
    counted(sums, throttled(GPUS[0], hw_power_brake=12), throttled(GPUS[1], hw_power_brake=10))
    assert counted(sums, throttled(GPUS[1], hw_power_brake=11))[0] == 3, "GPU 0 is silent"
    assert counted(sums, throttled(GPUS[0], hw_power_brake=0), throttled(GPUS[1], hw_power_brake=11))[0] == 3
    assert counted(sums, throttled(GPUS[0], hw_power_brake=1), throttled(GPUS[1], hw_power_brake=11))[0] == 4
    assert counted(sums, throttled(GPUS[2], hw_power_brake=500))[0] == 4, "a GPU that was not known"
    assert counted(sums) == (4, {"hw_power_brake": 4})


# The lowest and the highest rate of a GPU's NVLinks: what one lame link looks like, and when nothing is said.
GPU = Gpu("0", "GPU-0")
LOWEST, HIGHEST = (f"coldplate_gpu_nvlink_traffic_{end}_bytes_per_second" for end in ("lowest", "highest"))


class Rig(SamplerRig):
    def __init__(self) -> None:
        super().__init__(Settings(slow=15.0))
        self.enlist([GpuIdentity(GPU, "0000:01:00.0", "S", "H100")])
        self._series = {
            (way, link): Series(BY_NAME[f"coldplate_nvlink_{way}_bytes_total"], NvLink(GPU, link))
            for way in ("transmit", "receive")
            for link in range(18)
        }
        self._power = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)

    def rates(self, at: float, sent: dict[int, float], received: dict[int, float]) -> tuple[float, ...]:
        """Return the lowest and the highest rate after the links have counted this much; nothing if none is shown."""
        counts = {"transmit": sent, "receive": received}
        links = [Reading(self._series[way, link], each[link]) for way, each in counts.items() for link in each]
        for lane, readings in ((Lane.FAST, [Reading(self._power, 500.0)]), (Lane.SLOW, links)):
            self.take(GPU.uuid, lane, at, readings)
        return self.shown(at)

    def even(self, at: float, each: float) -> tuple[float, ...]:
        """Return the same where all links have sent and received as much."""
        return self.rates(at, all_links(each), all_links(each))

    def shown(self, at: float) -> tuple[float, ...]:
        found = {each.metric.name: each.value for each in self.see(at).readings}
        return tuple(found[name] for name in (LOWEST, HIGHEST) if name in found)


def all_links(count: float) -> dict[int, float]:
    return dict.fromkeys(range(18), count)


def test_one_lame_link_of_eighteen_shows_in_the_lowest_rate() -> None:
    rig = Rig()
    assert rig.rates(0.0, {}, {}) == (), "no link"
    assert rig.even(10.0, 0.0) == (), "no rate without a read before"
    assert rig.even(10.2, 0.0) == (), "two reads in a row are no rate, and the next one counts from the first"
    assert rig.rates(25.0, all_links(300e9) | {7: 30e9}, all_links(150e9) | {7: 15e9}) == (3e9, 30e9)


def test_a_link_without_a_counter_is_not_the_lowest() -> None:
    rig = Rig()
    rig.even(0.0, 0.0)
    without = {link: 15e9 for link in range(18) if link != 3}
    assert rig.rates(15.0, without, without) == (), "the reads are not of the same links"
    doubled = {link: 2 * count for link, count in without.items()}
    assert rig.rates(30.0, doubled, all_links(30e9) | {3: 0.0}) == (), "nor are these"
    tripled = {link: 3 * count for link, count in without.items()}
    assert rig.rates(45.0, tripled, all_links(45e9) | {3: 0.0}) == (2e9, 2e9), "its half is no traffic of a link"


def test_rates_end_with_the_counters_and_a_new_driver_makes_none() -> None:
    rig = Rig()
    rig.even(0.0, 0.0)
    assert rig.even(15.0, 15e9) == (2e9, 2e9)
    assert rig.shown(100.0) == (), "withdrawn with the lane that they are made of"
    assert rig.even(3600.0, 3600e9) == ()
    assert rig.even(3615.0, 3615e9) == (2e9, 2e9)
    seen = [rig.even(3630.0 + 15.0 * step, 15e9 * step) for step in range(4)]
    assert all(0 <= rate <= 2e9 for rates in seen for rate in rates), "what no link had"
    assert seen[-1] == (2e9, 2e9)
