"""What serves a synthetic rack: read by the reader of real equipment, with faults as physics has them."""

from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path

import pytest

from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend
from agent.backends.synthetic import load_scenario
from agent.backends.synthetic.rack_service import services_of_scenario
from agent.catalogue.rack import AMBIENT, DISTRIBUTION, LOOPS, PARTS
from agent.model import Instant, Lane
from tests.synthetic.conftest import TRAINING, scenario


class RackAt:
    def __init__(self, scenario: str) -> None:
        self._t = 0.0
        services = services_of_scenario(load_scenario(scenario), lambda: self._t)
        self.backend = RackEquipmentBackend(
            "r1", {**services}, lambda _: True, lambda: self._t, spawn=lambda job: job()
        )

    def read(self, t: float) -> dict[str, float]:
        """Values by metric and labels, without the states; the names without their common beginning."""
        return {name: value for name, value in self._all(t) if not name.startswith("part_state")}

    def states(self, t: float) -> dict[str, str]:
        """What is not well, by unit, kind and part."""
        said = (name.split("/")[2:] for name, value in self._all(t) if name.startswith("part_state") and value)
        return {"/".join(part): state for *part, state in said if state != "ok"}

    def _all(self, t: float) -> Iterator[tuple[str, float]]:
        self._t = t
        sample = self.backend.read(Lane.FAST, Instant(t, 1e9 + t))
        assert list(sample.gaps) == []
        for series, value in sample.readings:
            words = (series.metric.name.removeprefix("coldplate_rack_"), *(word for _, word in series.labels))
            yield "/".join(words), value


@pytest.fixture
def rack(write: Callable[[str], Path]) -> Callable[..., RackAt]:
    def make(*faults: str) -> RackAt:
        return RackAt(str(write(scenario("nvl72-rack", *faults, job=TRAINING))))

    return make


def test_every_metric_of_equipment_is_reported_as_well_and_others_have_none(rack: Callable[..., RackAt]) -> None:
    well = rack()
    names = {name.partition("/")[0] for name in well.read(60.0)} | {"part_state"}
    wanted = {row.name.removeprefix("coldplate_rack_") for row in PARTS + LOOPS + AMBIENT + DISTRIBUTION}
    assert wanted - names == set()
    assert well.states(90.0) == {}
    assert services_of_scenario(load_scenario("healthy-training"), lambda: 0.0) == {}


def test_heat_and_power_are_those_of_the_whole_rack(rack: Callable[..., RackAt]) -> None:
    values = rack().read(60.0)
    drawn = sum(value for name, value in values.items() if name.startswith("distribution_power_watts"))
    taken = sum(value for name, value in values.items() if name.startswith("circuit_power_watts"))
    heat = values["coolant_heat_removed_watts/cdu/1/secondary/1"]
    assert 105e3 < drawn < 132e3, "eighteen trays of some 6 kW, and the switches"
    assert drawn < taken < 1.05 * drawn
    assert 0.7 * drawn < heat < 0.9 * drawn
    assert values["coolant_heat_removed_watts/cdu/1/primary/1"] == heat
    amperes = values["circuit_current_amperes/power-shelves/1/mains/A/1"]
    assert amperes * 415 * sqrt(3) == pytest.approx(values["circuit_power_watts/power-shelves/1/mains/A"], rel=0.01)
    supplies = [value for name, value in values.items() if name.startswith("supply_power_watts/power-shelves/1/")]
    assert sum(supplies) == pytest.approx(values["distribution_power_watts/power-shelves/1"], rel=0.01)


