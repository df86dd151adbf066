"""dcgm-exporter: etc/default-counters.csv and internal/pkg/rendermetrics of version 4.8.2, and fields often added."""

from collections.abc import Mapping
from math import floor

from agent.model import Gpu, Kind, Labels, Series
from exporters.compatibility.foreign_names import (
    MHZ,
    MIB,
    MILLI,
    NANO,
    PERCENT,
    WHOLE,
    WINDOW_SECONDS,
    ForeignName,
    ForeignProfile,
    KnownNode,
    NotServed,
    Recent,
    Term,
    counter,
    gauge,
    written_bus_id,
)

FURTHER_LABELS = {"DCGM_FI_DEV_SERIAL": "serial", "DCGM_FI_DEV_VBIOS_VERSION": "vbios"}
"""Labels that dcgm-exporter has only where its list of counters asks for them, and those of our info series."""
_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "hostname",
           *FURTHER_LABELS, "DCGM_FI_DRIVER_VERSION", "window_size_in_ms", "xid", "container", "namespace", "pod",
           "hpc_job")  # fmt: skip


def _percent(name: str, help: str, row: str) -> ForeignName:
    return gauge(name, help, Term(row, factor=PERCENT), rounding=round)


def _violation(field: str, help: str, row: str, *labels: str) -> ForeignName:
    return counter(f"DCGM_FI_DEV_{field}_VIOLATION", f"Throttling duration due to {help} (in ns).",
                   Term(row, labels, NANO), rounding=round)  # fmt: skip


_XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"


def _xid_count(row: str, recent: Recent, note: str) -> ForeignName:
    return ForeignName(_XID_COUNT, Kind.COUNTER, "Number of XID errors within the last five minutes.", (Term(row),),
                       recent=recent, note=note)  # fmt: skip


def _ecc(kind: str, scope: str, help: str, row: str, label: str) -> ForeignName:
    return counter(f"DCGM_FI_DEV_ECC_{kind}_{scope}_TOTAL", f"Total number of {help} ECC errors.", Term(row, (label,)))


def _nvlink_errors(kind: str, help: str) -> ForeignName:
    return counter(f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", f"Total number of NVLink {help}.",
                   Term("coldplate_gpu_nvlink_errors_total", (kind.lower(),)))  # fmt: skip


def _profiled(name: str, help: str, row: str) -> ForeignName:
    return gauge(f"DCGM_FI_PROF_{name}_ACTIVE", help, Term(row), note="from GPM: Hopper and newer")


def _profiled_rate(name: str, help: str, row: str, note: str = "over the last 10 s") -> ForeignName:
    return gauge(f"DCGM_FI_PROF_{name}_BYTES", help, Term(row, rate=True), rounding=round, note=note)


def _framebuffer(part: str, help: str, row: str) -> ForeignName:
    return gauge(f"DCGM_FI_DEV_FB_{part}", f"{help} (in MiB).", Term(row, factor=MIB), rounding=floor)


_THROTTLE = "coldplate_gpu_throttle_seconds_total"
_OF_SM = "The ratio of cycles an SM has at least 1 warp assigned."
_OF_TENSOR = "Ratio of cycles the tensor (HMMA) pipe is active."
_OF_DRAM = "Ratio of cycles the device memory interface is active sending or receiving data."
_OF_PCIE = ("The rate of data {} over the PCIe bus - including both protocol headers and data payloads - "
            "in bytes per second.")  # fmt: skip
_VOLATILE, _AGGREGATE = "coldplate_gpu_ecc_errors_total", "coldplate_gpu_ecc_aggregate_errors_total"

