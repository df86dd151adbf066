"""The lowest and the highest rate of a GPU's NVLinks: what one lame link looks like, and when nothing is said."""

from __future__ import annotations

from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Lane, NvLink, Reading, Series
from agent.sampler.schedule import Settings
from tests.sampler.rig import SamplerRig

GPU = Gpu("0", "GPU-0")
LOWEST, HIGHEST = (f"coldplate_gpu_nvlink_traffic_{end}_bytes_per_second" for end in ("lowest", "highest"))


class Rig(SamplerRig):
    """A sampler of one GPU, read every 15 s."""

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
    assert rig.even(0.0, 0.0) == (), "no rate without a read before"
    assert rig.rates(15.0, all_links(300e9) | {7: 30e9}, all_links(150e9) | {7: 15e9}) == (3e9, 30e9)


def test_a_driver_that_counts_from_zero_again_gives_no_rate_that_no_link_had() -> None:
    rig = Rig()
    rig.even(0.0, 500e9)
    rig.even(15.0, 515e9)
    seen = [rig.even(30.0 + 15.0 * step, 15e9 * step) for step in range(4)]
    assert all(0 <= rate <= 2e9 for rates in seen for rate in rates)
    assert seen[-1] == (2e9, 2e9)


def test_a_link_without_a_counter_is_not_the_lowest() -> None:
    rig = Rig()
    rig.even(0.0, 0.0)
    without = {link: 15e9 for link in range(18) if link != 3}
    assert rig.rates(15.0, without, without) == (), "the reads are not of the same links"
    doubled = {link: 2 * count for link, count in without.items()}
    assert rig.rates(30.0, doubled, all_links(30e9) | {3: 0.0}) == (), "nor are these"
    tripled = {link: 3 * count for link, count in without.items()}
    assert rig.rates(45.0, tripled, all_links(45e9) | {3: 0.0}) == (2e9, 2e9), "its half is no traffic of a link"


def test_rates_end_with_the_counters_and_an_hour_of_silence_is_not_averaged() -> None:
    rig = Rig()
    rig.even(0.0, 0.0)
    assert rig.even(15.0, 15e9) == (2e9, 2e9)
    assert rig.shown(100.0) == (), "withdrawn with the lane that they are made of"
    assert rig.even(3600.0, 3600e9) == ()
    assert rig.even(3615.0, 3615e9) == (2e9, 2e9)


def test_two_reads_in_a_row_are_no_rate_and_the_next_one_counts_from_the_first() -> None:
    rig = Rig()
    rig.even(0.0, 0.0)
    assert rig.even(0.2, 0.0) == ()
    assert rig.even(15.0, 15e9) == (2e9, 2e9)


def test_a_gpu_without_nvlinks_has_no_rates() -> None:
    rig = Rig()
    assert rig.rates(0.0, {}, {}) == rig.rates(15.0, {}, {}) == ()
