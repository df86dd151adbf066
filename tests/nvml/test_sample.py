"""What a sample of a healthy GPU holds: values in base units, within a budget of driver calls."""

import math

import pytest

from agent.backends.nvml.calls import SPECS
from agent.backends.nvml.probe import metric_requests
from agent.catalogue.bindings import Call
from agent.model import LANES, Lane, Reason
from tests.nvml.conftest import gaps, value, values
from tests.nvml.fake_driver import (
    ALL,
    DENIED,
    DOUBLE,
    I32,
    I64,
    INVALID,
    MISSING,
    NO_DATA,
    U16,
    U32,
    U64,
    ULONG,
    UNKNOWN,
    UNSUPPORTED,
    a100,
    b200,
    h100,
)

UNCOUNTED = {"nvmlGpmMetricsGet", "nvmlGpmSampleAlloc"}


@pytest.mark.parametrize("machine", [h100, a100, b200])
def test_a_fast_sample_costs_at_most_seven_device_calls(opened, machine):
    bench = opened(machine())
    bench.read()
    bench.driver.log.clear()
    sample = bench.read()
    assert sample.calls == len([name for name in bench.driver.log if name not in UNCOUNTED])
    assert sample.calls <= 7
    assert bench.driver.log.count("nvmlDeviceGetFieldValues") == 1


def test_a_fast_sample_stays_within_budget_with_the_older_power_call(opened):
    gpu = h100()
    gpu.fields[185, 0] = gpu.fields[186, 0] = gpu.fields[190, 0] = UNSUPPORTED
    bench = opened(gpu)
    bench.read()
    sample = bench.read()
    assert sample.calls <= 7
    assert value(sample, "coldplate_gpu_power_watts") == 400.0
    slow = bench.read(Lane.SLOW)
    assert values(slow, "coldplate_gpu_clock_hertz")[("sm",)] == 1.74e9
    assert value(slow, "coldplate_gpu_power_limit_watts") == 640.0


def test_a_gpu_that_offers_only_the_enforced_power_limit_has_one(opened):
    """As laptops and some boards (nvitop issue 86)."""
    gpu = h100()
    gpu.fields[190, 0] = UNSUPPORTED
    gpu.calls |= {"nvmlDeviceGetPowerManagementLimit": UNSUPPORTED, "nvmlDeviceGetEnforcedPowerLimit": 350_000}
    assert value(opened(gpu).read(Lane.SLOW), "coldplate_gpu_power_limit_watts") == 350.0


def test_values_are_in_base_units(opened):
    sample = opened(h100()).again()
    expected = {
        "power_watts": 412.345,
        "power_instant_watts": 430.0,
        "power_limit_watts": 650.0,
        "temperature_celsius": 61.0,
        "memory_temperature_celsius": 64.0,
        "utilization_ratio": 0.57,
        "memory_activity_ratio": 0.29,
        "memory_used_bytes": 0.0,
        "memory_reserved_bytes": 551550976.0,
        "nvlink_transmit_bytes_total": 5 * 1024.0,
        "nvlink_receive_bytes_total": 7 * 1024.0,
        "pcie_transmit_bytes_total": 6 * 2.0**20,
        "sm_active_ratio": 0.57,
        "sm_occupancy_ratio": 0.125,
        "fp64_active_ratio": 0.0,
    }
    assert {name: value(sample, f"coldplate_gpu_{name}") for name in expected} == expected
    assert values(sample, "coldplate_gpu_clock_hertz") == {("sm",): 1.74e9}


def test_every_event_reason_has_a_reading_and_the_umbrella_bit_is_none_of_them(opened):
    bench = opened(h100(calls={"nvmlDeviceGetCurrentClocksEventReasons": 0x8}))
    sample = bench.read()
    active = values(sample, "coldplate_gpu_throttle_active")
    assert set(active.values()) == {0.0}
    assert len(active) == 8
    assert value(sample, "coldplate_gpu_hw_slowdown_active") == 1.0
    bench.driver.gpus[0].calls["nvmlDeviceGetCurrentClocksEventReasons"] = 0x40
    sample = bench.read()
    assert values(sample, "coldplate_gpu_throttle_active")[("hw_thermal_slowdown",)] == 1.0
    assert value(sample, "coldplate_gpu_hw_slowdown_active") == 0.0