DEFAULTS = (
    gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).",
          Term("coldplate_gpu_clock_hertz", ("sm",), MHZ), rounding=round),
    gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).",
          Term("coldplate_gpu_clock_hertz", ("memory",), MHZ), rounding=round),
    gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", Term("coldplate_gpu_memory_temperature_celsius")),
    gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", Term("coldplate_gpu_temperature_celsius")),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", Term("coldplate_gpu_power_watts")),
    counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).",
            Term("coldplate_gpu_energy_joules_total", factor=MILLI), rounding=round),
    counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.",
            Term("coldplate_gpu_pcie_replays_total")),
    _percent("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "coldplate_gpu_utilization_ratio"),
    _percent("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "coldplate_gpu_memory_activity_ratio"),
    _percent("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "coldplate_gpu_encoder_utilization_ratio"),
    _percent("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "coldplate_gpu_decoder_utilization_ratio"),
    ForeignName("DCGM_FI_DEV_XID_ERRORS", Kind.GAUGE, "Value of the last XID error encountered.",
                (Term("coldplate_gpu_xids_total"), Term("coldplate_gpu_xid_last_timestamp_seconds")), newest="xid",
                note="the last since the agent started; without the labels err_code and err_msg"),
    *(_framebuffer(part.upper(), f"Framebuffer memory {part}", f"coldplate_gpu_memory_{part}_bytes")
      for part in ("free", "used", "reserved")),
    ForeignName("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", Kind.COUNTER,
                "Total number of NVLink bandwidth counters for all lanes.",
                (Term("coldplate_gpu_nvlink_transmit_bytes_total", factor=1e-6, rate=True),
                 Term("coldplate_gpu_nvlink_receive_bytes_total", factor=1e-6, rate=True)), round,
                note="a rate in MB/s, sent and received, over the last 10 s, although its type is counter: as DCGM's"),
    counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors",
            Term("coldplate_gpu_row_remaps_total", ("uncorrectable",))),
    counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors",
            Term("coldplate_gpu_row_remaps_total", ("correctable",))),
    gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed",
          Term("coldplate_gpu_row_remap_failure")),
    gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.",
          Term("coldplate_gpu_utilization_ratio"),
          note="the driver's utilization, in whole percent: the share of time in which a kernel ran"),
    _profiled("PIPE_TENSOR", _OF_TENSOR, "coldplate_gpu_tensor_active_ratio"),
    _profiled("DRAM", _OF_DRAM, "coldplate_gpu_dram_active_ratio"),
    _profiled_rate("PCIE_TX", _OF_PCIE.format("transmitted"), "coldplate_gpu_pcie_transmit_bytes_total"),
    _profiled_rate("PCIE_RX", _OF_PCIE.format("received"), "coldplate_gpu_pcie_receive_bytes_total"),
)  # fmt: skip
"""Metrics that dcgm-exporter exposes by default."""

COMMON = (
    _violation("POWER", "power constraints", _THROTTLE, "sw_power_cap"),
    _violation("THERMAL", "thermal constraints", "coldplate_gpu_thermal_throttle_seconds_total"),
    _violation("SYNC_BOOST", "sync-boost constraints", _THROTTLE, "sync_boost"),
    _violation("BOARD_LIMIT", "board limit constraints", _THROTTLE, "board_limit"),
    _violation("LOW_UTIL", "low utilization", _THROTTLE, "low_utilization"),
    _violation("RELIABILITY", "reliability constraints", _THROTTLE, "reliability"),
    _ecc("SBE", "VOL", "single-bit volatile", _VOLATILE, "corrected"),
    _ecc("DBE", "VOL", "double-bit volatile", _VOLATILE, "uncorrected"),
    _ecc("SBE", "AGG", "single-bit persistent", _AGGREGATE, "corrected"),
    _ecc("DBE", "AGG", "double-bit persistent", _AGGREGATE, "uncorrected"),
    _nvlink_errors("CRC_FLIT", "flow-control CRC errors"),
    _nvlink_errors("CRC_DATA", "data CRC errors"),
    _nvlink_errors("REPLAY", "retries"),
    _nvlink_errors("RECOVERY", "recovery errors"),
    _profiled("SM", _OF_SM, "coldplate_gpu_sm_active_ratio"),
    gauge("DCGM_FI_PROF_SM_OCCUPANCY", "The ratio of number of warps resident on an SM.",
          Term("coldplate_gpu_sm_occupancy_ratio"), note="from GPM: Hopper and newer"),
    *(_profiled(f"PIPE_{pipe.upper()}", f"Ratio of cycles the {pipe} pipes are active.",
                f"coldplate_gpu_{pipe}_active_ratio")
      for pipe in ("fp64", "fp32", "fp16")),
    _profiled_rate("NVLINK_TX", "The rate of data transmitted over NVLink in bytes per second.",
                   "coldplate_gpu_nvlink_transmit_bytes_total", "payload only, over the last 10 s"),
    _profiled_rate("NVLINK_RX", "The rate of data received over NVLink in bytes per second.",
                   "coldplate_gpu_nvlink_receive_bytes_total", "payload only, over the last 10 s"),
    _framebuffer("TOTAL", "Total framebuffer memory", "coldplate_gpu_memory_total_bytes"),
    gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).", Term("coldplate_gpu_power_limit_watts")),
    gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT", "Instant power draw (in W).",
          Term("coldplate_gpu_power_instant_watts")),
    _xid_count("coldplate_gpu_xid_errors_total", Recent.NONZERO,
               "falls again although its type is counter, as DCGM's; the window is always five minutes"),
    _xid_count("coldplate_gpu_xids_total", Recent.ZERO, "without the label xid: 0 while the GPU has had none"),
)  # fmt: skip
"""Fields that its list has commented out, or that sites often add."""

