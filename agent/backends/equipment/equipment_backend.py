"""The parts that a Redfish service lists, of the node or of its rack: how they are, and what they measure.

The parts are found by links alone: ids and depths differ between makers. A part that was there once stays known: if the
service does not answer or list it any more, or it cannot be read, it is unavailable, and never dry or well. A service
is asked every 15 s, in its own thread (`agent.backends.polled_source`).

Here are also those of the node (`backends.redfish`): leak detectors, coolant connectors, fans, intake.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from agent.backends.equipment.equipment_resources import (
    LEAK_STATE,
    UNAVAILABLE,
    PartValue,
    ReadPart,
    listed_detectors,
    read_connector,
    read_detector,
    read_detector_groups,
    read_fan,
    read_thermal,
    read_thermal_metrics,
)
from agent.backends.polled_source import PollableSource, PolledSource, Spawn, spawn_thread
from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.backends.redfish_service import (
    CHASSIS,
    DENIED_RETRY_SECONDS,
    Problem,
    RedfishPoll,
    RedfishService,
    RedfishSource,
    link_path,
    resource_id,
)
from agent.catalogue.equipment import FAN_STATE, INTAKE, LEAK_STATES, ROWS, SUPPLY
from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.model import Entity, Gap, Instant, Lane, Metric, Reading, Reason, Series

log = logging.getLogger("coldplate.backend")

SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added."""
MOST_DOCUMENTS = 128
"""Documents of parts that are read each round: a controller takes up to 300 ms for each."""

Document = dict[str, Any]
Names = tuple[str, ...]
PartKey = tuple[Metric, Names]
"""What is shown of a part: a row, and the values of its labels that name the part, its unit or chassis first."""


class PartDocument(Struct, frozen=True):
    """A document of a unit or chassis, which `read` reads each round: it gets None for one that could not be read.

    If it cannot be understood, `row` is missing. `kind` is that of the rack's parts. `connector` is the name of one
    that has no values if nothing is read.
    """

    path: str
    row: Metric
    unit: str
    read: Callable[[Document | None], Iterable[PartValue]]
    kind: str = ""
    connector: str = ""


class EquipmentReadings(Struct, frozen=True):
    """What was read in one round: states and values of parts.

    `silent` connectors have no values. `problems` are what was wrong with single documents, with the row that is
    missing for each. `calls` counts the documents that were asked for.
    """

    states: dict[PartKey, str | None]
    values: dict[PartKey, float]
    silent: frozenset[Names]
    problems: tuple[Problem, ...]
    calls: int