def test_slow_and_cold_lanes_hold_what_changes_seldom(opened):
    bench = opened(h100())
    slow, cold = bench.read(Lane.SLOW), bench.read(Lane.COLD)
    assert set(values(slow, "coldplate_gpu_clock_hertz")) == {("memory",)}
    assert set(values(cold, "coldplate_gpu_clock_hertz")) == {("graphics",), ("video",)}
    assert value(slow, "coldplate_gpu_temperature_margin_celsius") == -1.0
    assert value(cold, "coldplate_gpu_encoder_utilization_ratio") == 0.07
    assert values(slow, "coldplate_gpu_ecc_aggregate_errors_total")[("corrected",)] == 9.0
    assert values(slow, "coldplate_gpu_row_remaps_total") == {("correctable",): 0.0, ("uncorrectable",): 1.0}
    assert value(slow, "coldplate_gpu_pcie_replays_total") == 3.0
    assert value(slow, "coldplate_gpu_energy_joules_total") == 12345.678
    assert value(slow, "coldplate_gpu_thermal_throttle_seconds_total") == 0.25
    throttled = values(slow, "coldplate_gpu_throttle_seconds_total")
    assert throttled[("sw_power_cap",)] == 1.5
    assert set(throttled) >= {("hw_power_brake",), ("sw_thermal_slowdown",)}
    assert value(cold, "coldplate_gpu_power_limit_default_watts") == 700.0
    assert values(cold, "coldplate_gpu_clock_limit_hertz")[("sm",)] == 1.98e9
    assert values(cold, "coldplate_gpu_nvlink_speed_bytes_per_second")[()] == 18 * 26562e6


def test_one_recovery_action_is_in_force_and_one_of_a_newer_driver_is_a_gap(opened):
    actions = values(opened(h100()).read(Lane.SLOW), "coldplate_gpu_recovery_action")
    assert (actions[("gpu_reset",)], sum(actions.values()), len(actions)) == (1.0, 1.0, 8)
    sample = opened(h100(fields={(230, 0): (U32, 42)})).read(Lane.SLOW)
    assert values(sample, "coldplate_gpu_recovery_action") == {}
    (gap,) = gaps(sample, "coldplate_gpu_recovery_action")
    assert gap.reason is Reason.MALFORMED
    assert "42" in gap.detail


@pytest.mark.parametrize(("state", "up"), [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)])
def test_a_link_is_up_only_when_it_may_carry_traffic(opened, state, up):
    sample = opened(h100(fields={(165, 4): (U32, state)})).read(Lane.SLOW)
    links = values(sample, "coldplate_nvlink_up")
    assert links[("4",)] == up
    assert len(links) == 18


def test_all_links_are_read_in_one_batch_and_their_traffic_is_in_bytes(opened):
    bench = opened(h100(fields={(138, 4): (U64, 7), (139, 4): (U64, 9)}))
    bench.read(Lane.SLOW)
    bench.driver.log.clear()
    sample = bench.read(Lane.SLOW)
    assert bench.driver.log.count("nvmlDeviceGetFieldValues") == 1
    errors = values(sample, "coldplate_nvlink_errors_total")
    assert errors[("7", "replay")] == 7.0
    assert {kind for _, kind in errors} == {"replay", "recovery", "crc"}
    assert values(sample, "coldplate_nvlink_transmit_bytes_total")["4",] == 7 * 1024
    assert values(sample, "coldplate_nvlink_receive_bytes_total")["4",] == 9 * 1024
    assert gaps(sample, "coldplate_nvlink_errors_total") == []


