"""The snapshot as a collector of the official client library, for programs that already serve one.

`coldplate once --textfile` writes through it as well. The daemon itself must not import this module:
prometheus_client costs about 14 MiB of memory, and its pages take twenty times as long.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.registry import Collector

from agent.model import Snapshot
from exporters.encoder import group, labels_of, openmetrics_kinds, openmetrics_unit


class SnapshotCollector(Collector):
    """Yields the families of the latest snapshot; nothing before the first one."""

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest

    def describe(self) -> Iterator[ClientMetric]:
        """Return nothing: the families are known only once there is a sample."""
        return iter(())

    def collect(self) -> Iterator[ClientMetric]:
        snapshot = self._latest()
        if snapshot is None:
            return
        readings = tuple(snapshot)
        families = group([reading.series for reading in readings])
        kinds = openmetrics_kinds(family.metric for family in families)
        for family, (name, kind) in zip(families, kinds, strict=True):
            row = family.metric
            exposed = ClientMetric(name, row.help, kind, openmetrics_unit(row, name))
            for place in family.members:
                series, value = readings[place]
                exposed.add_sample(row.name, dict(labels_of(series)), value)
            yield exposed


def write_textfile(snapshot: Snapshot, path: str | Path) -> None:
    """Write the snapshot for node_exporter's textfile collector, replacing the file in one step.

    The age of the sample is left out, since it would not grow. node_exporter shows the age of the file,
    as node_textfile_mtime_seconds.
    """
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshot))
    write_to_textfile(str(path), registry)
