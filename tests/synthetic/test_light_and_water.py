"""Optical modules and water of synthetic nodes: the rows of the real backends, and faults as physics has them."""

from math import log10

import pytest

from agent.catalogue import BY_NAME, optics
from agent.catalogue.equipment import ROWS as WATER
from agent.model import Lane
from tests.synthetic.conftest import scenario

SUPPLY = "coolant_supply_temperature_celsius/Chassis_0/Tray"
PORT = "ethernet_fec_{}_total/" + "enp41s0f0np0"
LATER = {
    "coldplate_ethernet_fec_bin_blocks_total",
    "coldplate_ethernet_fec_lane_corrected_blocks_total",
    "coldplate_ethernet_fec_lane_uncorrectable_blocks_total",
    "coldplate_ethernet_fec_lane_corrected_bit_errors_total",
    "coldplate_transceiver_pre_fec_error_highest_ratio",
    "coldplate_transceiver_lane_pre_fec_error_ratio",
    "coldplate_transceiver_snr_lowest_ratio",
    "coldplate_transceiver_lane_snr_ratio",
    "coldplate_chassis_fan_state",
    "coldplate_chassis_fan_speed_ratio",
    "coldplate_chassis_fan_rotation_hertz",
    "coldplate_chassis_intake_temperature_celsius",
}
"""What not every driver, module or controller tells, and synthetic ones do not."""


def light_loss(**more: object) -> str:
    keys = {"kind": "light-loss", "optic": "enp41s0f0np0", "at": "100s", "loss": "6dB", **more}
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def of_kind(node, kind: str, t: float, lane: Lane) -> dict[str, float]:
    return {name: value for name, value in node.node(t, lane).items() if name.startswith(kind)}


@pytest.mark.parametrize(("topology", "rows"), [("dgx-h100-optics", optics.ROWS), ("nvl72-tray", WATER)])
def test_the_rows_are_those_of_the_real_backends_with_their_labels_in_their_lanes(play, write, topology, rows):
    node = play(write(scenario(topology)))
    seen = {}
    for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
        for reading in node.fabric.read(lane, node.instant(90.0)).readings:
            seen[reading.metric.name] = (lane, tuple(name for name, _ in reading.series.labels))
    wanted = {row.name for row in rows} - LATER
    assert wanted <= set(seen)
    for name in wanted:
        row = BY_NAME[name]
        assert seen[name] == (row.lane, row.labels)


def test_errors_rise_by_orders_of_magnitude_over_the_last_decibels(play, write):
    node = play(write(scenario("dgx-h100-optics", light_loss(ramp="60m"))))

    def ratio(t: float) -> float:
        before, after = (node.node(each, Lane.SLOW) for each in (t - 60.0, t))
        bits = after[PORT.format("corrected_bit_errors")] - before[PORT.format("corrected_bit_errors")]
        return bits / (60.0 * 8 * after["ethernet_rate_bytes_per_second/enp41s0f0np0"])

    start, half, late, end = (log10(ratio(100.0 + each)) for each in (0.0, 1800.0, 3000.0, 3600.0))
    assert -11.1 < start < -8.9
    assert half < -8.8
    assert -6.0 < late < -5.0
    assert -4.0 < end < -3.5


def test_uncorrectable_blocks_are_lost_and_counters_do_not_depend_on_the_interval(play, write):
    path = write(scenario("dgx-h100-optics", light_loss(loss="7dB", lane=3)))
    name, steps = PORT.format("uncorrectable_blocks"), range(90, 400)
    often, once = play(path), play(path)
    counts = [often.node(float(t), Lane.SLOW)[name] for t in steps]
    assert counts == sorted(counts)
    assert counts[0] == counts[10] == 0.0
    assert 30 < (counts[-1] - counts[20]) / (len(counts) - 21) < 60
    assert once.node(399.0, Lane.SLOW)[name] == counts[-1]


def test_a_fault_that_comes_again_adds_its_errors_again(play, write):
    node = play(write(scenario("dgx-h100-optics", light_loss(duration="50s", repeat="100s", ramp="20s"))))
    name = PORT.format("corrected_blocks")
    first, second = (node.node(t, Lane.SLOW)[name] for t in (199.0, 299.0))
    assert second == pytest.approx(2 * first, rel=0.01)
    assert first > 1e9
    assert node.node(160.0, Lane.SLOW)[name] == pytest.approx(first, rel=1e-4)


def test_one_lane_in_the_dark_is_the_lowest_and_the_others_are_as_before(play, write):
    node = play(write(scenario("dgx-h100-optics", light_loss(lane=3))))
    light = "transceiver_lane_receive_power_watts/enp41s0f0np0/"
    before, after = (of_kind(node, light, t, Lane.COLD) for t in (90.0, 101.0))
    assert after[light + "3"] / before[light + "3"] == pytest.approx(10**-0.6, rel=0.01)
    assert {name: value for name, value in after.items() if name != light + "3"} == {
        name: value for name, value in before.items() if name != light + "3"
    }
    lowest = node.node(101.0, Lane.COLD)["transceiver_receive_power_lowest_watts/enp41s0f0np0"]
    assert lowest == after[light + "3"]
    assert of_kind(node, "transceiver_lane_receive_power_watts/enp170s0f0np0/", 101.0, Lane.COLD)


