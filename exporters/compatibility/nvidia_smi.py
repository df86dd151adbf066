"""nvidia_gpu_exporter: the fields of `nvidia-smi --query-gpu` in base units, all of them gauges, and some of NVML's."""

from agent.catalogue.gpu import EVENT_REASONS, HW_SLOWDOWN, RECOVERY_ACTIONS
from agent.catalogue.links import FABRIC_STATES
from agent.model import Gpu, Kind, Labels, Series
from exporters.compatibility.foreign_names import (
    ForeignName,
    ForeignProfile,
    KnownNode,
    NotServed,
    Term,
    counter,
    gauge,
    written_bus_id,
)

_INFO = "nvidia_smi_gpu_info"
_INFO_LABELS = ("compute_cap", "driver_version", "index", "name", "pci_bus_id", "serial", "uuid", "vbios_version")


def _plain(field: str, row: str, *labels: str) -> ForeignName:
    """Return a value that both have in the same unit. Its HELP text is the field of nvidia-smi, more or less."""
    return gauge(f"nvidia_smi_{field}", field.replace("_", " "), Term(row, labels))


_REASON = {
    "gpu_idle": "gpu_idle",
    "application_clocks": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
}
"""nvidia-smi's words for reasons, by ours."""
_COUNTED = ("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")

_WORK = (
    _plain("utilization_gpu_ratio", "coldplate_gpu_utilization_ratio"),
    _plain("utilization_memory_ratio", "coldplate_gpu_memory_activity_ratio"),
    _plain("utilization_encoder_ratio", "coldplate_gpu_encoder_utilization_ratio"),
    _plain("utilization_decoder_ratio", "coldplate_gpu_decoder_utilization_ratio"),
    *(_plain(f"memory_{part}_bytes", f"coldplate_gpu_memory_{part}_bytes")
      for part in ("total", "used", "free", "reserved")),
)  # fmt: skip
_POWER = (
    _plain("temperature_gpu", "coldplate_gpu_temperature_celsius"),
    _plain("temperature_memory", "coldplate_gpu_memory_temperature_celsius"),
    _plain("temperature_gpu_tlimit", "coldplate_gpu_temperature_margin_celsius"),
    _plain("power_draw_watts", "coldplate_gpu_power_watts"),
    _plain("power_draw_average_watts", "coldplate_gpu_power_watts"),
    _plain("power_draw_instant_watts", "coldplate_gpu_power_instant_watts"),
    _plain("power_limit_watts", "coldplate_gpu_power_limit_watts"),
    _plain("enforced_power_limit_watts", "coldplate_gpu_power_limit_watts"),
    _plain("power_default_limit_watts", "coldplate_gpu_power_limit_default_watts"),
    *(_plain(f"clocks_current_{domain}_clock_hz", "coldplate_gpu_clock_hertz", domain)
      for domain in ("graphics", "sm", "memory", "video")),
    *(_plain(f"clocks_max_{domain}_clock_hz", "coldplate_gpu_clock_limit_hertz", domain)
      for domain in ("sm", "memory")),
    counter("nvidia_smi_energy_joules_total", "Total energy consumed by the GPU.",
            Term("coldplate_gpu_energy_joules_total")),
)  # fmt: skip
_REASONS = (
    gauge("nvidia_smi_clocks_event_reasons_active", "clocks_event_reasons.active",
          *(Term("coldplate_gpu_throttle_active", (reason,), bit) for bit, reason in EVENT_REASONS),
          Term("coldplate_gpu_hw_slowdown_active", factor=HW_SLOWDOWN)),
    *(_plain(f"clocks_event_reasons_{theirs}", "coldplate_gpu_throttle_active", ours)
      for ours, theirs in _REASON.items()),
    _plain("clocks_event_reasons_hw_slowdown", "coldplate_gpu_hw_slowdown_active"),
    *(_plain(f"clocks_event_reasons_counters_{_REASON[reason]}_seconds", "coldplate_gpu_throttle_seconds_total", reason)
      for reason in _COUNTED),
)  # fmt: skip
_FAULTS = (
    _plain("ecc_mode_current", "coldplate_gpu_ecc_enabled"),
    *(_plain(f"ecc_errors_{kind}_{scope}_total", row, kind)
      for kind in ("corrected", "uncorrected")
      for scope, row in (("volatile", "coldplate_gpu_ecc_errors_total"),
                         ("aggregate", "coldplate_gpu_ecc_aggregate_errors_total"))),
    _plain("remapped_rows_correctable", "coldplate_gpu_row_remaps_total", "correctable"),
    _plain("remapped_rows_uncorrectable", "coldplate_gpu_row_remaps_total", "uncorrectable"),
    _plain("remapped_rows_pending", "coldplate_gpu_row_remap_pending"),
    _plain("remapped_rows_failure", "coldplate_gpu_row_remap_failure"),
    gauge("nvidia_smi_gpu_recovery_action", "gpu_recovery_action",
          *(Term("coldplate_gpu_recovery_action", (action,), code) for code, action in enumerate(RECOVERY_ACTIONS))),
    counter("nvidia_smi_xid_errors_total", "XID error events, by code.", Term("coldplate_gpu_xid_errors_total")),
    gauge("nvidia_smi_xid_last_timestamp_seconds", "When the XID error was last seen.",
          Term("coldplate_gpu_xid_last_timestamp_seconds")),
)  # fmt: skip
_LINKS = (
    _plain("pcie_link_gen_current", "coldplate_gpu_pcie_link_generation"),
    _plain("pcie_link_gen_gpucurrent", "coldplate_gpu_pcie_link_generation"),
    _plain("pcie_link_gen_max", "coldplate_gpu_pcie_link_generation_max"),
    _plain("pcie_link_width_current", "coldplate_gpu_pcie_link_width"),
    _plain("pcie_link_width_max", "coldplate_gpu_pcie_link_width_max"),
    *(gauge(f"nvidia_smi_pcie_throughput_{way}_bytes_per_second", f"PCIe traffic, {way}, in bytes per second.",
            Term(f"coldplate_gpu_pcie_{word}_bytes_total", rate=True), note="over the last 10 s")
      for way, word in (("tx", "transmit"), ("rx", "receive"))),
    gauge("nvidia_smi_fabric_state", "fabric.state",
          *(Term("coldplate_gpu_fabric_state", (name,), min(code, FABRIC_STATES.index("completed")))
            for code, name in enumerate(FABRIC_STATES))),
)  # fmt: skip
_IDENTITY = (
    gauge(_INFO, "A metric with a constant '1' value labeled by facts about the GPU.", Term("coldplate_gpu_info")),
    ForeignName("nvidia_smi_index", Kind.GAUGE, "index", (Term("coldplate_gpu_info"),), label="gpu"),
    _plain("persistence_mode", "coldplate_gpu_persistence_enabled"),
)

