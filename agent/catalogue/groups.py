"""Groups of rows that belong together, for the reference and `metrics.disable`, and profiles: how much a page shows.

Boards, and the rules of a server, say which profile they need.
"""

from enum import IntEnum

from agent.catalogue import PEAKS, ROLLING, SECTIONS, with_statistics
from agent.model import Metric, Shown

ROLLING_WORD = "rolling"
"""Every minimum, mean, maximum and peak of a rolling window, in whichever group it is."""
DRIVERS_WORD = "infiniband-drivers"
"""Counters under names of the driver's own, whose rows are made when they are first seen."""


WORDS = (*(word for word, _, _ in SECTIONS), DRIVERS_WORD, ROLLING_WORD)

_WORD_OF = {row: word for word, _, rows in SECTIONS for row in with_statistics(rows)}
_STATISTICS = frozenset(row for rows in (*ROLLING.values(), PEAKS.values()) for row in rows)


def words_of(row: Metric) -> tuple[str, ...]:
    """Return the words that switch the row off."""
    word = _WORD_OF.get(row, DRIVERS_WORD)
    return (word, ROLLING_WORD) if row in _STATISTICS else (word,)


class Profile(IntEnum):
    """What `metrics.profile` can be. Each shows what the ones before it show, and more."""

    NONE = 0
    LEAN = 1
    DEFAULT = 2
    FULL = 3

    @property
    def word(self) -> str:
        """As the configuration has it."""
        return self.name.lower()


def profile_of(row: Metric) -> Profile:
    """Return the smallest profile in which the row has series."""
    if row.name in LEAN:
        return Profile.LEAN
    return Profile.FULL if row.shown is Shown.FULL else Profile.DEFAULT


_GPU = """
up info replaced_info utilization_ratio utilization_mean_ratio utilization_max_ratio busy_seconds_total
sm_active_ratio sm_active_mean_ratio tensor_active_ratio tensor_active_mean_ratio dram_active_ratio
memory_used_bytes memory_total_bytes power_watts power_mean_watts power_max_watts power_limit_watts
energy_joules_total temperature_celsius temperature_max_celsius memory_temperature_celsius
temperature_margin_celsius clock_mean_hertz throttle_seconds_total ecc_errors_total
row_remap_pending row_remap_failure xids_total nvlink_transmit_bytes_total nvlink_receive_bytes_total
pcie_receive_bytes_total job_info
"""
_INFINIBAND = """
port_up rate_bytes_per_second port_data_received_bytes_total port_data_transmitted_bytes_total link_down_events_total
symbol_error_total
"""
_NODE_NAMES = """
info boot_timestamp_seconds cpus cpu_seconds_total load1 memory_total_bytes memory_available_bytes power_watts
power_mean_watts power_max_watts power_fallback gpus_up gpu_power_mean_watts gpu_utilization_mean_ratio
gpu_temperature_margin_celsius gpu_throttle_seconds_total gpu_throttle_any_reason_seconds_total
"""
_JOB = """
info exclusive_gpus gpu_seconds_total gpu_utilization_mean_ratio gpu_utilization_lowest_ratio
gpu_utilization_highest_ratio gpu_power_mean_watts
"""
_RACK = """
power_budget_watts feed_limit_watts nodes_expected power_watts power_conservative_watts power_timestamp_seconds
nodes_reporting nodes_missing peer_up peer_failures_total clock_offset_seconds config_mismatch breaker_load_ratio
breaker_heat_ratio breaker_trip_seconds failover_limit_watts nvlink_gpus nvlink_unregistered_gpus
nvlink_domains_expected equipment_up part_state coolant_supply_temperature_celsius coolant_return_temperature_celsius
coolant_flow_liters_per_second coolant_rated_flow_liters_per_second coolant_heat_removed_watts pump_speed_ratio
reservoir_level_ratio filter_delta_pressure_pascals filter_service_ratio dew_point_celsius distribution_power_watts
"""
_AGENT = """
alert alert_text_info gpus_expected backend_up build_info synthetic_info replay_info config_last_reload_successful
web_config_last_reload_successful web_certificate_expiry_timestamp_seconds expectation_met leak_detector_state
flight_recorder_failures_total metric_missing notifications_errors_total notifications_dropped_total
notifications_queue_length overhead_cpu_ratio overhead_cpu_budget_ratio rule_evaluation_failures_total
rule_window_dropped_total sample_age_seconds sampling_slowdown_ratio state_write_successful thread_restarts_total
thread_up ticks_total ticks_missed_total worker_up worker_restarts_total process_cpu_seconds_total
process_resident_memory_bytes
"""


def _names(prefix: str, stems: str) -> set[str]:
    return {f"coldplate_{prefix}{stem}" for stem in stems.split()}


LEAN = frozenset(
    _names("gpu_", _GPU)
    | _names("infiniband_", _INFINIBAND)
    | _names("node_", _NODE_NAMES)
    | _names("job_", _JOB)
    | _names("rack_", _RACK)
    | _names("", _AGENT)
)
"""Names of the rows of the lean profile: what a server needs that leaves judging GPUs to the nodes."""