def test_blackwell_answers_with_its_own_link_counters_and_its_own_sums_come_first(opened):
    bench = opened(b200())
    fast, slow = bench.read(), bench.read(Lane.SLOW)
    assert value(fast, "coldplate_gpu_nvlink_transmit_bytes_total") == 1800.0
    assert value(fast, "coldplate_gpu_nvlink_receive_bytes_total") == sum(200.0 + link for link in range(18))
    kinds = {kind for _, kind in values(slow, "coldplate_nvlink_errors_total")}
    assert {"malformed_packet", "recovery_failed"} <= kinds
    assert not {"replay", "crc"} & kinds
    links = values(slow, "coldplate_nvlink_errors_total")
    assert values(slow, "coldplate_gpu_nvlink_errors_total") == {
        (kind,): sum(count for (_, each), count in links.items() if each == kind) for kind in kinds
    }
    assert gaps(slow, "coldplate_gpu_nvlink_errors_total") == []
    bench.driver.gpus[0].fields[202, 5] = UNKNOWN
    sample = bench.read()
    assert values(sample, "coldplate_gpu_nvlink_transmit_bytes_total") == {}, "a sum lacks a link"
    assert gaps(sample, "coldplate_gpu_nvlink_transmit_bytes_total")[0].reason is Reason.MALFORMED
    summed = opened(b200(fields={(202, ALL): (U64, 12345)})).read()
    assert value(summed, "coldplate_gpu_nvlink_transmit_bytes_total") == 12345.0


def test_ampere_has_gaps_where_hopper_has_values_which_are_asked_for_once(opened):
    bench = opened(a100())
    bench.read()
    bench.driver.log.clear()
    first, sample = bench.read(), bench.read()
    assert "nvmlGpmQueryDeviceSupport" not in bench.driver.log
    assert sample.gaps is first.gaps
    assert all(one.series is two.series for one, two in zip(first.readings, sample.readings, strict=True))
    assert value(sample, "coldplate_gpu_power_watts") == 412.345
    assert gaps(sample, "coldplate_gpu_sm_active_ratio")[0].reason is Reason.UNSUPPORTED
    (gap,) = gaps(bench.read(Lane.SLOW), "coldplate_gpu_throttle_seconds_total")
    assert gap.reason is Reason.UNSUPPORTED
    assert "269" in gap.detail and "271" in gap.detail and "not supported" in gap.detail


def test_denied_is_distinguished_from_unsupported(opened):
    sample = opened(h100(calls={"nvmlGpmSampleGet": DENIED, "nvmlDeviceGetMemoryInfo_v2": DENIED})).read()
    assert gaps(sample, "coldplate_gpu_tensor_active_ratio")[0].reason is Reason.DENIED
    (gap,) = gaps(sample, "coldplate_gpu_memory_used_bytes")
    assert gap.reason is Reason.DENIED
    assert "nvmlDeviceGetMemoryInfo_v2" in gap.detail and "no permission" in gap.detail


def test_an_older_driver_is_asked_by_the_older_names(opened):
    gpu = h100()
    for name in ("TemperatureV", "MemoryInfo_v2", "CurrentClocksEventReasons", "MarginTemperature"):
        gpu.calls[f"nvmlDeviceGet{name}"] = MISSING
    bench = opened(gpu)
    sample, slow = bench.read(), bench.read(Lane.SLOW)
    assert value(sample, "coldplate_gpu_temperature_celsius") == 61.0
    assert values(sample, "coldplate_gpu_throttle_active")[("sw_power_cap",)] == 1.0
    assert value(sample, "coldplate_gpu_memory_used_bytes") == 551550976.0
    (reserved,) = gaps(sample, "coldplate_gpu_memory_reserved_bytes")
    assert reserved.reason is Reason.UNSUPPORTED
    assert "counts it as used" in reserved.detail
    (margin,) = gaps(slow, "coldplate_gpu_temperature_margin_celsius")
    assert "driver is too old" in margin.detail


def test_a_driver_that_refuses_the_whole_batch_is_asked_field_by_field(opened):
    gpu = h100()
    gpu.calls["nvmlDeviceGetFieldValues"] = lambda array: INVALID if 271 in dict(array.pairs) else None
    throttled = values(opened(gpu).read(Lane.SLOW), "coldplate_gpu_throttle_seconds_total")
    assert ("hw_power_brake",) not in throttled
    assert throttled[("sw_power_cap",)] == 1.5


