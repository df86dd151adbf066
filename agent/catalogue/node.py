"""The rows of the node: few on purpose, since node_exporter describes a host in full.

They are what the rules need to distinguish a slow GPU from a node that starves it.
"""

from agent.catalogue.bindings import (
    GPU_SECONDS,
    NODE_WATTS,
    PACKETS,
    PROCESSORS,
    Derived,
    Source,
    counter,
    gauge,
    info,
    state,
)
from agent.model import Lane, Metric, Node, Shown

PROCESSOR = (
    counter("coldplate_node_cpu_seconds_total", Node,
            "Time that all processors together spent in each mode; guest time is part of user and nice.",
            Lane.SLOW, Source("/proc/stat"), labels=("mode",), span=(0, 1e13), growth=PROCESSORS),
    gauge("coldplate_node_cpus", Node, "Logical processors online.",
          Lane.SLOW, Source("sysconf(_SC_NPROCESSORS_ONLN)"), span=(1, 1e5)),
    *(gauge(f"coldplate_node_load{minutes}", Node,
            f"Load average over {minutes} minute{'s' * (minutes > 1)}: tasks that run, are ready to run, or wait "
            "uninterruptibly.", Lane.SLOW, Source("/proc/loadavg"), span=(0, 1e7)) for minutes in (1, 5, 15)),
    counter("coldplate_node_pressure_waiting_seconds_total", Node, "Time in which some tasks waited for the resource.",
            Lane.SLOW, Source("/proc/pressure/RESOURCE: some"), labels=("resource",), span=(0, 1e10)),
    counter("coldplate_node_pressure_stalled_seconds_total", Node,
            "Time in which all non-idle tasks waited for the resource: part of the waiting time.",
            Lane.SLOW, Source("/proc/pressure/RESOURCE: full"), labels=("resource",), span=(0, 1e10)),
)  # fmt: skip

MEMORY = (
    gauge("coldplate_node_memory_total_bytes", Node, "Memory of the node.",
          Lane.SLOW, Source("/proc/meminfo: MemTotal"), span=(0, 2.0**60)),
    gauge("coldplate_node_memory_available_bytes", Node,
          "Memory available to programs without swapping, as estimated by the kernel.",
          Lane.SLOW, Source("/proc/meminfo: MemAvailable"), span=(0, 2.0**60)),
    gauge("coldplate_node_memory_used_bytes", Node, "Memory that is not available: total minus available.",
          Lane.SLOW, Source("/proc/meminfo: MemTotal, MemAvailable"), span=(0, 2.0**60)),
    gauge("coldplate_node_swap_used_bytes", Node, "Swap space in use.",
          Lane.SLOW, Source("/proc/meminfo: SwapTotal, SwapFree"), span=(0, 2.0**60)),
)  # fmt: skip

MEMORY_ERRORS = (
    counter("coldplate_node_memory_errors_total", Node,
            "Errors of the node's memory that the kernel counted, of all controllers; type is corrected or "
            "uncorrected.", Lane.SLOW, Source("/sys/devices/system/edac/mc/mc*: ce_count, ue_count"), labels=("type",),
            span=(0, 2.0**63)),
    counter("coldplate_node_dimm_errors_total", Node,
            "Errors of one memory module that the kernel counted; slot is as the kernel or the firmware calls it.",
            Lane.SLOW, Source("/sys/devices/system/edac/mc/mc*/dimm*: dimm_ce_count, dimm_ue_count, dimm_label"),
            labels=("controller", "dimm", "slot", "type"), span=(0, 2.0**63), shown=Shown.FULL),
)  # fmt: skip

