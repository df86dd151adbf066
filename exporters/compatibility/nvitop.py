"""nvitop-exporter, version 1.7: its units are in the names, and everything is a gauge, even what only grows."""

from agent.model import Gpu, Labels, Node, Series
from exporters.compatibility.foreign_names import (
    MHZ,
    MIB,
    PERCENT,
    ForeignName,
    ForeignProfile,
    KnownNode,
    NotServed,
    Term,
    gauge,
)

_LABELS = ("hostname", "index", "devicename", "uuid", "interface", "partition", "mountpoint")
_PARTS = {"host_net": "interface", "host_disk_io": "partition", "host_disk_usage": "mountpoint"}


def _divided(name: str, help: str, dividend: str, divisor: str) -> ForeignName:
    terms = (Term(dividend, factor=PERCENT),)
    return ForeignName(name, gauge(name, help).kind, help, terms, divisor=(Term(divisor),))


def _ratio(field: str, help: str, row: str) -> ForeignName:
    return gauge(f"gpu_{field}_Percentage", f"{help} (%)", Term(row, factor=PERCENT), rounding=round)


def _mebibytes(name: str, help: str, row: str) -> ForeignName:
    return gauge(f"{name}_MiB", f"{help} (MiB)", Term(row, factor=MIB))


_GPU = (
    _ratio("utilization", "GPU utilization", "coldplate_gpu_utilization_ratio"),
    _ratio("memory_utilization", "GPU memory utilization", "coldplate_gpu_memory_activity_ratio"),
    _ratio("encoder_utilization", "GPU encoder utilization", "coldplate_gpu_encoder_utilization_ratio"),
    _ratio("decoder_utilization", "GPU decoder utilization", "coldplate_gpu_decoder_utilization_ratio"),
    *(_mebibytes(f"gpu_memory_{part}", f"GPU memory {part}", f"coldplate_gpu_memory_{part}_bytes")
      for part in ("total", "used", "free")),
    _divided("gpu_memory_percent_Percentage", "GPU memory percent (%)", "coldplate_gpu_memory_used_bytes",
             "coldplate_gpu_memory_total_bytes"),
    *(gauge(f"gpu_clock_{domain}_MHz", f"GPU {domain} clock (MHz)",
            Term("coldplate_gpu_clock_hertz", (domain,), MHZ), rounding=round)
      for domain in ("sm", "memory", "graphics", "video")),
    gauge("gpu_power_usage_W", "GPU power usage (W)", Term("coldplate_gpu_power_watts")),
    gauge("gpu_power_limit_W", "GPU power limit (W)", Term("coldplate_gpu_power_limit_watts")),
    gauge("gpu_temperature_C", "GPU temperature (C)", Term("coldplate_gpu_temperature_celsius")),
    *(gauge(f"gpu_pcie_{way}_throughput_MiBps", f"GPU PCIe {way} throughput (MiB/s)",
            Term(f"coldplate_gpu_pcie_{word}_bytes_total", factor=MIB, rate=True), note="over the last 10 s")
      for way, word in (("tx", "transmit"), ("rx", "receive"))),
    *(gauge(f"gpu_nvlink_total_{way}_throughput_MiBps", f"GPU total NVLink {way} throughput (MiB/s)",
            Term(f"coldplate_gpu_nvlink_{word}_bytes_total", factor=MIB, rate=True), note="over the last 10 s")
      for way, word in (("tx", "transmit"), ("rx", "receive"))),
)  # fmt: skip

_HOST = (
    _mebibytes("host_virtual_memory_total", "Host virtual memory total", "coldplate_node_memory_total_bytes"),
    _divided("host_virtual_memory_percent_Percentage", "Host virtual memory percent (%)",
             "coldplate_node_memory_used_bytes", "coldplate_node_memory_total_bytes"),
    _mebibytes("host_swap_memory_used", "Host swap memory used", "coldplate_node_swap_used_bytes"),
    *(gauge(f"host_load_average_{minutes}m_Percentage", f"Host load average for the last {minutes} minute(s) (%)",
            Term(f"coldplate_node_load{minutes}"), note="the load itself, as there, whatever the name says")
      for minutes in (1, 5, 15)),
    *(_mebibytes(f"host_net_io_{way}_data", f"Host network I/O {way} data",
                 f"coldplate_node_network_{word}_bytes_total")
      for way, word in (("tx", "transmit"), ("rx", "receive"))),
    *(_mebibytes(f"host_disk_io_{way}_data", f"Host disk I/O {way} data", f"coldplate_node_disk_{word}_bytes_total")
      for way, word in (("read", "read"), ("write", "written"))),
    _mebibytes("host_disk_usage_total", "Host disk usage total", "coldplate_node_filesystem_size_bytes"),
    _mebibytes("host_disk_usage_used", "Host disk usage used", "coldplate_node_filesystem_used_bytes"),
)  # fmt: skip

