"""What ties the readings together: energy, heat, throttling, the driver's artefacts, the healthy spreads."""

import pytest

from agent.backends.synthetic import shipped_names
from agent.model import Lane
from tests.synthetic.conftest import TRAINING, scenario

GPUS = range(8)


@pytest.mark.parametrize(("name", "gpu"), [("idle", 0), ("checkpoint-stall", 3), ("thermal-throttle", 5)])
def test_power_is_the_slope_of_the_energy_noise_included(play, name, gpu):
    node = play(name)
    for t in (150.0, 150.3, 151.7, 155.0):
        before, after = (node.joules(gpu, t + h) for h in (-0.005, 0.005))
        assert (after - before) / 0.01 == pytest.approx(node.value(gpu, t, "power_instant_watts"), abs=0.02)


def test_power_is_a_mean_of_one_second_and_instantaneous_on_an_a100(play, write) -> None:
    node = play("healthy-training")
    for t in (101.0, 333.3, 1000.7):
        energy = node.joules(2, t) - node.joules(2, t - 1.0)
        assert node.value(2, t, "power_watts") == pytest.approx(energy, abs=0.01)
    node = play(write(scenario("dgx-a100", job=TRAINING)))
    for t in (50.0, 51.9, 77.3):
        assert node.value(0, t, "power_watts") == node.value(0, t, "power_instant_watts")


def test_an_idle_gpu_draws_about_75_watts_and_its_node_what_all_of_it_draws(play) -> None:
    idle, busy = play("idle"), play("healthy-training")
    values = idle.values(0, 100.0)
    assert 65 < values["power_watts"] < 85
    assert values["utilization_ratio"] == 0.0
    assert values["throttle_active/gpu_idle"] == 1.0
    assert values["memory_used_bytes"] == 0.0
    assert 2000 < idle.node(100.0)["node_power_watts/synthetic"] < 2600
    assert 7000 < busy.node(100.0)["node_power_watts/synthetic"] < 8200


def test_steady_training_stays_at_the_power_cap_and_gpus_and_rails_differ_little(play) -> None:
    node = play("healthy-training")
    shares = [node.value(3, 200 + k * 0.37, "throttle_active/sw_power_cap") for k in range(400)]
    assert sum(shares) / len(shares) > 0.9
    for gpu in GPUS:
        assert 620 < node.mean(gpu, "power_watts", 200, 260) < 700
    busy = [node.mean(gpu, "utilization_ratio", 200, 500, 2.0) for gpu in GPUS]
    power = [node.mean(gpu, "power_watts", 200, 500, 5.0) for gpu in GPUS]
    assert max(busy) - min(busy) <= 0.15
    assert min(power) / sorted(power)[4] >= 0.91
    heat = [node.value(gpu, 600.0, "temperature_celsius") for gpu in GPUS]
    assert 10 <= max(heat) - min(heat) <= 16
    assert max(heat) < 80
    before, after = node.node(200.0), node.node(300.0)
    grown = [
        after[f"infiniband_port_data_transmitted_bytes_total/mlx5_{p}/1"]
        - before[f"infiniband_port_data_transmitted_bytes_total/mlx5_{p}/1"]
        for p in GPUS
    ]
    assert min(grown) / max(grown) > 0.96
    assert min(grown) > 1e11


LOADS_FIRST = scenario("dgx-h100", job="gpus: all, phases: [{kind: loading, duration: 20s}, {kind: training}]")


def test_temperature_follows_the_load_and_memory_fills_while_a_job_is_loading(play, write) -> None:
    node = play(write(LOADS_FIRST))
    cold, after, settled = (node.value(5, t, "temperature_celsius") for t in (20.0, 45.0, 400.0))
    assert (after - cold) / (settled - cold) == pytest.approx(0.63, abs=0.08)
    used = [node.value(0, t, "memory_used_bytes") for t in (1.0, 10.0, 19.0, 30.0, 500.0)]
    assert used == sorted(used)
    assert used[3] == used[4]
    values = node.values(0, 30.0)
    parts = ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes")
    assert sum(values[part] for part in parts) == pytest.approx(values["memory_total_bytes"])