def test_one_pump_carries_the_loop_and_none_leaves_it_standing(rack: Callable[..., RackAt]) -> None:
    pumps = rack(
        "{kind: pump-failure, pump: PumpA, at: 60s}", "{kind: pump-failure, pump: PumpB, at: 300s, duration: 60s}"
    )
    flow = "coolant_flow_liters_per_second/cdu/1/secondary/1"
    well, alone, standing, back = (pumps.read(t) for t in (50.0, 100.0, 320.0, 400.0))
    assert alone[flow] == back[flow] == pytest.approx(0.9 * well[flow], rel=0.01)
    assert standing[flow] < 0.05 * well[flow]
    heat = "coolant_heat_removed_watts/cdu/1/secondary/1"
    assert standing[heat] < 0.2 * well[heat]
    speed = "pump_speed_ratio/cdu/1/Pump"
    assert (alone[speed + "A"], standing[speed + "B"]) == (0.0, 0.0)
    assert alone[speed + "B"] > well[speed + "B"]
    assert pumps.states(420.0) == {"1/pump/PumpA": "critical", "1/pump-redundancy/Pumps": "critical"}


def test_without_a_pump_the_gpus_throttle_and_the_tray_has_no_flow(play, write) -> None:
    faults = (f"{{kind: pump-failure, pump: Pump{each}, at: 60s}}" for each in "AB")
    node = play(write(scenario("nvl72-rack", *faults, job=TRAINING)))
    flow = "coolant_flow_liters_per_second/Chassis_0/Tray"
    throttled = "throttle_seconds_total/sw_thermal_slowdown"
    assert node.node(300.0, Lane.SLOW)[flow] < 0.05 * node.node(50.0, Lane.SLOW)[flow]
    before, after = (node.value(3, t, throttled, Lane.SLOW) for t in (50.0, 300.0))
    assert after - before > 100.0


def test_shelves_of_a_lost_feed_are_dead_and_the_others_take_their_load(rack: Callable[..., RackAt]) -> None:
    lost = rack("{kind: feed-lost, feed: B, at: 60s}")
    before, after = lost.read(50.0), lost.read(100.0)
    power = "distribution_power_watts/power-shelves/"
    assert after[power + "1"] == pytest.approx(2 * before[power + "1"], rel=0.05)
    assert after[power + "2"] == after["circuit_power_watts/power-shelves/2/mains/B"] == 0.0
    assert after["supply_power_watts/power-shelves/2/PSU1"] == 0.0
    sick = lost.states(120.0)
    assert {name.partition("/")[0] for name in sick} == {"2", "4", "6", "8"}
    assert sick["2/mains/B"] == sick["2/power-supply/PSU6"] == "critical"


def test_a_low_reservoir_and_a_failed_supply_have_their_states_while_they_last(rack: Callable[..., RackAt]) -> None:
    sick = rack("{kind: reservoir-low, at: 60s}", '{kind: supply-failure, shelf: "3", at: 60s, duration: 300s}')
    assert sick.states(50.0) == {}
    assert sick.states(120.0) == {"1/reservoir/1": "warning", "3/power-supply/PSU1": "critical"}
    assert sick.states(400.0) == {"1/reservoir/1": "warning"}


def test_warm_coolant_comes_from_the_facility_and_a_leak_from_its_detector(rack: Callable[..., RackAt]) -> None:
    sick = rack(
        "{kind: coolant-warm, degrees: 17, at: 60s}",
        "{kind: leak, detector: DripTray, at: 60s, state: warning}",
        "{kind: leak, detector: Cabinet, at: 60s, state: unavailable}",
    )
    supply = "coolant_supply_temperature_celsius/cdu/1/"
    before, after = sick.read(50.0), sick.read(600.0)
    for loop in ("secondary/1", "primary/1"):
        assert after[supply + loop] - before[supply + loop] == pytest.approx(17.0, abs=0.1)
    assert sick.states(620.0) == {"1/leak-detector/DripTray": "warning", "1/leak-detector/Cabinet": "unavailable"}


def test_humid_air_brings_the_dew_point_near_the_coolant(rack: Callable[..., RackAt]) -> None:
    humid = rack("{kind: humid-air, at: 100s, humidity: 95%}")
    dry, wet = humid.read(60.0), humid.read(120.0)
    (name,) = (each for each in wet if each.startswith("dew_point_celsius"))
    assert dry[name] < 12.0 < 22.0 < wet[name]
