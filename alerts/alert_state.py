"""Write and read the state of alerts and windows, so that a restart or a crash neither forgets nor repeats an incident.

The file of the alerts is a line with the format and a checksum, then JSON. It is replaced atomically; a damaged one is
set aside, never fatal. Its age shows how long the agent was down, and that time does not count as pending.

The file of the windows lets rules see after a restart what they saw before it, with a gap as long as it took: a line
with the format and a checksum, a line of JSON that names the series, and then times and values of each as doubles of
this machine.
"""

from __future__ import annotations

import json
import logging
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field

from agent.lib.state_files import DamagedError, seal, unseal
from agent.model import Alert, Labels, Phase
from alerts.lifecycle import AlertRecord, moved
from alerts.rulefile import Identity

log = logging.getLogger("coldplate.rules")

T = TypeVar("T")

FORMAT = "coldplate-alerts-1"
OUTAGE_TOLERANCE_SECONDS = 3600.0
"""Seconds of downtime after which alerts start again, as Prometheus's --rules.alert.for-outage-tolerance."""

Records = Mapping[str, Mapping[Identity, Mapping[Labels, AlertRecord]]]
"""Records by the group's name, the rule's identity and the alert's labels."""


class Saved(Struct, frozen=True):
    """The state of all groups at a wall second. `source` names the devices: a drill's alerts are not the node's."""

    at: float
    source: str
    records: Records = field(default_factory=dict)
    notified: frozenset[str] = frozenset()
    """Addresses of the receivers that are notified once, and that had received everything."""
    effects: Mapping[Labels, Labels] = field(default_factory=dict)
    """The labels of alerts that were inhibited when they began, with those of their causes."""

    @property
    def count(self) -> int:
        return sum(1 for _ in self.all())

    def all(self) -> Iterator[tuple[str, Identity, AlertRecord]]:
        """Yield the group, the rule and the record of each alert."""
        for group, rules in self.records.items():
            for identity, alerts in rules.items():
                for record in alerts.values():
                    yield group, identity, record


def encode(
    at: float,
    source: str,
    records: Iterable[tuple[str, Identity, AlertRecord]],
    notified: Iterable[str] = (),
    effects: Mapping[Labels, Labels] = MappingProxyType({}),
) -> bytes:
    """Return the content of a state file."""
    rows = [_row(group, identity, record) for group, identity, record in records]
    document = {"at": at, "source": source, "told": sorted(notified), "effects": list(effects.items()), "alerts": rows}
    text = json.dumps(document, indent=1)
    return seal(FORMAT, text.encode("ascii") + b"\n")


def decode(content: bytes) -> Saved:
    """Return the content of a state file, decoded. Raises DamagedError."""
    body = unseal(FORMAT, content)
    try:
        document = json.loads(body)
        records: dict[str, dict[Identity, dict[Labels, AlertRecord]]] = {}
        for row in document["alerts"]:
            record = _record(row)
            identity = (str(row["rule"]), _pairs(row["rule_labels"]))
            records.setdefault(str(row["group"]), {}).setdefault(identity, {})[record.alert.labels] = record
        notified = frozenset(str(url) for url in document.get("told", ()))
        effects = {_pairs(labels): _pairs(cause) for labels, cause in document.get("effects", ())}
        return Saved(float(document["at"]), str(document["source"]), records, notified, effects)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedError(f"its content is not understood: {type(error).__name__}: {error}") from error


def after_downtime(record: AlertRecord, down: float) -> AlertRecord:
    """Return a record after `down` seconds without evaluation, which count for neither `for` nor `keep_firing_for`."""
    alert = record.alert
    if alert.phase is Phase.PENDING:
        alert = replace(alert, active_at=alert.active_at + down)
    since = None if record.missing_since is None else record.missing_since + down
    return AlertRecord(alert, since)


def shifted(record: AlertRecord, seconds: float) -> AlertRecord:
    """Return a record after the clock was set."""
    since = None if record.missing_since is None else record.missing_since + seconds
    return AlertRecord(moved(record.alert, seconds), since)


def _row(group: str, identity: Identity, record: AlertRecord) -> dict[str, Any]:
    alert = record.alert
    return {
        "group": group,
        "rule": identity[0],
        "rule_labels": identity[1],
        "labels": alert.labels,
        "phase": alert.phase.value,
        "value": repr(float(alert.value)),  # JSON has no infinity
        "active_at": alert.active_at,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
        "fires_at": alert.fires_at,
        "missing_since": record.missing_since,
        "annotations": dict(alert.annotations),
    }


def _record(row: Mapping[str, Any]) -> AlertRecord:
    phase = Phase(row["phase"])
    alert = Alert(
        rule=str(row["rule"]),
        labels=_pairs(row["labels"]),
        phase=phase,
        value=float(row["value"]),
        active_at=float(row["active_at"]),
        fired_at=_time(row["fired_at"]),
        resolved_at=_time(row["resolved_at"]),
        annotations={str(name): str(text) for name, text in row["annotations"].items()},
        fires_at=_time(row.get("fires_at")),
    )
    if (alert.fired_at is None) != (phase is Phase.PENDING) or (alert.resolved_at is None) == (phase is Phase.RESOLVED):
        raise ValueError(f"an alert that is {phase.value} has other times than that")
    return AlertRecord(alert, _time(row["missing_since"]))


def _pairs(pairs: Iterable[Iterable[str]]) -> Labels:
    return tuple((str(name), str(value)) for name, value in pairs)


def _time(value: Any) -> float | None:
    return None if value is None else float(value)


WINDOWS_FORMAT = "coldplate-windows-1"
_WIDTH = 8


class ArchivedSeries(NamedTuple):
    """The samples of one series. `live` if the last snapshot had it; a series written by a rule is not."""

    labels: Labels
    live: bool
    times: array[float]
    values: array[float]


class Archive(NamedTuple):
    """The windows at a wall second; `source` names the devices."""

    at: float
    source: str
    series: tuple[ArchivedSeries, ...]


def encode_windows(at: float, source: str, series: Iterable[ArchivedSeries]) -> bytes:
    """Return the content of the file."""
    archived = list(series)
    rows = [[s.labels, s.live, len(s.times)] for s in archived]
    head = json.dumps({"at": at, "source": source, "order": sys.byteorder, "series": rows})
    # Without copies in between: what is allocated and freed every few seconds leaves holes between what stays.
    samples = chain.from_iterable((s.times, s.values) for s in archived)
    return seal(WINDOWS_FORMAT, head.encode("ascii"), b"\n", *samples)


def decode_windows(content: bytes) -> Archive:
    """Return the decoded content of the file. Raises DamagedError."""
    head, _, samples = unseal(WINDOWS_FORMAT, content).partition(b"\n")
    try:
        document = json.loads(head)
        if document["order"] != sys.byteorder:
            raise ValueError(f"was written on a machine with {document['order']} byte order")
        return Archive(float(document["at"]), str(document["source"]), tuple(_series(document["series"], samples)))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedError(f"its content is not understood: {type(error).__name__}: {error}") from error


def _series(rows: Any, samples: bytes) -> Iterable[ArchivedSeries]:
    place = 0
    for pairs, live, count in rows:
        size = int(count) * _WIDTH
        if size <= 0 or place + 2 * size > len(samples):
            raise ValueError("has fewer samples than it says")
        times, values = array("d", samples[place : place + size]), array("d", samples[place + size : place + 2 * size])
        if any(before >= after for before, after in pairwise(times)):
            raise ValueError("has samples out of order")
        yield ArchivedSeries(_pairs(pairs), bool(live), times, values)
        place += 2 * size
