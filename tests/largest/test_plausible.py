"""No bound on what is plausible is one that the largest node reaches: what it shows is never taken for garbage."""

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path

import psutil
import pytest

from agent.backends.host import HostBackend
from agent.backends.host.kernel import CPU_MODES
from agent.backends.infiniband import InfinibandBackend
from agent.backends.protocol import BackendProtocol
from agent.catalogue import SECTIONS
from agent.catalogue.bindings import growth_of
from agent.catalogue.infiniband import driver_counter
from agent.model import Instant, Kind, Metric, Outcome, Reading, Unit
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from tests.frames import read_of
from tests.largest import machine

_MEASURED = ("gpu", "nvlink", "pcie", "infiniband", "node", "jobs")
MEASURED = [row for word, _, rows in SECTIONS if word.startswith(_MEASURED) for row in rows]
"""The rows that some backend reads, and that pass the plausibility checks."""

SPARE = 1.5
"""What is sold next is faster: bounds leave this much room at least."""

FASTEST = (
    # (name, the most that it grows in a second on the largest node); the first line that matches counts
    (r"node_cpu_seconds_total", machine.CPUS),
    (r"node_pressure_(waiting|stalled)_seconds_total", 1),
    (r"node_disk_\w+_bytes_total", machine.DISK_RATE),
    (r"node_network_\w+_bytes_total", machine.LINE_RATE),
    (r"node_network_\w+_total", machine.PACKET_RATE),
    (r"node_(memory|dimm)_errors_total", 1e4),  # a storm of corrected errors
    (r"node_rapl_(part_)?energy_joules_total", 4 * 500),  # sockets
    (r"node_rapl_platform_energy_joules_total", 4 * 1000),
    (r"node_(nvswitch_sxid|gpu_driver)_errors_total", 1e3),
    (r"node_gpu_throttle_(any_reason_)?seconds_total", 72),
    (r"job_energy_joules_total", 72 * 1400),  # a node of 72 GPUs, as a synthetic one may be
    (r"job_attribution_problems_total", 1e5),
    (r"gpu_energy_joules_total", 1400),  # B300
    (r"gpu_(busy|state|mig_state|(thermal_)?throttle)_seconds_total", 1),
    (r"job_gpu_seconds_total", 72),
    (r"nvlink_(transmit|receive)_bytes_total", 100e9),
    (r"gpu_nvlink_\w+_bytes_total", 1.8e12),  # NVLink 5, both directions
    # Blocks and codewords of 18 links of 50 GB/s: none is known to be shorter than the 340 bytes of RS(272,258).
    (r"gpu_nvlink_(fec_bin|plr|plr_retried)_blocks_total", 18 * 50e9 / 340),
    (r"gpu_pcie_\w+_bytes_total", 128e9),  # sixteen lanes of PCIe 6
    (r"gpu_xid(_graded)?(_error)?s_total", 1e3),
    (r"gpu_row_remaps_total", 1),
    (r"gpu_pcie_(error_causes|naks_\w+|recoveries)_total", 1e8),
    (r"infiniband_\w+_bytes_total", machine.LINE_RATE),
    (r"infiniband_link_down_events_total", 10),
    (r"infiniband_\w*(packets|requests|discards|drops|wait)\w*_total", machine.PACKET_RATE),
    (r"infiniband_\w+_total", 1e8),  # errors and events
    (r"(gpu|nvlink)_\w*(errors|replays|remaps)_total", 1e8),
)

HIGHEST = (
    (r"node_cpus", machine.CPUS),
    (r"node_processes_stuck", 9000),
    (r"node_load\d+", 40 * machine.CPUS),
    (r"node_(memory|swap)_\w+_bytes", 8e12),
    (r"node_filesystem_\w+_bytes", 1e15),
    (r"node_boot_timestamp_seconds|job_start_timestamp_seconds|gpu_xid_last_timestamp_seconds", 4e9),
    (r"node_power_watts", 20_000),
    (r"node_(component|module|grace)_power_watts", 6_000),
    (r"(job_gpus|job_exclusive_gpus|node_gpus_up)", 72),
    (r"(job|node)_gpu_power_mean_watts", 72 * 2_300),
    (r"node_gpu_temperature_margin_celsius", 115),
    (r"job_processes", 72 * 256),
    (r"gpu_recorded_processes", 256),
    (r"gpus_expected", 72),
    (r"gpu_(mig_|job_)?memory_\w+_bytes", 1e12),
    (r"gpu_module_power_watts", 6_000),
    (r"gpu_\w*(power|limit)\w*_watts", 2_300),
    (r"gpu_\w*temperature\w*_celsius", 115),
    (r"gpu_clock_\w+", 4e9),
    (r"gpu_nvlink_speed_bytes_per_second", 1.8e12),
    (r"gpu_nvlink_traffic_\w+_bytes_per_second", 200e9),
    (r"gpu_pcie_link_generation(_max)?", 7),
    (r"gpu_pcie_link_width(_max)?", 16),
    (r"gpu_sample_age_seconds", 1e9),
    (r"infiniband_rate_bytes_per_second", machine.LINE_RATE),
    (r"infiniband_lifespan_seconds", 1e4),
    (r"leak_detector_state", 1),
    (r"coolant_(supply|return)_temperature_celsius", 90),
    (r"coolant_(rated_)?flow_liters_per_second", 10),
    (r"coolant_heat_removed_watts", 2e5),
    (r"coolant_delta_pressure_pascals", 1e6),
    (r"rack_(coolant_(supply|return)|air)_temperature_celsius|rack_dew_point_celsius", 90),
    (r"rack_coolant_(rated_)?flow_liters_per_second", 100),
    (r"rack_coolant_heat_removed_watts", 4e6),
    (r"rack_(distribution|circuit)_power_watts", 1e6),
    (r"rack_circuit_(current|rated)_amperes", 2e4),
    (r"rack_supply_(power|rated)_watts", 4e4),
    (r"rack_(coolant_(supply|return|delta)|filter_delta)_pressure_pascals", 2e6),
)


