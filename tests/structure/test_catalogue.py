"""What every row of the catalogue must satisfy."""

from __future__ import annotations

import re

from agent.catalogue import BY_NAME, ROLLING, ROWS
from agent.catalogue.bindings import Call, Derived, DeviceValue, Field, Gpm, PortFile, Source
from agent.model import Backend, Gpu, IbPort, Kind, Metric, Node, NvLink, Rack, Unit
from tests.each import for_each

FAMILIES = """
gpu_up gpu_info gpus_expected gpu_sample_age_seconds metric_missing gpu_utilization_ratio gpu_memory_activity_ratio
gpu_busy_seconds_total gpu_sm_active_ratio gpu_sm_occupancy_ratio gpu_tensor_active_ratio gpu_dram_active_ratio
gpu_fp64_active_ratio gpu_fp32_active_ratio gpu_fp16_active_ratio gpu_encoder_utilization_ratio
gpu_decoder_utilization_ratio gpu_memory_used_bytes gpu_memory_free_bytes gpu_memory_reserved_bytes
gpu_memory_total_bytes gpu_power_watts gpu_power_instant_watts gpu_power_limit_watts gpu_energy_joules_total
gpu_temperature_celsius gpu_memory_temperature_celsius gpu_temperature_margin_celsius gpu_clock_hertz
gpu_throttle_active gpu_throttle_seconds_total gpu_nvlink_transmit_bytes_total gpu_nvlink_receive_bytes_total
nvlink_up nvlink_errors_total gpu_pcie_transmit_bytes_total gpu_pcie_receive_bytes_total gpu_pcie_replays_total
gpu_pcie_link_generation gpu_pcie_link_width gpu_ecc_errors_total gpu_row_remaps_total gpu_row_remap_pending
gpu_row_remap_failure gpu_xid_errors_total gpu_xid_last_timestamp_seconds gpu_recovery_action gpu_fabric_info
gpu_fabric_state gpu_power_max_watts infiniband_port_data_received_bytes_total
infiniband_port_data_transmitted_bytes_total node_power_watts rack_power_watts rack_power_budget_watts
rack_nodes_expected rack_nodes_reporting gpu_job_info build_info backend_up backend_duration_seconds
sample_age_seconds ticks_missed_total worker_restarts_total driver_calls_total rule_evaluation_failures_total
config_last_reload_successful alert notifications_total notifications_dropped_total
""".split()  # noqa: SIM905 - a table to read, not a list to edit


@for_each("family", FAMILIES)
def test_every_family_of_the_architecture_has_a_row(family: str) -> None:
    assert f"coldplate_{family}" in BY_NAME


@for_each("row", ROWS)
def test_a_row_has_everything_about_a_metric(row: Metric) -> None:
    assert re.fullmatch(r"coldplate_[a-z][a-z0-9_]*", row.name)
    assert row.help.endswith(".")
    assert len(row.help) <= 140
    assert row.entity in {Node, Gpu, NvLink, IbPort, Rack, Backend}
    assert row.origin
    assert all(isinstance(each, (Field, Call, Gpm, DeviceValue, PortFile, Source, Derived)) for each in row.origin)
    assert row.span[0] <= row.span[1]
    if row.simulated is not None:
        assert row.span[0] <= row.simulated[0] <= row.simulated[1] <= row.span[1]


@for_each("row", ROWS)
def test_a_name_says_kind_and_unit(row: Metric) -> None:
    assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)
    assert row.name.endswith("_info") == (row.kind is Kind.INFO)
    if row.unit is not Unit.NONE:
        stem = row.name.removesuffix("_total")
        assert stem.endswith((f"_{row.unit.value}", f"_{row.unit.value}_per_second"))


@for_each("row", ROWS)
def test_a_binding_gives_a_value_for_each_label_of_its_row(row: Metric) -> None:
    for binding in row.origin:
        labels = getattr(binding, "labels", ())
        if isinstance(binding, Call) and binding.name in {
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetMemoryInfo_v2",
        }:
            continue  # their labels name the member of the answer
        if labels:
            assert len(labels) == len(row.labels), row.name


def test_rolling_rows_are_named_before_their_unit() -> None:
    names = [row.name for row in ROLLING["coldplate_gpu_power_watts"]]
    assert names == [f"coldplate_gpu_power_{each}_watts" for each in ("min", "mean", "max")]