MIG = (
    _framebuffer("USED", "Framebuffer memory used", "coldplate_gpu_mig_memory_used_bytes"),
    _framebuffer("TOTAL", "Total framebuffer memory", "coldplate_gpu_mig_memory_total_bytes"),
    _profiled("GR_ENGINE", "Ratio of time the graphics engine is active.", "coldplate_gpu_mig_utilization_ratio"),
    _profiled("SM", _OF_SM, "coldplate_gpu_mig_sm_active_ratio"),
    _profiled("PIPE_TENSOR", _OF_TENSOR, "coldplate_gpu_mig_tensor_active_ratio"),
    _profiled("DRAM", _OF_DRAM, "coldplate_gpu_mig_dram_active_ratio"),
)  # fmt: skip
"""Names of the same metrics for a MIG instance, with two more labels."""

_FORMER = {
    "sm_clock": "SM_CLOCK", "memory_clock": "MEM_CLOCK", "memory_temp": "MEMORY_TEMP", "gpu_temp": "GPU_TEMP",
    "power_usage": "POWER_USAGE", "total_energy_consumption": "TOTAL_ENERGY_CONSUMPTION",
    "pcie_replay_counter": "PCIE_REPLAY_COUNTER", "gpu_utilization": "GPU_UTIL",
    "mem_copy_utilization": "MEM_COPY_UTIL", "enc_utilization": "ENC_UTIL", "dec_utilization": "DEC_UTIL",
    "xid_errors": "XID_ERRORS", "fb_free": "FB_FREE", "fb_used": "FB_USED",
    "nvlink_bandwidth_total": "NVLINK_BANDWIDTH_TOTAL",
}  # fmt: skip
"""Names of dcgm-exporter 1, which later ones have with the option -o, and what became of them."""