def test_a_heat_throttled_gpu_holds_its_limit_and_only_that_reason_grows(play) -> None:
    node = play("thermal-throttle")
    names = {
        reason: f"throttle_seconds_total/{reason}"
        for reason in ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
    }
    names["thermal"] = "thermal_throttle_seconds_total"

    def grown(gpu, start, end):
        before, after = ({**node.values(gpu, t), **node.values(gpu, t, Lane.SLOW)} for t in (start, end))
        return {reason: after[name] - before[name] for reason, name in names.items()}

    by_driver, by_hardware, healthy = grown(5, 200, 300), grown(4, 500, 600), grown(0, 500, 600)
    assert by_driver["sw_thermal_slowdown"] == pytest.approx(100)
    assert by_hardware["hw_thermal_slowdown"] == pytest.approx(100)
    assert by_driver["thermal"] == pytest.approx(100)
    assert by_driver["sw_power_cap"] == by_driver["hw_thermal_slowdown"] == by_driver["hw_power_brake"] == 0
    assert by_hardware["sw_thermal_slowdown"] == by_hardware["sw_power_cap"] == by_hardware["hw_power_brake"] == 0
    assert healthy["sw_power_cap"] > 90
    assert healthy["thermal"] == healthy["hw_power_brake"] == 0
    margin = [node.value(5, t, "temperature_margin_celsius", Lane.SLOW) for t in (50.0, 90.0, 300.0)]
    assert margin[0] > margin[1] > margin[2]
    assert margin[2] <= 5
    assert 85 <= node.value(5, 300.0, "temperature_celsius") <= 88
    assert 88 <= node.value(4, 700.0, "temperature_celsius") <= 91
    clocks = [node.mean(gpu, "clock_hertz/sm", 600, 660) for gpu in (0, 5, 4)]
    assert clocks[0] > clocks[1] > 1.5 * clocks[2]


def test_two_rails_carry_the_traffic_of_a_pipeline_parallel_job(play, write):
    node = play(write(scenario("dgx-h100", job=f"parallelism: pipeline, {TRAINING}")))
    name = "infiniband_port_data_received_bytes_total/mlx5_{}/1"
    before, after = node.node(100.0), node.node(200.0)
    moved = [after[name.format(port)] > before[name.format(port)] for port in GPUS]
    assert moved == [True, *[False] * 6, True]


def test_a_lower_power_limit_caps_the_gpu_and_is_shown(play, write):
    node = play(write(scenario("dgx-h100", "{kind: power-limit, gpu: 1, at: 30s, watts: 400W}", job=TRAINING)))
    assert node.value(1, 29.0, "power_limit_watts") == 700
    assert node.value(1, 60.0, "power_limit_watts") == 400
    assert node.mean(1, "power_watts", 60, 90) < 400 < node.mean(0, "power_watts", 60, 90)


@pytest.mark.parametrize("name", shipped_names())
def test_a_node_begins_in_the_balance_of_what_it_does(play, name):
    """Whoever starts a demonstration looks at the first minute, and no node is cold under full load."""
    node = play(name)
    changes = [fault.window.at for fault in node.scenario.faults]
    changes += [job.phases[0].window.next_edge(1.0) for job in node.scenario.jobs]
    onset = min([120.0, *changes])
    for gpu in range(node.scenario.topology.gpus):
        heat = [node.mean(gpu, "temperature_celsius", t, t + 20.0) for t in (0.0, onset - 20.0)]  # a swing has 20 s
        assert heat[0] == pytest.approx(heat[1], abs=2.0)
    for metric in ("utilization_ratio", "power_watts", "memory_used_bytes"):
        first, later = (node.mean(0, metric, t, t + 10.0, 0.5) for t in (0.0, 0.9 * onset - 10.0))
        if name not in ("inference-mix", "two-jobs", "power-swing", "data-starvation"):  # whose work comes in bursts
            assert first == pytest.approx(later, rel=0.05)
