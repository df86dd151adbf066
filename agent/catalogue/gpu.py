"""The rows of a GPU: presence, work, memory, power and heat, throttling, faults.

Field ids, units and windows: NVIDIA's NVML API reference and the constants of nvidia-ml-py.
"""

from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import Call, Derived, Field, Gpm, Source, counter, gauge, info, state
from agent.model import Gpu, Lane, Metric, Node, Shown

PERCENT = 0.01
MILLI = 1e-3
NANO = 1e-9
MEGA = 1e6

EVENT_REASONS = (
    # (bit of nvmlDeviceGetCurrentClocksEventReasons, label value)
    (0x1, "gpu_idle"),
    (0x2, "application_clocks"),
    (0x4, "sw_power_cap"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks"),
)
HW_SLOWDOWN = 0x8
"""The umbrella of 0x40, 0x80 and the fast power trigger: a metric of its own, or a sum over the reasons would count
them twice. It is ambiguous, so it is never called thermal."""

RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
"""Names of NVML_FI_DEV_GET_GPU_RECOVERY_ACTION's codes, in order (nvidia-ml-py)."""


FACTS = ("driver_version", "vbios", "architecture", "compute_capability", "minor", "numa_node", "board_part")
"""What else is known of a GPU; a fact that the driver does not give is empty."""


def _ratio(
    name: str,
    help: str,
    *origin: object,
    lane: Lane = Lane.FAST,
    rolling: bool = False,
    statistics: Shown = Shown.DEFAULT,
) -> Metric:
    return gauge(f"coldplate_gpu_{name}_ratio", Gpu, help, lane, *origin, span=(0.0, 1.0), rolling=rolling,
                 statistics_shown=statistics)  # fmt: skip


PRESENCE = (
    state("coldplate_gpu_up", Gpu,
          "1 if the GPU answered within the deadline, 0 if missing, lost or silent; without uuid: never identified.",
          Lane.FAST, Derived("inventory and the age of the last good sample")),
    info("coldplate_gpu_info", Gpu, "Facts about the GPU as labels; kept while the GPU is missing.",
         Lane.COLD, Derived("inventory"), labels=("slot", "serial", "model"), further_labels=FACTS),
    info("coldplate_gpu_replaced_info", Gpu,
         "The GPU now in a slot that held a different one when the inventory was learned.",
         Lane.COLD, Derived("inventory"), labels=("slot", "serial", "previous_uuid", "previous_serial")),
    gauge("coldplate_gpus_expected", Node,
          "GPUs that this node should have: configured, else remembered or shown by the driver, else on the PCI bus.",
          Lane.FAST, Derived("configuration, inventory or PCI bus")),
    state("coldplate_gpu_persistence_enabled", Gpu,
          "1 if the driver stays loaded while nothing uses the GPU (persistence mode), 0 if it does not.",
          Lane.COLD, Call("nvmlDeviceGetPersistenceMode")),
    gauge("coldplate_gpu_sample_age_seconds", Gpu, "Time since the GPU's last good fast sample.",
          Lane.FAST, Derived("monotonic clock")),
)  # fmt: skip

STATES = ("computing", "waiting", "throttled", "awaited", "saving", "loading", "starved", "held", "free", "lost")
"""What a GPU does with its time (agent/sampler/gpu_second.py)."""

WORKING_POWER = 0.35
"""Share of the default power limit from which a busy GPU computes; below it waits, unless activity counters show work.

Measured: 150 of 700 W while it waits for others, 690 W at work. A lower limit in force changes only the latter.
"""

MIG_STATES = ("computing", "waiting", "held", "free")
"""What a GPU instance does with its time (agent/sampler/gpu_second.py)."""

LEDGER = (
    counter("coldplate_gpu_state_seconds_total", Gpu,
            "Seconds of the GPU by what it did; the states add up to the time in which its utilization or power was "
            "read, or it was lost.", Lane.FAST,
            Derived("utilization, activity, power, the job's other GPUs, what the node reads and writes"),
            labels=("state",)),
    gauge("coldplate_gpu_lock_step_ratio", Gpu,
          "Correlation of the GPU's activity with its job's other busy GPUs here, over ten minutes; 1: in step; "
          "absent if nothing varies.",
          Lane.FAST, Derived("tensor activity, else power, of GPUs that a job holds whole"), span=(-1, 1)),
)  # fmt: skip

WORK = (
    _ratio("utilization", "Share of time in which at least one kernel ran; does not show how much of the GPU it used.",
           Call("nvmlDeviceGetUtilizationRates", ("gpu",)), rolling=True),
    _ratio("memory_activity", "Share of time in which device memory was read or written.",
           Call("nvmlDeviceGetUtilizationRates", ("memory",)), rolling=True, statistics=Shown.FULL),
    counter("coldplate_gpu_busy_seconds_total", Gpu,
            "Integral of the utilization: seconds in which kernels ran, since the agent started.",
            Lane.FAST, Derived("utilization times the sampling interval")),
    _ratio("sm_active", "Share of cycles in which a multiprocessor had at least one warp, mean of all of them.",
           Gpm(nvml.GPM_METRIC_SM_UTIL), rolling=True),
    _ratio("sm_occupancy", "Resident warps as a share of the maximum.", Gpm(nvml.GPM_METRIC_SM_OCCUPANCY)),
    _ratio("tensor_active", "Share of cycles in which the tensor pipes were active.",
           Gpm(nvml.GPM_METRIC_ANY_TENSOR_UTIL), rolling=True),
    _ratio("dram_active", "Device memory bandwidth used, as a share of the maximum.", Gpm(nvml.GPM_METRIC_DRAM_BW_UTIL),
           rolling=True, statistics=Shown.FULL),
    _ratio("fp64_active", "Share of cycles in which the FP64 pipe was active.", Gpm(nvml.GPM_METRIC_FP64_UTIL)),
    _ratio("fp32_active", "Share of cycles in which the FP32 pipe was active.", Gpm(nvml.GPM_METRIC_FP32_UTIL)),
    _ratio("fp16_active", "Share of cycles in which the FP16 pipe was active.", Gpm(nvml.GPM_METRIC_FP16_UTIL)),
    _ratio("encoder_utilization", "Share of time in which the video encoder was busy.",
           Call("nvmlDeviceGetEncoderUtilization"), lane=Lane.COLD),
    _ratio("decoder_utilization", "Share of time in which the video decoder was busy.",
           Call("nvmlDeviceGetDecoderUtilization"), lane=Lane.COLD),
)  # fmt: skip

_MEMORY_CALL = "nvmlDeviceGetMemoryInfo_v2"


def _memory(part: str, help: str, shown: Shown = Shown.DEFAULT) -> Metric:
    return gauge(f"coldplate_gpu_memory_{part}_bytes", Gpu, help, Lane.FAST, Call(_MEMORY_CALL, (part,)),
                 span=(0.0, 2.0**44), rolling=part == "used", shown=shown, statistics_shown=Shown.FULL)  # fmt: skip


MEMORY = (
    _memory("used", "Device memory in use, excluding memory reserved by the driver."),
    _memory("free", "Device memory that can be allocated."),
    _memory("reserved", "Device memory reserved by driver and firmware: the total less used and free.", Shown.FULL),
    _memory("total", "Total device memory."),
)  # fmt: skip

WATTS_SPAN = (0.0, 5000.0)
MODULE_SPAN = (0.0, 20_000.0)
"""A module is two GPUs or more with a processor: 2.7 kW on GB200."""
CELSIUS_SPAN = (-20.0, 150.0)

POWER = (
    gauge("coldplate_gpu_power_watts", Gpu,
          "Board power, averaged over 1 s by the driver (Ampere except GA100, and newer).", Lane.FAST,
          Field(nvml.FI_DEV_POWER_AVERAGE, MILLI), Call("nvmlDeviceGetPowerUsage"), span=WATTS_SPAN, rolling=True),
    gauge("coldplate_gpu_power_instant_watts", Gpu, "Board power at the instant of the sample.", Lane.FAST,
          Field(nvml.FI_DEV_POWER_INSTANT, MILLI), span=WATTS_SPAN, rolling=True, statistics_shown=Shown.FULL),
    gauge("coldplate_gpu_module_power_watts", Gpu,
          "Power of the whole module including its CPU; Grace-based boards only.",
          Lane.FAST, Field(nvml.FI_DEV_POWER_INSTANT, MILLI, scope=1), span=MODULE_SPAN),
    gauge("coldplate_gpu_power_limit_watts", Gpu, "Power limit in force.",
          Lane.FAST, Field(nvml.FI_DEV_POWER_CURRENT_LIMIT, MILLI),
          Call("nvmlDeviceGetPowerManagementLimit", lane=Lane.SLOW),
          Call("nvmlDeviceGetEnforcedPowerLimit", lane=Lane.SLOW), span=WATTS_SPAN),
    gauge("coldplate_gpu_power_limit_default_watts", Gpu, "Default power limit of the board.",
          Lane.COLD, Field(nvml.FI_DEV_POWER_DEFAULT_LIMIT, MILLI),
          Call("nvmlDeviceGetPowerManagementDefaultLimit"), span=WATTS_SPAN),
    counter("coldplate_gpu_energy_joules_total", Gpu,
            "Energy since the driver was loaded; continues across driver reloads.",
            Lane.SLOW, Field(nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, MILLI), span=(0, 1e13)),
    gauge("coldplate_gpu_temperature_celsius", Gpu, "Temperature of the GPU core.",
          Lane.FAST, Call("nvmlDeviceGetTemperatureV"), span=CELSIUS_SPAN, rolling=True),
    gauge("coldplate_gpu_memory_temperature_celsius", Gpu, "Temperature of the device memory.",
          Lane.FAST, Field(nvml.FI_DEV_MEMORY_TEMP), span=CELSIUS_SPAN, rolling=True),
    gauge("coldplate_gpu_temperature_margin_celsius", Gpu,
          "Degrees left before the GPU slows itself down; negative above that threshold.",
          Lane.SLOW, Call("nvmlDeviceGetMarginTemperature"), span=(-100, 150)),
    gauge("coldplate_gpu_clock_hertz", Gpu, "Clock of a domain.", Lane.FAST,
          Call("nvmlDeviceGetClockInfo", ("sm",)), Call("nvmlDeviceGetClockInfo", ("graphics",), Lane.COLD),
          Call("nvmlDeviceGetClockInfo", ("memory",), Lane.SLOW),
          Call("nvmlDeviceGetClockInfo", ("video",), Lane.COLD), labels=("domain",), span=(0, 1e10), rolling=True),
    gauge("coldplate_gpu_clock_limit_hertz", Gpu, "Highest possible clock of a domain.",
          Lane.COLD, Call("nvmlDeviceGetMaxClockInfo", ("sm",)), Call("nvmlDeviceGetMaxClockInfo", ("memory",)),
          labels=("domain",), span=(0, 1e10)),
)  # fmt: skip

THROTTLING = (
    state("coldplate_gpu_throttle_active", Gpu,
          "1 while the clocks are reduced for this reason; gpu_idle and sw_power_cap are normal.",
          Lane.FAST, Call("nvmlDeviceGetCurrentClocksEventReasons"), labels=("reason",)),
    state("coldplate_gpu_hw_slowdown_active", Gpu,
          "1 while the hardware itself reduces the clocks: heat, power brake, fast power trigger.",
          Lane.FAST, Call("nvmlDeviceGetCurrentClocksEventReasons", bit=HW_SLOWDOWN)),
    counter("coldplate_gpu_throttle_seconds_total", Gpu,
            "Time in which the clocks were reduced for this reason; reasons that overlap all count.",
            Lane.SLOW, Field(nvml.FI_DEV_PERF_POLICY_POWER, NANO, labels=("sw_power_cap",)),
            Field(nvml.FI_DEV_PERF_POLICY_SYNC_BOOST, NANO, labels=("sync_boost",)),
            Field(nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, NANO, labels=("board_limit",)),
            Field(nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, NANO, labels=("low_utilization",)),
            Field(nvml.FI_DEV_PERF_POLICY_RELIABILITY, NANO, labels=("reliability",)),
            Field(nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, NANO, labels=("sw_thermal_slowdown",)),
            Field(nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, NANO, labels=("hw_thermal_slowdown",)),
            Field(nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, NANO, labels=("hw_power_brake",)),
            labels=("reason",), span=(0, 1e10)),
    counter("coldplate_gpu_thermal_throttle_seconds_total", Gpu,
            "Time in which the clocks were reduced by heat of any kind, even if the driver does not distinguish kinds.",
            Lane.SLOW, Field(nvml.FI_DEV_PERF_POLICY_THERMAL, NANO), span=(0, 1e10)),
)  # fmt: skip

FAULTS = (
    state("coldplate_gpu_ecc_enabled", Gpu, "1 if ECC protects the GPU's memory, 0 if it is switched off.",
          Lane.COLD, Call("nvmlDeviceGetEccMode")),
    counter("coldplate_gpu_ecc_errors_total", Gpu,
            "Memory errors found by ECC since the driver was loaded (NVML: volatile).",
            Lane.SLOW, Field(nvml.FI_DEV_ECC_SBE_VOL_TOTAL, labels=("corrected",)),
            Field(nvml.FI_DEV_ECC_DBE_VOL_TOTAL, labels=("uncorrected",)), labels=("type",), span=(0, 2.0**63)),
    counter("coldplate_gpu_ecc_aggregate_errors_total", Gpu,
            "Memory errors found by ECC over the life of the board (NVML: aggregate), including the volatile ones.",
            Lane.SLOW, Field(nvml.FI_DEV_ECC_SBE_AGG_TOTAL, labels=("corrected",)),
            Field(nvml.FI_DEV_ECC_DBE_AGG_TOTAL, labels=("uncorrected",)), labels=("type",), span=(0, 2.0**63)),
    counter("coldplate_gpu_row_remaps_total", Gpu, "Rows of device memory remapped, by cause.",
            Lane.SLOW, Field(nvml.FI_DEV_REMAPPED_COR, labels=("correctable",)),
            Field(nvml.FI_DEV_REMAPPED_UNC, labels=("uncorrectable",)), labels=("cause",), span=(0, 2.0**32 - 2)),
    state("coldplate_gpu_row_remap_pending", Gpu, "1 if a row remap is pending until a GPU reset.",
          Lane.SLOW, Field(nvml.FI_DEV_REMAPPED_PENDING)),
    state("coldplate_gpu_row_remap_failure", Gpu, "1 if a row remap failed: the GPU must be replaced.",
          Lane.SLOW, Field(nvml.FI_DEV_REMAPPED_FAILURE)),
    counter("coldplate_gpu_xids_total", Gpu,
            "XID errors of all codes reported by the driver since the agent started; exposed from the start, at 0.",
            Lane.EVENT, Source("NVML event set and /dev/kmsg, merged"), span=(0, 1e12)),
    counter("coldplate_gpu_xid_errors_total", Gpu,
            "XID errors reported by the driver since the agent started, by code; `other` after 256 codes on one GPU.",
            Lane.EVENT, Source("NVML event set and /dev/kmsg, merged"), labels=("xid",), span=(0, 1e12),
            shown=Shown.COUNTED),
    counter("coldplate_gpu_xid_graded_errors_total", Gpu,
            "XID errors 144 to 150 (NVLink 5) whose line in the kernel log states a severity: fatal or nonfatal.",
            Lane.EVENT, Source("/dev/kmsg"), labels=("xid", "grade"), span=(0, 1e12)),
    gauge("coldplate_gpu_xid_last_timestamp_seconds", Gpu,
          "Time at which the driver last reported this XID, in seconds since the epoch.",
          Lane.EVENT, Source("NVML event set and /dev/kmsg, merged"), labels=("xid",), span=(0, 1e11)),
    state("coldplate_gpu_recovery_action", Gpu,
          "1 for the action that the driver currently requests, 0 for the others.",
          Lane.SLOW, Field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION), labels=("action",)),
)  # fmt: skip