_PROCESSES = "processes come and go, and their series with them; jobs have series instead"
NOT_SERVED = (
    NotServed("host_uptime_Second", "it is the time since a moment that is served",
              "time() - coldplate_node_boot_timestamp_seconds"),
    NotServed("host_cpu_percent_Percentage", "a rate belongs into the query",
              'avg without (mode) (1 - rate(coldplate_node_cpu_seconds_total{mode="idle"}[1m]) / '
              "ignoring (mode) coldplate_node_cpus)"),
    NotServed("host_virtual_memory_free_MiB", "it leaves out what the kernel would give back at once",
              "coldplate_node_memory_available_bytes"),
    NotServed("host_virtual_memory_used_MiB", "it leaves out buffers and caches, which the agent does not read",
              "coldplate_node_memory_used_bytes"),
    NotServed("host_swap_memory_total_MiB", "the agent reads what is used", "coldplate_node_swap_used_bytes"),
    NotServed("host_swap_memory_free_MiB", "the agent reads what is used", "coldplate_node_swap_used_bytes"),
    NotServed("host_swap_memory_percent_Percentage", "the agent reads what is used", "coldplate_node_swap_used_bytes"),
    NotServed("host_net_io_tx_packets_Packet", "the agent reads bytes, errors and drops",
              "coldplate_node_network_transmit_bytes_total"),
    NotServed("host_net_io_rx_packets_Packet", "the agent reads bytes, errors and drops",
              "coldplate_node_network_receive_bytes_total"),
    NotServed("host_disk_usage_free_MiB", "the agent reads size and use",
              "coldplate_node_filesystem_size_bytes - coldplate_node_filesystem_used_bytes"),
    NotServed("host_disk_usage_percent_Percentage", "the agent reads size and use",
              "coldplate_node_filesystem_used_bytes / coldplate_node_filesystem_size_bytes"),
    NotServed("gpu_fan_speed_Percentage", "the agent reads no fans: the GPUs of its nodes have none"),
    *(NotServed(f"gpu_nvlink_{part}{way}_throughput_MiBps", "the agent reads the sum over all links",
                f"rate(coldplate_gpu_nvlink_{word}_bytes_total[1m])")
      for part in ("mean_", "") for way, word in (("tx", "transmit"), ("rx", "receive"))),
    NotServed("process_info_info", _PROCESSES, "coldplate_gpu_job_info"),
    NotServed("process_running_time_Second", _PROCESSES, "coldplate_job_start_timestamp_seconds"),
    *(NotServed(f"process_{field}", _PROCESSES, "coldplate_gpu_job_info")
      for field in ("cpu_percent_Percentage", "rss_memory_MiB", "memory_percent_Percentage", "gpu_memory_MiB",
                   "gpu_sm_utilization_Percentage", "gpu_memory_utilization_Percentage",
                   "gpu_encoder_utilization_Percentage", "gpu_decoder_utilization_Percentage")),
)  # fmt: skip


def labelling(facts: KnownNode, series: Series, name: str) -> Labels | None:
    """Return the host's name; for a GPU also its index, model and UUID, and for a part of the host the part's name."""
    host = ("hostname", facts.host)
    entity = series.entity
    if isinstance(entity, Gpu):
        model = facts.known_gpu(entity).info.get("model", "")
        return (host, ("index", entity.index), ("devicename", model), ("uuid", entity.uuid))
    part = next((label for prefix, label in _PARTS.items() if name.startswith(prefix)), "")
    return (host, *((part, value) for _, value in series.labels)) if isinstance(entity, Node) else None


PROFILE = ForeignProfile(
    "nvitop", "nvitop-exporter", ("gpu_", "host_", "process_"), (*_GPU, *_HOST), labelling, _LABELS, NOT_SERVED
)