@pytest.mark.parametrize(
    "answer",
    [
        (U64, 2**64 - 1),
        (ULONG, 2**64 - 1),
        (U32, 2**32 - 1),
        (U16, 0xFFFF),
        (DOUBLE, math.nan),
        (9, 0),
        UNKNOWN,
        NO_DATA,
    ],
)
def test_a_field_without_a_value_is_a_gap_in_this_sample_only(opened, answer):
    gpu = h100()
    bench = opened(gpu)
    good, gpu.fields[82, 0] = gpu.fields[82, 0], answer
    sample = bench.read()
    assert values(sample, "coldplate_gpu_memory_temperature_celsius") == {}
    (gap,) = gaps(sample, "coldplate_gpu_memory_temperature_celsius")
    assert gap.reason in (Reason.IMPLAUSIBLE, Reason.MALFORMED)
    assert "NVML field 82" in gap.detail
    assert value(sample, "coldplate_gpu_power_watts") == 412.345
    gpu.fields[82, 0] = good
    assert value(bench.read(), "coldplate_gpu_memory_temperature_celsius") == 64.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((DOUBLE, 1.5), 1.5),
        ((U32, 7), 7.0),
        ((ULONG, 8), 8.0),
        ((I64, -9), -9.0),
        ((I32, -10), -10.0),
        ((U16, 11), 11.0),
    ],
)
def test_a_field_is_read_as_the_type_that_it_says_it_has(opened, answer, expected):
    assert value(opened(h100(fields={(82, 0): answer})).read(), "coldplate_gpu_memory_temperature_celsius") == expected


@pytest.mark.parametrize("answer", [-1, 2**32 - 1])
def test_sentinels_of_calls_are_gaps(opened, answer):
    gpu = h100()
    gpu.calls["nvmlDeviceGetTemperatureV"] = answer
    gpu.calls["nvmlDeviceGetUtilizationRates"] = {"gpu": 2**32 - 1, "memory": 3}
    sample = opened(gpu).read()
    assert gaps(sample, "coldplate_gpu_temperature_celsius")[0].reason is Reason.IMPLAUSIBLE
    assert gaps(sample, "coldplate_gpu_utilization_ratio")[0].reason is Reason.IMPLAUSIBLE
    assert value(sample, "coldplate_gpu_memory_activity_ratio") == 0.03


def test_a_call_that_fails_once_affects_only_its_own_readings_in_that_sample(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read()
    gpu.calls["nvmlDeviceGetUtilizationRates"] = UNKNOWN
    sample = bench.read()
    (gap,) = gaps(sample, "coldplate_gpu_utilization_ratio")
    assert gap.reason is Reason.MALFORMED
    assert "nvmlDeviceGetUtilizationRates: unknown error (999)" in gap.detail
    assert value(sample, "coldplate_gpu_temperature_celsius") == 61.0
    assert bench.read(Lane.EVENT).calls == 0


def test_every_call_of_the_catalogue_is_known_to_the_backend():
    special = {"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlGpmMigSampleGet", "nvmlDeviceGetGpuFabricInfoV"}
    names = {each.name for want in metric_requests() for each in want.bindings if isinstance(each, Call)}
    assert names - special == set(SPECS)


def test_a_gpu_that_nothing_shares_costs_at_most_so_many_driver_calls_a_second(opened):
    """Each takes the driver's locks. What stays the same until the driver is opened again is asked once."""
    bench = opened(h100())
    for lane in LANES:
        bench.read(lane)
    bench.driver.log.clear()
    made = [bench.read(lane).calls for lane in (*[Lane.FAST] * 60, *[Lane.SLOW] * 4, Lane.COLD)]
    assert sum(made) / 60 <= 7.6
    assert not {"nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMaxPcieLinkWidth"} & set(bench.driver.log)
    assert [name for name in bench.driver.log if "Mig" in name] == ["nvmlDeviceGetMigMode"], "it is not divided"


@pytest.mark.parametrize(
    ("call", "first", "lane", "row"),
    [
        ("nvmlDeviceGetTemperatureV", UNKNOWN, Lane.FAST, "coldplate_gpu_temperature_celsius"),
        ("nvmlDeviceGetMaxPcieLinkWidth", 2**32 - 1, Lane.COLD, "coldplate_gpu_pcie_link_width_max"),
    ],
)
def test_a_call_that_fails_at_first_and_a_constant_without_a_value_are_asked_again(opened, call, first, lane, row):
    gpu = h100()
    good, gpu.calls[call] = gpu.calls[call], first
    bench = opened(gpu)
    assert gaps(bench.read(lane), row) != []
    gpu.calls[call] = good
    assert value(bench.read(lane), row) == good