def _mig_ratio(name: str, help: str) -> Metric:
    return gauge(f"coldplate_gpu_mig_{name}_ratio", Gpu, help, Lane.SLOW, Call("nvmlGpmMigSampleGet"),
                 labels=("mig_uuid", "gpu_instance"), span=(0.0, 1.0))  # fmt: skip


MIG = (
    info("coldplate_gpu_mig_info", Gpu,
         "A MIG instance of the GPU; the GPU's own utilization is unavailable while there is one.",
         Lane.COLD, Call("nvmlDeviceGetMigDeviceHandleByIndex"),
         labels=("mig_uuid", "gpu_instance", "compute_instance", "profile")),
    gauge("coldplate_gpu_mig_memory_used_bytes", Gpu, "Device memory in use by a MIG instance.", Lane.SLOW,
          Call("nvmlDeviceGetMigDeviceHandleByIndex"), labels=("mig_uuid", "gpu_instance"), span=(0.0, 2.0**44)),
    gauge("coldplate_gpu_mig_memory_total_bytes", Gpu, "Total device memory of a MIG instance.", Lane.SLOW,
          Call("nvmlDeviceGetMigDeviceHandleByIndex"), labels=("mig_uuid", "gpu_instance"), span=(0.0, 2.0**44)),
    counter("coldplate_gpu_mig_state_seconds_total", Gpu,
            "Seconds of the GPU instance by what it did, while its activity is known.",
            Lane.FAST, Derived("activity of the instance, and whether a job holds it"),
            labels=("mig_uuid", "gpu_instance", "state")),
    _mig_ratio("utilization", "Share of time in which at least one kernel ran on the GPU instance."),
    _mig_ratio("sm_active", "Share of cycles in which a multiprocessor of the GPU instance had at least one warp, "
               "mean of all of them."),
    _mig_ratio("tensor_active", "Share of cycles in which the tensor pipes of the GPU instance were active."),
    _mig_ratio("dram_active", "Device memory bandwidth that the GPU instance used, as a share of its maximum."),
)  # fmt: skip