NOT_SERVED = (
    *(NotServed(f"dcgm_{name}", "a name of dcgm-exporter 1", f"DCGM_FI_DEV_{became}")
      for name, became in _FORMER.items()),
    NotServed("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "only guests with a vGPU have a licence"),
    NotServed("DCGM_EXP_CLOCK_EVENTS_COUNT", "it counts samples, so it depends on who samples",
              "increase(coldplate_gpu_throttle_seconds_total[5m])"),
    NotServed("DCGM_EXP_GPU_HEALTH_STATUS", "a verdict of DCGM's own, by its own subsystems; the agent has rules",
              "coldplate_alert"),
    NotServed("DCGM_EXP_P2P_STATUS", "the agent does not ask for pairs of GPUs", "coldplate_nvlink_up"),
    NotServed("DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "a name for each link; here the link is a label",
              "rate(coldplate_nvlink_transmit_bytes_total[1m])"),
    *(NotServed(f"DCGM_FI_DEV_NVSWITCH_{field}", "NVML knows no NVSwitches: they answer NSCQ, by way of DCGM, alone",
                "coldplate_node_nvswitch_sxid_errors_total")
      for field in ("TEMPERATURE_CURRENT", "LINK_FLIT_ERRORS", "LINK_THROUGHPUT_TX", "LINK_THROUGHPUT_RX")),
    *(NotServed(f"DCGM_FI_DEV_RETIRED_{field}", "the agent does not read them: GPUs from Ampere on retire no pages, "
                "but remap rows", instead)
      for field, instead in (("SBE", "coldplate_gpu_row_remaps_total"), ("DBE", "coldplate_gpu_row_remaps_total"),
                            ("PENDING", "coldplate_gpu_row_remap_pending"))),
    NotServed("DCGM_FI_DEV_FAN_SPEED", "the agent reads no fans: the GPUs of its nodes have none"),
    NotServed("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "a mask cannot be queried", "coldplate_gpu_throttle_active"),
    NotServed("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "a mask cannot be queried", "coldplate_gpu_throttle_active"),
    NotServed("DCGM_FI_DEV_BRAND", "a label that is off unless configured"),
    *(NotServed(name, "no metric, but a label where `metrics.dcgm_labels` asks for it", "coldplate_gpu_info")
      for name in FURTHER_LABELS),
    NotServed("DCGM_FI_NVML_VERSION", "a label that is off unless configured"),
)  # fmt: skip


def labelling(facts: KnownNode, series: Series, name: str) -> Labels | None:
    """Return the labels of a GPU's series, in the order of render_metrics.go. An empty one is left out."""
    gpu = series.entity
    if not isinstance(gpu, Gpu):
        return None
    known_gpu = facts.known_gpu(gpu)
    own = dict(series.labels)
    mig = own.get("mig_uuid", "")
    pairs = (
        ("gpu", gpu.index),
        ("UUID", gpu.uuid),
        ("pci_bus_id", written_bus_id(known_gpu.info.get("slot", ""))),
        ("device", f"nvidia{gpu.index}"),
        ("modelName", known_gpu.info.get("model", "")),
        ("GPU_I_PROFILE", facts.mig_profiles.get(mig, "")),
        ("GPU_I_ID", own["gpu_instance"] if mig else ""),
        *facts.host_labels,
        *(
            (name, known_gpu.info.get(FURTHER_LABELS[name], ""))
            for name in FURTHER_LABELS
            if name in facts.further_labels
        ),
        ("DCGM_FI_DRIVER_VERSION", known_gpu.info.get("driver_version", "")),
        *(_window(own) if name == _XID_COUNT else ()),
        *_job(known_gpu.jobs.get(own["gpu_instance"] if mig else WHOLE, {})),
    )
    return tuple(pair for pair in pairs if pair[1])


def _window(own: Mapping[str, str]) -> Labels:
    """Return over which time a count is taken, in milliseconds, and of what."""
    return (("window_size_in_ms", f"{WINDOW_SECONDS * 1000:.0f}"), ("xid", own.get("xid", "")))


def _job(job: Mapping[str, str]) -> Labels:
    """Return the pod as the kubelet names it, or the job of any other scheduler."""
    pod = tuple((name, job.get(name, "")) for name in ("container", "namespace", "pod"))
    scheduled = job.get("job_id", "") if job.get("scheduler") != "kubernetes" else ""
    return (*pod, ("hpc_job", scheduled))


PROFILE = ForeignProfile(
    "dcgm", "dcgm-exporter", ("DCGM_", "dcgm_"), (*DEFAULTS, *COMMON, *MIG), labelling, _LABELS, NOT_SERVED,
    renamed={"exported_pod": "pod", "exported_namespace": "namespace", "exported_container": "container",
             "pod_name": "pod", "pod_namespace": "namespace", "container_name": "container", "uuid": "UUID"},
)  # fmt: skip