def test_a_module_that_is_out_says_nothing_and_another_serial_comes_after_it(play):
    node = play("module-swap")

    def serials(t: float) -> list[str]:
        return sorted(of_kind(node, "transceiver_info/enp41s0f0np0", t, Lane.COLD))

    down = "ethernet_link_down_events_total/enp41s0f0np0"
    rate = "ethernet_rate_bytes_per_second/enp41s0f0np0"
    assert (len(serials(120.0)), serials(140.0), len(serials(180.0))) == (1, [], 1)
    assert serials(120.0) != serials(180.0)
    assert of_kind(node, "transceiver_temperature_celsius/enp41s0f0np0", 140.0, Lane.COLD) == {}
    assert [node.node(t, Lane.SLOW)[down] for t in (120.0, 140.0, 200.0)] == [0.0, 1.0, 1.0]
    assert [rate in node.node(t, Lane.SLOW) for t in (120.0, 140.0, 200.0)] == [True, False, True]


def test_the_worst_that_holds_is_what_a_detector_says_and_it_is_in_one_state(play):
    node = play("leak")

    def said(t: float) -> list[str]:
        states = of_kind(node, "leak_detector_state/Chassis_0/Chassis_0_LeakDetector_0_Manifold/", t, Lane.SLOW)
        assert len(states) == 4
        return [name.rsplit("/", 1)[1] for name, value in states.items() if value]

    assert [said(t) for t in (59.0, 61.0, 181.0)] == [["ok"], ["warning"], ["critical"]]


def test_water_takes_up_the_heat_of_the_tray_and_warm_water_warms_its_gpus(play):
    node = play("coolant-warm")
    before, after = (of_kind(node, "coolant_", t, Lane.SLOW) for t in (50.0, 800.0))
    supply, back = (f"coolant_{each}_temperature_celsius/Chassis_0/Tray" for each in ("supply", "return"))
    assert before[supply] == 25.0
    assert after[supply] == pytest.approx(42.0, abs=0.1)
    assert 5.0 < before[back] - before[supply] < 12.0
    assert 4_000 < before["coolant_heat_removed_watts/Chassis_0/Tray"] < 6_000
    warmed = [
        node.mean(gpu, "temperature_celsius", 780, 800) - node.mean(gpu, "temperature_celsius", 30, 50)
        for gpu in range(4)
    ]
    assert warmed == pytest.approx([17.0] * 4, abs=2.0)


def test_water_cools_down_again_after_the_fault(play, write):
    node = play(write(scenario("nvl72-tray", "{kind: coolant-warm, degrees: 10, at: 10s, duration: 300s}")))
    warm, cooler, cold = (node.node(t, Lane.SLOW)[SUPPLY] for t in (309.0, 370.0, 900.0))
    assert warm > cooler > cold
    assert cold == pytest.approx(25.0, abs=0.05)


def test_coolant_that_flows_slowly_returns_warmer_and_takes_the_same_heat(play, write):
    node = play(write(scenario("nvl72-tray", "{kind: coolant-slow, at: 100s, duration: 100s, flow: 50%}")))
    before, slow, after = (of_kind(node, "coolant", t, Lane.SLOW) for t in (90.0, 150.0, 250.0))

    def rise(values):
        return values["coolant_return_temperature_celsius/Chassis_0/Tray"] - values[SUPPLY]

    assert slow["coolant_flow_liters_per_second/Chassis_0/Tray"] == pytest.approx(
        0.5 * before["coolant_flow_liters_per_second/Chassis_0/Tray"]
    )
    assert rise(slow) == pytest.approx(2 * rise(before), rel=0.05)
    assert rise(after) == pytest.approx(rise(before), rel=0.05)
    assert slow[SUPPLY] == before[SUPPLY]


def test_a_module_reads_what_a_scenario_sets_and_the_other_one_what_it_did(play, write):
    fault = (
        "{kind: reading, optic: enp41s0f0np0, at: 100s, metric: coldplate_transceiver_temperature_celsius, value: 72}"
    )
    node = play(write(scenario("dgx-h100-optics", fault)))
    name = "transceiver_temperature_celsius/"
    before, after = (of_kind(node, name, t, Lane.COLD) for t in (90.0, 150.0))
    assert after[f"{name}enp41s0f0np0"] == 72.0
    assert before[f"{name}enp41s0f0np0"] < 60.0
    assert after[f"{name}enp170s0f0np0"] < 60.0