class EquipmentReader(PollableSource):
    """One service. Asked in a thread, with at most one question at a time."""

    period = 15.0
    configured = True
    denied_retry = DENIED_RETRY_SECONDS
    timeout = 60.0

    row: Metric
    """What is missing where it is not known what is."""
    value_rows: Sequence[Metric] = ()
    """Those that are missing in its place without an answer, once there was a value."""
    up_row: Metric | None = None
    """Whether the service answers, if that is shown."""
    round_seconds = inf
    """Most seconds that a round may take."""
    search_soon_seconds = SEARCH_SECONDS
    """Seconds until the next search where nothing was found, or something could not be read."""
    linked = True
    """Whether a document that is not there is a problem (`RedfishPoll`)."""

    def __init__(self, name: str, service: RedfishSource, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds. Closes the `service` with itself."""
        self.name = name
        self._service = service
        self._clock = clock
        self._documents: Sequence[PartDocument] = ()
        self._problems: list[Problem] = []
        self._search_at = -inf
        self._once = LogOnce(log)
        self.last_states: dict[PartKey, str | None] = {}
        """Every part with a state that ever was there, with what it said last."""

    @abstractmethod
    def search(self, poll: RedfishPoll) -> Sequence[PartDocument]:
        """Return the documents to read. Raises DeviceError."""

    @abstractmethod
    def refuse_nothing(self, problems: Sequence[Problem]) -> None:
        """Raise AbsentError or DeviceError if it is one that no part was found, with these problems."""

    def read_parts(self) -> EquipmentReadings:
        """Return all parts, as they are now. Raises AbsentError and DeviceError."""
        now = self._clock()
        poll = RedfishPoll(self._service, self._clock, self.row, now + self.round_seconds, linked=self.linked)
        if now >= self._search_at:
            self._documents = self.search(poll)[:MOST_DOCUMENTS]
            self._problems = poll.problems[:]
            soon = not self._documents or self._problems
            self._search_at = now + (self.search_soon_seconds if soon else SEARCH_SECONDS)
        if not self._documents and not self.last_states:
            self.refuse_nothing(self._problems)
        states: dict[PartKey, str | None] = dict.fromkeys(self.last_states, UNAVAILABLE)
        values: dict[PartKey, float] = {}
        silent: set[Names] = set()
        for document in self._documents:
            poll.row = document.row
            part_values = list(document.read(poll.read(document.path)))
            if document.connector and not part_values:
                silent.add((document.unit, document.connector))
            for row, names, value in part_values:
                key = (row, (document.unit, *names))
                if isinstance(value, float):
                    values[key] = value
                else:
                    states[key] = value
        self.last_states = states
        problems = tuple(dict.fromkeys((*self._problems, *poll.problems)))
        for text in dict.fromkeys(text for _, text in problems):
            self._once.passing(now, text, "%s", text, over="")
        self._once.ease(now)
        return EquipmentReadings(states, values, frozenset(silent), problems, poll.calls)

    def close(self) -> None:
        self._service.close()


class NodeCoolingReader(EquipmentReader):
    """The node's management controller."""

    row = LEAK_STATE
    value_rows = tuple(row for row in ROWS if row not in (LEAK_STATE, FAN_STATE))
    linked = False

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """Only what is in `chassis`, if it is given."""
        super().__init__("equipment", RedfishService(target, 10.0, clock), clock)
        self._chassis = chassis

    def refuse_nothing(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise AbsentError("the management controller lists neither leak detectors, coolant connectors nor fans")

    def search(self, poll: RedfishPoll) -> list[PartDocument]:
        if self._chassis is None:
            paths = poll.members_in(CHASSIS, poll.require(CHASSIS))
        else:
            paths = [f"{CHASSIS}/{quote(self._chassis, '')}"]
        documents: list[PartDocument] = []
        for path in paths:
            poll.row = LEAK_STATE
            document = poll.at(path)
            if len(documents) < MOST_DOCUMENTS:
                documents += self._search_in(resource_id(path), document, poll)
        return documents

    @staticmethod
    def _search_in(chassis: str, document: Document, poll: RedfishPoll) -> Iterator[PartDocument]:
        """Yield the detectors of a chassis, which lists them itself (since 2023), in its ThermalSubsystem, or both."""

        def part(row: Metric, path: str, read: ReadPart) -> PartDocument:
            name = resource_id(path)
            connector = name if row is SUPPLY else ""
            return PartDocument(path, row, chassis, lambda document: read(name, document or {}), connector=connector)

        thermal = poll.at(link_path(document.get("ThermalSubsystem")))
        detection = link_path(thermal.get("LeakDetection"))
        leaks = poll.at(detection)
        detectors = [path for d in (document, leaks) for path in poll.members(link_path(d.get("LeakDetectors")))]
        for path in dict.fromkeys(detectors):
            yield part(LEAK_STATE, path, read_detector)
        if detection is not None and not detectors and any(True for _ in listed_detectors(leaks)):
            yield part(LEAK_STATE, detection, read_detector_groups)
        poll.row = SUPPLY
        for path in poll.members(link_path(thermal.get("CoolantConnectors"))):
            yield part(SUPPLY, path, read_connector)
        poll.row = FAN_STATE
        fans = poll.members(link_path(thermal.get("Fans")))
        for path in fans:
            yield part(FAN_STATE, path, read_fan)
        metrics, older = link_path(thermal.get("ThermalMetrics")), link_path(document.get("Thermal"))
        if older is not None and not fans:
            yield part(FAN_STATE, older, read_thermal)
        if metrics is not None:
            yield part(INTAKE, metrics, read_thermal_metrics)


class EquipmentBackend:
    """Shows what a reader last saw, and what it cannot see. `own` are the labels' values before those of the parts."""

    name = "equipment"
    lanes = frozenset({Lane.SLOW})
    shortest = 1.0

    def __init__(self, reader: EquipmentReader, entity: Entity, own: Names = (), spawn: Spawn = spawn_thread) -> None:
        self._reader = reader
        self._entity = entity
        self._own = own
        self._paced: PolledSource[EquipmentReadings] = PolledSource(reader, reader.read_parts, spawn)
        self._answer: EquipmentReadings | DeviceError | None = None
        self._sample = BackendSample()
        """What is shown of that answer, made once."""
        self._series: dict[PartKey, Series] = {}

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        """Return the state of every part, and all values. Raises AbsentError where there is no part."""
        self._paced.poll(now.mono)
        answer = self._paced.latest
        if isinstance(answer, AbsentError):
            raise AbsentError(str(answer))
        if answer is None:
            return BackendSample(awaited=self._paced.awaited)
        if answer is self._answer:
            return self._sample._replace(calls=0)
        self._answer = answer
        self._sample = self._refused(answer) if isinstance(answer, DeviceError) else self._sample_of(answer)
        return self._sample

    def close(self) -> None:
        self._paced.close()

    def _sample_of(self, equipment: EquipmentReadings) -> BackendSample:
        values = (self._reading(row, names, value) for (row, names), value in equipment.values.items())
        readings = (*self._up(1), *self._states(equipment.states), *values)
        silent = (
            (row, f"the coolant connector {names[1]} of {names[0]} has no values")
            for row, names in self._series
            if names in equipment.silent
        )
        gaps = tuple(self._gap(row, Reason.MALFORMED, text) for row, text in (*silent, *equipment.problems))
        return BackendSample(readings, gaps, calls=equipment.calls)

    def _refused(self, fault: DeviceError) -> BackendSample:
        read_rows = {row for row, _ in self._series}
        missing = [row for row in self._reader.value_rows if row in read_rows] or [self._reader.row]
        readings = (*self._up(0), *self._states(dict.fromkeys(self._reader.last_states, UNAVAILABLE)))
        return BackendSample(readings, tuple(self._gap(row, fault.reason, fault.detail) for row in missing), calls=1)

    def _up(self, value: int) -> Iterator[Reading]:
        if self._reader.up_row is not None:
            yield self._reading(self._reader.up_row, (), value)

    def _states(self, states: dict[PartKey, str | None]) -> Iterator[Reading]:
        for (row, names), active_state in states.items():
            if active_state is not None:
                for state in LEAK_STATES:
                    yield self._reading(row, (*names, state), int(state == active_state))

    def _reading(self, row: Metric, names: Names, value: float) -> Reading:
        series = self._series.get((row, names))
        if series is None:
            labels = zip((*row.labels, *row.further_labels), (*self._own, *names), strict=False)
            series = self._series[row, names] = Series(row, self._entity, tuple(labels))
        return Reading(series, value)

    def _gap(self, row: Metric, reason: Reason, text: str) -> Gap:
        return Gap(row, self._entity, reason, ": ".join((*self._own, text)))