_PROCESSES = "processes come and go, and their series with them; jobs have series instead"
NOT_SERVED = (
    NotServed("nvidia_smi_pstate", "the agent reads the reasons for lower clocks", "coldplate_gpu_throttle_active"),
    NotServed("nvidia_smi_fan_speed_ratio", "the agent reads no fans: the GPUs of its nodes have none"),
    NotServed("nvidia_smi_mig_info", "instances have another series", "coldplate_gpu_mig_info"),
    NotServed("nvidia_smi_mig_memory_used_bytes", "instances have a name of their own",
              "coldplate_gpu_mig_memory_used_bytes"),
    NotServed("nvidia_smi_compute_mode", "the agent does not ask for it"),
    *(NotServed(f"nvidia_smi_clocks_throttle_reasons_{theirs}", "a former name of the same",
                f'coldplate_gpu_throttle_active{{reason="{ours}"}}') for ours, theirs in _REASON.items()),
    NotServed("nvidia_smi_clocks_max_graphics_clock_hz", "the agent reads the limits of sm and memory",
              'coldplate_gpu_clock_limit_hertz{domain="sm"}'),
    NotServed("nvidia_smi_clocks_event_reasons_supported", "a mask of the reasons that the driver supports"),
    NotServed("nvidia_smi_mig_mode_current", "instances have another series", "coldplate_gpu_mig_info"),
    NotServed("nvidia_smi_power_max_limit_watts", "the agent reads the limits in force and by default",
              "coldplate_gpu_power_limit_default_watts"),
    NotServed("nvidia_smi_power_min_limit_watts", "the agent reads the limits in force and by default",
              "coldplate_gpu_power_limit_default_watts"),
    NotServed("nvidia_smi_compute_apps", _PROCESSES, "coldplate_job_processes"),
    NotServed("nvidia_smi_compute_app_info", _PROCESSES, "coldplate_gpu_job_info"),
    NotServed("nvidia_smi_compute_app_used_memory_bytes", _PROCESSES, "coldplate_gpu_memory_used_bytes"),
    NotServed("nvidia_smi_last_collect_success", "the exporter's own", 'coldplate_backend_up{backend="nvml"}'),
    NotServed("nvidia_smi_failed_scrapes_total", "the exporter's own", 'coldplate_backend_up{backend="nvml"}'),
    NotServed("nvidia_smi_command_exit_code", "the exporter's own", 'coldplate_backend_up{backend="nvml"}'),
)  # fmt: skip


def labelling(facts: KnownNode, series: Series, name: str) -> Labels | None:  # noqa: ARG001 every profile gets them
    """Return the GPU's UUID in lower case without its prefix, and the XID's code; on the info series, what is known."""
    gpu = series.entity
    if not isinstance(gpu, Gpu):
        return None
    own, uuid = dict(series.labels), gpu.uuid.lower().removeprefix("gpu-")
    if name == _INFO:
        values = {"index": gpu.index, "uuid": uuid, "name": own.get("model", ""),
                "compute_cap": own.get("compute_capability", ""), "driver_version": own.get("driver_version", ""),
                "pci_bus_id": written_bus_id(own.get("slot", "")), "serial": own.get("serial", ""),
                "vbios_version": own.get("vbios", "")}  # fmt: skip
        return tuple((label, values[label]) for label in _INFO_LABELS)
    xid = own.get("xid")
    return (("uuid", uuid),) if xid is None else (("uuid", uuid), ("xid", xid))


PROFILE = ForeignProfile(
    "nvidia_smi", "nvidia_gpu_exporter", ("nvidia_smi_",), (*_WORK, *_POWER, *_REASONS, *_FAULTS, *_LINKS, *_IDENTITY),
    labelling, (*_INFO_LABELS, "xid"), NOT_SERVED,
)  # fmt: skip