FAULTS = (
    state("coldplate_node_mount_up", Node,
          "1 if the network or FUSE filesystem answers, 0 if it does not, or its server is gone.", Lane.COLD,
          Source("statvfs of what /proc/self/mounts lists, in a thread of its own"), labels=("mountpoint", "fstype")),
    gauge("coldplate_node_processes_stuck", Node,
          "Processes that have been in uninterruptible sleep for two minutes, without running once.",
          Lane.COLD, Source("/proc/PID/stat and status, while /proc/stat counts blocked tasks"), span=(0, 1e6)),
    state("coldplate_node_fabric_manager_up", Node,
          "1 if NVIDIA's Fabric Manager runs, 0 if not; only where NVSwitches are devices of the host.",
          Lane.COLD, Source("/proc/PID/comm, /proc/driver/nvidia-nvswitch/devices")),
    state("coldplate_node_peermem_loaded", Node,
          "1 if nvidia_peermem is loaded, 0 if not; only with InfiniBand. Newer stacks do RDMA to GPUs by dma-buf.",
          Lane.COLD, Source("/sys/module/nvidia_peermem")),
)  # fmt: skip

STORAGE = (
    counter("coldplate_node_disk_read_bytes_total", Node, "Bytes read from a physical disk.",
            Lane.SLOW, Source("/proc/diskstats"), labels=("device",), span=(0, 2.0**74)),
    counter("coldplate_node_disk_written_bytes_total", Node, "Bytes written to a physical disk.",
            Lane.SLOW, Source("/proc/diskstats"), labels=("device",), span=(0, 2.0**74)),
    gauge("coldplate_node_filesystem_size_bytes", Node, "Size of a filesystem on a local disk.",
          Lane.SLOW, Source("statvfs"), labels=("mountpoint",), span=(0, 2.0**63)),
    gauge("coldplate_node_filesystem_used_bytes", Node, "Bytes in use on a filesystem on a local disk.",
          Lane.SLOW, Source("statvfs"), labels=("mountpoint",), span=(0, 2.0**63)),
)  # fmt: skip


def _network(stem: str, help: str) -> Metric:
    return counter(f"coldplate_node_network_{stem}_total", Node, help, Lane.SLOW, Source("/proc/net/dev"),
                   labels=("device",), span=(0, 2.0**63), growth=PACKETS)  # fmt: skip


NETWORK = (
    counter("coldplate_node_network_receive_bytes_total", Node,
            "Bytes received by a physical network interface; RDMA traffic is not included.",
            Lane.SLOW, Source("/proc/net/dev"), labels=("device",), span=(0, 2.0**74)),
    counter("coldplate_node_network_transmit_bytes_total", Node,
            "Bytes sent by a physical network interface; RDMA traffic is not included.",
            Lane.SLOW, Source("/proc/net/dev"), labels=("device",), span=(0, 2.0**74)),
    _network("receive_errors", "Packets that a physical network interface received with an error."),
    _network("transmit_errors", "Packets that a physical network interface could not send because of an error."),
    _network("receive_drops", "Received packets that a physical network interface dropped."),
    _network("transmit_drops", "Outgoing packets that a physical network interface dropped."),
)  # fmt: skip

IDENTITY = (
    gauge("coldplate_node_boot_timestamp_seconds", Node, "Boot time of the node, in seconds since the epoch.",
          Lane.SLOW, Source("/proc/stat: btime"), span=(0, 1e11)),
    info("coldplate_node_info", Node, "The node's kernel release and machine architecture.",
         Lane.SLOW, Source("uname"), labels=("kernel", "machine")),
)  # fmt: skip

NODE_POWER = gauge("coldplate_node_power_watts", Node,
                   "Power of the whole node, by source; source 'estimate' is computed from GPU power, not measured.",
                   Lane.FAST, Source("redfish, ipmi, hwmon or estimate"), labels=("source",), span=(0, 1e6),
                   rolling=True)  # fmt: skip

NODE_POWER_FALLBACK = state("coldplate_node_power_fallback", Node,
                            "1 while an estimate replaces a node power meter that used to answer, 0 while the "
                            "meter answers.", Lane.FAST, Derived("sources of coldplate_node_power_watts"))  # fmt: skip