def of_table(table: tuple[tuple[str, float], ...], row: Metric) -> float:
    name = row.name.removeprefix("coldplate_")
    found = next((value for pattern, value in table if re.fullmatch(pattern, name)), None)
    assert found is not None, f"say in the table above how far {row.name} goes on the largest node"
    return float(found)


@pytest.mark.parametrize("row", [row for row in MEASURED if row.kind is Kind.COUNTER], ids=lambda row: row.name)
def test_no_counter_is_faster_than_its_bound(row: Metric) -> None:
    assert SPARE * of_table(FASTEST, row) <= growth_of(row)
    assert row.span[1] >= of_table(FASTEST, row) * 3.15e8, "ten years of it"


@pytest.mark.parametrize(
    "row", [row for row in MEASURED if row.kind is Kind.GAUGE and row.unit is not Unit.RATIO], ids=lambda row: row.name
)
def test_no_gauge_is_higher_than_its_bound(row: Metric) -> None:
    assert of_table(HIGHEST, row) <= row.span[1]


@pytest.mark.parametrize(
    "row",
    [row for row in MEASURED if re.search(r"errors|replays|remaps|ecc", row.name) and row.kind is Kind.COUNTER],
    ids=lambda row: row.name,
)
def test_all_ones_in_a_count_of_errors_are_still_caught(row: Metric) -> None:
    if "network" not in row.name:  # where every packet may be one
        assert growth_of(row) * 2 < 2**32 - 1 or growth_of(row) == inf


def test_a_counter_that_only_a_driver_knows_may_count_bytes() -> None:
    row = driver_counter("hw_counters/some_octets")
    assert row is not None
    assert growth_of(row) >= SPARE * machine.LINE_RATE


class Node:
    """The sampler over the backends of the largest node, whose clock and files the test moves."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        self.sampler = Sampler(Settings(), Inventory(None), "nvml")
        self.now = 1000.0
        self.read_from: dict[str, BackendProtocol] = {}

    def run(self, mode: int) -> None:
        machine.write_host(self.proc, self.sys, self.now, mode)
        machine.write_fabric(self.sys, self.now)

    def read(self, backend: BackendProtocol) -> None:
        self.read_from[backend.name] = backend
        for lane in sorted(backend.lanes, key=lambda lane: lane.value):
            sample = backend.read(lane, Instant(self.now, 1.7e9 + self.now))
            self.sampler.take_read(read_of(backend.name, lane, self.now, 0.0, Outcome.OK, sample))

    def shown(self) -> dict[str, Reading]:
        snapshot = self.sampler.snapshot(Instant(self.now, 1.7e9 + self.now), LoopFacts())
        return {repr(reading.series): reading for reading in snapshot.readings}


@pytest.fixture
def largest(tmp_path: Path) -> Iterator[Node]:
    before = psutil.PROCFS_PATH
    node = Node(tmp_path)
    try:
        yield node
    finally:
        psutil.PROCFS_PATH = before
        for backend in node.read_from.values():
            backend.close()


@pytest.mark.parametrize("mode", range(len(CPU_MODES)), ids=CPU_MODES)
def test_everything_at_full_rate_is_shown_and_nothing_is_missing(largest: Node, mode: int) -> None:
    backends = (HostBackend(str(largest.proc), str(largest.sys)), InfinibandBackend(largest.sys))
    for _ in range(4):
        largest.now += 15.0
        largest.run(mode)
        for backend in backends:
            largest.read(backend)
        shown = largest.shown()
    assert not [name for name in shown if "readings_rejected" in name or "metric_missing" in name]
    spent = f'coldplate_node_cpu_seconds_total{{mode="{CPU_MODES[mode]}"}}'
    assert shown[spent].value == pytest.approx(machine.CPUS * largest.now)
    moving = [name for name, each in shown.items() if each.metric.kind is Kind.COUNTER]
    assert len(moving) > machine.PORTS * 10


def test_the_backends_read_what_the_machine_shows(largest: Node) -> None:
    """Else the test above would find nothing wrong with nothing."""
    largest.run(0)
    largest.read(InfinibandBackend(largest.sys))
    names = {reading.metric.name for reading in largest.shown().values()}
    assert {
        "coldplate_infiniband_port_data_received_bytes_total",
        "coldplate_infiniband_rx_roce_only_bytes_total",
    } <= names
