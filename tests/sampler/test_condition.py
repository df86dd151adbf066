"""Garbage is left out and counted; statistics and integrals stand beside the readings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.catalogue import BY_NAME
from agent.model import Gpu, Lane, Reading, Reason, Series
from agent.sampler.condition import Conditioner

GPU = Gpu("0", "GPU-a")
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
UTILIZATION = Series(BY_NAME["coldplate_gpu_utilization_ratio"], GPU)
ENERGY = Series(BY_NAME["coldplate_gpu_energy_joules_total"], GPU)


def named(readings: list[Reading]) -> dict[str, float]:
    return {reading.metric.name: reading.value for reading in readings}


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1.0, 4_294_967.295, 9.2e18])
def test_a_value_outside_the_physical_range_is_left_out_with_its_reason(garbage: float) -> None:
    conditioner = Conditioner(60)
    shown, gaps = conditioner.pass_on("k", 0.0, [Reading(POWER, garbage)], Lane.FAST, 1.0)
    assert shown == []
    assert [(gap.metric.name, gap.reason) for gap in gaps] == [("coldplate_gpu_power_watts", Reason.IMPLAUSIBLE)]
    assert conditioner.rejected == {"range": 1}


def test_a_counter_that_fell_is_counted_apart() -> None:
    conditioner = Conditioner(60)
    for at, value in enumerate([1000.0, 1100.0, 5.0]):
        shown, gaps = conditioner.pass_on("k", float(at), [Reading(ENERGY, value)], Lane.FAST, 1.0)
    assert (shown, len(gaps), conditioner.rejected) == ([], 1, {"step": 1})


def test_rolling_statistics_stand_beside_the_gauge() -> None:
    conditioner = Conditioner(60)
    for at, value in enumerate([100.0, 700.0, 400.0]):
        shown, _ = conditioner.pass_on("k", float(at), [Reading(POWER, value)], Lane.FAST, 1.0)
    assert named(shown) == {
        "coldplate_gpu_power_watts": 400.0,
        "coldplate_gpu_power_min_watts": 100.0,
        "coldplate_gpu_power_mean_watts": 400.0,
        "coldplate_gpu_power_max_watts": 700.0,
    }


def test_what_is_sampled_seldom_has_no_rolling_statistics() -> None:
    shown, _ = Conditioner(60).pass_on("k", 0.0, [Reading(POWER, 100.0)], Lane.SLOW, 15.0)
    assert named(shown) == {"coldplate_gpu_power_watts": 100.0}


def test_busy_seconds_are_the_integral_of_utilization_and_skip_what_nobody_saw() -> None:
    conditioner = Conditioner(60)
    for at, value in [(0.0, 0.5), (1.0, 0.5), (2.0, 1.0), (100.0, 1.0), (101.0, 0.0)]:
        shown, _ = conditioner.pass_on("k", at, [Reading(UTILIZATION, value)], Lane.FAST, 1.0)
    assert named(shown)["coldplate_gpu_busy_seconds_total"] == pytest.approx(0.5 + 1.0)


def test_history_goes_on_when_a_source_comes_back_with_equal_series() -> None:
    conditioner = Conditioner(60)
    conditioner.pass_on("k", 0.0, [Reading(ENERGY, 500.0)], Lane.FAST, 1.0)
    again = Series(BY_NAME["coldplate_gpu_energy_joules_total"], Gpu("0", "GPU-a"))
    conditioner.pass_on("k", 1.0, [Reading(again, 10.0)], Lane.FAST, 1.0)
    shown, _ = conditioner.pass_on("k", 2.0, [Reading(again, 20.0)], Lane.FAST, 1.0)
    assert shown[0].value == 520.0


def test_a_series_that_comes_and_goes_does_not_disturb_its_neighbours() -> None:
    conditioner = Conditioner(60)
    both = [Reading(POWER, 100.0), Reading(ENERGY, 7.0)]
    conditioner.pass_on("k", 0.0, both, Lane.FAST, 1.0)
    conditioner.pass_on("k", 1.0, both[1:], Lane.FAST, 1.0)
    shown, gaps = conditioner.pass_on("k", 2.0, both, Lane.FAST, 1.0)
    assert gaps == []
    assert named(shown)["coldplate_gpu_energy_joules_total"] == 7.0


@given(st.lists(st.floats(), max_size=30))
def test_whatever_a_driver_says_only_plausible_values_are_shown(values: list[float]) -> None:
    conditioner = Conditioner(60)
    for at, value in enumerate(values):
        shown, gaps = conditioner.pass_on("k", float(at), [Reading(POWER, value)], Lane.FAST, 1.0)
        assert bool(shown) != bool(gaps)
        low, high = POWER.metric.span
        assert all(low <= reading.value <= high for reading in shown)