POWER = (NODE_POWER, NODE_POWER_FALLBACK)


def _metered(part: str, help: str, *labels: str) -> Metric:
    return gauge(f"coldplate_node_{part}_power_watts", Node, help, Lane.FAST,
                 Source("hwmon: ACPI power meters with a name"), labels=(*labels, "socket"), span=(0, 1e5))  # fmt: skip


def _rapl(part: str, help: str) -> Metric:
    return counter(f"coldplate_node_rapl_{part}energy_joules_total", Node, help,
                   Lane.FAST, Source("/sys/class/powercap/intel-rapl:*/energy_uj"), labels=("domain",),
                   span=(0, 1e14), growth=NODE_WATTS)  # fmt: skip


METERS = (
    _metered("module", "Power of a Grace module with its GPUs, including the processor and all its parts."),
    _metered("grace", "Power of a Grace processor with its memory, including its parts."),
    _metered("component", "Power of a measured part of the node, such as cpu and sysio of a Grace.", "component"),
)
"""Parts and what contains them have different metrics, so that no sum over a metric's series counts a watt twice."""

RAPL = (
    _rapl("", "Energy of processor packages, and of memory that is measured separately."),
    _rapl("part_", "Energy of a part of a processor package, core or uncore; included in the package's energy."),
    _rapl("platform_", "Energy of the whole platform as measured by the processor (psys), including the packages."),
)

GPU_SUMS = (
    gauge("coldplate_node_gpus_up", Node, "GPUs of this node that answer.",
          Lane.FAST, Derived("sum of coldplate_gpu_up"), span=(0, 1024)),
    gauge("coldplate_node_gpu_power_mean_watts", Node, "Power of the node's GPUs together, mean of the last minute.",
          Lane.FAST, Derived("sum of coldplate_gpu_power_mean_watts"), span=(0, 1e6)),
    gauge("coldplate_node_gpu_utilization_mean_ratio", Node,
          "Utilization of the node's GPUs: mean of all, and of the last minute.",
          Lane.FAST, Derived("mean of coldplate_gpu_utilization_mean_ratio"), span=(0, 1)),
    gauge("coldplate_node_gpu_temperature_margin_celsius", Node,
          "The least margin of the node's GPUs to the temperature at which they slow down.",
          Lane.FAST, Derived("minimum of coldplate_gpu_temperature_margin_celsius"), span=(-200, 200)),
    counter("coldplate_node_gpu_throttle_seconds_total", Node,
            "Time in which clocks were reduced for this abnormal reason, added up over GPUs since the agent started.",
            Lane.FAST, Derived("growth of coldplate_gpu_throttle_seconds_total"), labels=("reason",),
            span=(0, 1e12), growth=GPU_SECONDS),
    counter("coldplate_node_gpu_throttle_any_reason_seconds_total", Node,
            "Time in which clocks were reduced for any abnormal reason, once for each GPU where reasons overlap.",
            Lane.FAST, Derived("growth of coldplate_gpu_throttle_seconds_total"), span=(0, 1e12), growth=GPU_SECONDS),
)  # fmt: skip
"""What a server of many nodes reads in place of each GPU."""

NVSWITCH = (
    counter(
        "coldplate_node_nvswitch_sxid_errors_total",
        Node,
        "SXid errors of NVSwitches in the kernel log, by code (`other` after 2,048); fatal, nonfatal or unknown.",
        Lane.FAST,
        Source("/dev/kmsg"),
        labels=("pci", "sxid", "grade"),
        span=(0, 1e12),
    ),
)

GPU_DRIVER_ERRORS = (
    counter("coldplate_node_gpu_driver_errors_total", Node,
            "Lines of the kernel log about a GPU that the driver could not take: fallen_off_bus, init_failed or "
            "probe_failed.",
            Lane.FAST, Source("/dev/kmsg"), labels=("pci", "error"), span=(0, 1e12)),
)  # fmt: skip
