"""OpenTelemetry's names of coldplate's metrics, as a table: those that its semantic conventions define.

Every other metric keeps its own name. Sources: https://opentelemetry.io/docs/specs/semconv/hardware/ and
https://opentelemetry.io/docs/specs/semconv/system/; the tests hold the table against the package of the conventions.
"""

from enum import Enum
from typing import NamedTuple

from agent.model import Gpu, IbPort, Kind, Labels, Metric, Series, Unit
from exporters.encoder import labels_of


class Instrument(Enum):
    """The kinds of instruments, by OpenTelemetry's names."""

    GAUGE = "gauge"
    COUNTER = "counter"
    UPDOWNCOUNTER = "updowncounter"
    """A sum that may fall: values of several series may be added up."""


class OtlpName(NamedTuple):
    """A name, and what belongs to it. `renamed` are our labels under the conventions' names."""

    name: str
    instrument: Instrument
    unit: str
    attributes: Labels = ()
    renamed: Labels = ()
    sensor: str = ""
    """Where a sensor is that is a component of its own, and not the GPU that it is in."""


UCUM = {
    Unit.CELSIUS: "Cel", Unit.WATTS: "W", Unit.JOULES: "J", Unit.BYTES: "By", Unit.SECONDS: "s", Unit.HERTZ: "Hz",
    Unit.LITERS: "L", Unit.PASCALS: "Pa", Unit.VOLTS: "V", Unit.AMPERES: "A", Unit.RATIO: "1", Unit.NONE: "",
}  # fmt: skip
"""Our units as https://ucum.org writes them; a number of things has none."""
_GAUGE, _COUNTER, _SUM = Instrument
_GPU = (("hw.type", "gpu"),)
_PORT = (("hw.type", "network"),)
_SENT, _GOT = (("network.io.direction", "transmit"),), (("network.io.direction", "receive"),)
_INTERFACE = (("device", "network.interface.name"),)
_DISK = (("device", "system.device"),)
_MOUNT = (("mountpoint", "system.filesystem.mountpoint"),)
_USED = (("system.filesystem.state", "used"),)


def _task(task: str) -> OtlpName:
    return OtlpName("hw.gpu.utilization", _GAUGE, "1", (*_GPU, ("hw.gpu.task", task)))


def _total(name: str, unit: str, attributes: Labels = (), renamed: Labels = ()) -> OtlpName:
    return OtlpName(name, _COUNTER, unit, attributes, renamed)


CONVENTIONS = {
    "coldplate_gpu_utilization_ratio": _task("general"),
    "coldplate_gpu_encoder_utilization_ratio": _task("encoder"),
    "coldplate_gpu_decoder_utilization_ratio": _task("decoder"),
    "coldplate_gpu_memory_used_bytes": OtlpName("hw.gpu.memory.usage", _SUM, "By", _GPU),
    "coldplate_gpu_memory_total_bytes": OtlpName("hw.gpu.memory.limit", _SUM, "By", _GPU),
    "coldplate_gpu_power_watts": OtlpName("hw.power", _GAUGE, "W", _GPU),
    "coldplate_gpu_energy_joules_total": _total("hw.energy", "J", _GPU),
    "coldplate_gpu_temperature_celsius": OtlpName("hw.temperature", _GAUGE, "Cel", sensor="GPU"),
    "coldplate_gpu_memory_temperature_celsius": OtlpName("hw.temperature", _GAUGE, "Cel", sensor="GPU_MEMORY"),
    "coldplate_gpu_pcie_transmit_bytes_total": _total("hw.gpu.io", "By", (*_GPU, *_SENT)),
    "coldplate_gpu_pcie_receive_bytes_total": _total("hw.gpu.io", "By", (*_GPU, *_GOT)),
    "coldplate_infiniband_port_up": OtlpName("hw.network.up", _SUM, "1", _PORT),
    "coldplate_infiniband_port_data_transmitted_bytes_total": _total("hw.network.io", "By", (*_PORT, *_SENT)),
    "coldplate_infiniband_port_data_received_bytes_total": _total("hw.network.io", "By", (*_PORT, *_GOT)),
    "coldplate_node_power_watts": OtlpName("hw.host.power", _GAUGE, "W", (("hw.id", "host"),)),
    "coldplate_node_cpu_seconds_total": _total("system.cpu.time", "s", (), (("mode", "cpu.mode"),)),
    "coldplate_node_cpus": OtlpName("system.cpu.logical.count", _SUM, "{cpu}"),
    "coldplate_node_memory_total_bytes": OtlpName("system.memory.limit", _SUM, "By"),
    "coldplate_node_memory_used_bytes": OtlpName("system.memory.usage", _SUM, "By", (("system.memory.state", "used"),)),
    "coldplate_node_memory_available_bytes": OtlpName("system.memory.linux.available", _SUM, "By"),
    "coldplate_node_disk_read_bytes_total": _total("system.disk.io", "By", (("disk.io.direction", "read"),), _DISK),
    "coldplate_node_disk_written_bytes_total": _total("system.disk.io", "By", (("disk.io.direction", "write"),), _DISK),
    "coldplate_node_filesystem_size_bytes": OtlpName("system.filesystem.limit", _SUM, "By", (), _MOUNT),
    "coldplate_node_filesystem_used_bytes": OtlpName("system.filesystem.usage", _SUM, "By", _USED, _MOUNT),
    "coldplate_node_network_receive_bytes_total": _total("system.network.io", "By", _GOT, _INTERFACE),
    "coldplate_node_network_transmit_bytes_total": _total("system.network.io", "By", _SENT, _INTERFACE),
    "coldplate_node_network_receive_errors_total": _total("system.network.errors", "{error}", _GOT, _INTERFACE),
    "coldplate_node_network_transmit_errors_total": _total("system.network.errors", "{error}", _SENT, _INTERFACE),
    "coldplate_node_network_receive_drops_total": _total("system.network.packet.dropped", "{packet}", _GOT, _INTERFACE),
    "coldplate_node_network_transmit_drops_total": _total(
        "system.network.packet.dropped", "{packet}", _SENT, _INTERFACE
    ),
}
"""By our names. Minimum, mean and maximum of a row have no counterpart, and keep their own names."""


def name_of(row: Metric) -> OtlpName:
    """Return what a row is called."""
    known = CONVENTIONS.get(row.name)
    if known is not None:
        return known
    instrument = Instrument.COUNTER if row.kind is Kind.COUNTER else Instrument.GAUGE
    return OtlpName(row.name, instrument, UCUM[row.unit])


def attributes_of(series: Series, name: OtlpName) -> dict[str, str]:
    """Return the attributes of a series under that name; under its own name it keeps its labels."""
    if series.metric.name not in CONVENTIONS:
        return {label: value for label, value in labels_of(series) if value}
    renamed = dict(name.renamed)
    attributes = {renamed.get(label, label): value for label, value in series.labels if value}
    return {**attributes, **_component(series, name.sensor), **dict(name.attributes)}


def _component(series: Series, sensor: str) -> dict[str, str]:
    """Return which component of the host it is. A GPU is known by its UUID, a port by device and port."""
    entity = series.entity
    if isinstance(entity, IbPort):
        return {"hw.id": f"{entity.device}/{entity.port}", "hw.name": entity.device}
    if not isinstance(entity, Gpu):
        return {}
    if sensor:
        location = {"hw.parent": entity.uuid, "hw.sensor_location": sensor}
        return {"hw.id": f"{entity.uuid}/{sensor}", "hw.name": f"GPU {entity.index}", **location}
    return {"hw.id": entity.uuid, "hw.name": f"GPU {entity.index}"}
