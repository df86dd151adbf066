"""The snapshot as a collector of the official client library, through which `coldplate once --textfile` writes.

The daemon itself must not import this module: prometheus_client costs about 14 MiB of memory, and its pages take twenty
times as long.
"""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.registry import Collector

from agent.model import Snapshot
from exporters.encoder import group, labels_of, openmetrics_kinds, openmetrics_unit


class SnapshotCollector(Collector):
    """Yields the families of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[ClientMetric]:
        readings = tuple(self._snapshot)
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
    registry.register(SnapshotCollector(snapshot))
    write_to_textfile(str(path), registry)
