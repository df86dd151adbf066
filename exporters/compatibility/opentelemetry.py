"""OpenTelemetry's semantic conventions for hardware, as its exporter for Prometheus writes their names.

opentelemetry.io/docs/specs/semconv/hardware, in development, as of November 2026. Units become suffixes, dots
underscores, and what both rises and falls is a gauge.
"""

from agent.model import Gpu, Kind, Labels, Node, Series
from exporters.compatibility.foreign_names import ForeignName, ForeignProfile, KnownNode, Term, counter, gauge

_LABELS = ("hw_id", "hw_type", "hw_name", "hw_model", "hw_vendor", "hw_serial_number", "hw_driver_version",
           "hw_firmware_version", "hw_gpu_task", "network_io_direction", "error_type",
           "hw_sensor_location")  # fmt: skip
_TASKS = {"coldplate_gpu_utilization_ratio": "general", "coldplate_gpu_encoder_utilization_ratio": "encoder",
          "coldplate_gpu_decoder_utilization_ratio": "decoder"}  # fmt: skip
_DIRECTIONS = {f"coldplate_gpu_pcie_{way}_bytes_total": way for way in ("transmit", "receive")}
_ERRORS = "coldplate_gpu_ecc_errors_total"
_SENSORS = {"coldplate_gpu_temperature_celsius": "core", "coldplate_gpu_memory_temperature_celsius": "memory"}
_NAMES = (
    *(gauge("hw_gpu_utilization_ratio", "Fraction of time that the GPU is busy with the task.", Term(row))
      for row in _TASKS),
    gauge("hw_gpu_memory_usage_bytes", "GPU memory used.", Term("coldplate_gpu_memory_used_bytes")),
    gauge("hw_gpu_memory_limit_bytes", "Size of the GPU memory.", Term("coldplate_gpu_memory_total_bytes")),
    ForeignName("hw_gpu_memory_utilization_ratio", Kind.GAUGE, "Fraction of GPU memory used.",
                (Term("coldplate_gpu_memory_used_bytes"),), divisor=(Term("coldplate_gpu_memory_total_bytes"),)),
    *(counter("hw_gpu_io_bytes_total", "Received and transmitted bytes by the GPU.", Term(row), note="over PCIe")
      for row in _DIRECTIONS),
    counter("hw_errors_total", "Number of errors encountered by the component.", Term(_ERRORS),
            note="ECC errors: corrected and uncorrected"),
    counter("hw_energy_joules_total", "Energy consumed by the component.", Term("coldplate_gpu_energy_joules_total")),
    gauge("hw_power_watts", "Instantaneous power consumed by the component.", Term("coldplate_gpu_power_watts")),
    gauge("hw_host_power_watts", "Instantaneous power consumed by the entire physical host.",
          Term("coldplate_node_power_watts"), note="of the source that is read first"),
    *(gauge("hw_temperature_celsius", "Temperature in degrees Celsius.", Term(row)) for row in _SENSORS),
)  # fmt: skip


def labelling(facts: KnownNode, series: Series, name: str) -> Labels | None:
    """Return the attributes of a component, in the conventions' order. An empty one is left out."""
    gpu, row = series.entity, series.metric.name
    if isinstance(gpu, Node) and name == "hw_host_power_watts":
        return (("hw_id", facts.host),)
    if not isinstance(gpu, Gpu):
        return None
    info = facts.known_gpu(gpu).info
    pairs = (
        ("hw_id", gpu.uuid or gpu.index),
        ("hw_type", "gpu"),
        ("hw_name", f"GPU {gpu.index}"),
        ("hw_model", info.get("model", "")),
        ("hw_vendor", "NVIDIA"),
        ("hw_serial_number", info.get("serial", "")),
        ("hw_driver_version", info.get("driver_version", "")),
        ("hw_firmware_version", info.get("vbios", "")),
        ("hw_gpu_task", _TASKS.get(row, "")),
        ("network_io_direction", _DIRECTIONS.get(row, "")),
        ("error_type", dict(series.labels).get("type", "") if row == _ERRORS else ""),
        ("hw_sensor_location", _SENSORS.get(row, "")),
    )
    return tuple(pair for pair in pairs if pair[1])


PROFILE = ForeignProfile(
    "opentelemetry", "OpenTelemetry's conventions for hardware", ("hw_",), _NAMES, labelling, _LABELS
)
