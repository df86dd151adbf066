"""node_exporter's InfiniBand collector, version 1.11: our rows have its suffixes and its units."""

from agent.catalogue.infiniband import FILES, INFO, PREFIX
from agent.model import IbPort, Kind, Labels, Metric, Series
from exporters.compatibility.foreign_names import ForeignName, ForeignProfile, KnownNode, Term

_INFO_LABELS = ("board_id", "firmware_version", "hca_type")


def _name(row: Metric) -> ForeignName:
    kind = Kind.COUNTER if row.kind is Kind.COUNTER else Kind.GAUGE
    return ForeignName(f"node_infiniband_{row.name.removeprefix(PREFIX)}", kind, row.help, (Term(row.name),))


def labelling(facts: KnownNode, series: Series, name: str) -> Labels | None:  # noqa: ARG001 every profile gets them
    """Return device and port; for the info of an adapter only the device, so that two ports make one series."""
    port = series.entity
    if not isinstance(port, IbPort):
        return None
    if series.metric is not INFO:
        return (("device", port.device), ("port", port.port))
    own = dict(series.labels)
    return (("device", port.device), *((name, own.get(name, "")) for name in _INFO_LABELS))


PROFILE = ForeignProfile(
    "node_infiniband",
    "node_exporter's InfiniBand collector",
    ("node_infiniband_",),
    (_name(INFO), *map(_name, FILES)),
    labelling,
    ("device", "port", *_INFO_LABELS),
)
