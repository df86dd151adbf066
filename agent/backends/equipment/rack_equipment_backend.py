"""Equipment that serves a rack, from its Redfish services (`rack.equipment`): coolant distribution units, power shelves
and rack PDUs.

Each service is asked by one agent of the rack, every 15 s and in a thread of its own; `BackendContext.is_my_turn` says
by which. The others have no series of it. An agent whose turn ends forgets what it saw: what it would show is old.

A part that was there once stays known: one that is not listed any more, or cannot be read, is unavailable, never well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import Struct

from agent.backends.equipment.equipment_resources import UNAVAILABLE
from agent.backends.equipment.rack_resources import (
    COOLING_COLLECTIONS,
    POWER_COLLECTIONS,
    POWER_SHELF,
    EquipmentPart,
    EquipmentPollResult,
    PartResource,
    PartState,
    chassis_documents_of,
    cooling_documents_of,
    power_documents_of,
)
from agent.backends.polled_source import PolledSource, Spawn, spawn_thread
from agent.backends.protocol import BackendSample, DeviceError
from agent.backends.redfish_service import (
    ROOT,
    RedfishPoll,
    RedfishReader,
    RedfishService,
    RedfishSource,
    link_path,
    make_target,
)
from agent.catalogue.rack import PART, PART_STATES, UP
from agent.config.schema import RackConfig
from agent.lib.http_target import HttpTarget
from agent.model import Gap, Instant, Labels, Lane, Metric, Rack, Reading, Reason, Series

SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added."""
SOON_SECONDS = 60.0
"""The same where nothing was found, or something could not be read: a service that starts lists its parts later."""
ROUND_SECONDS = 45.0
"""Most seconds that a round may take; a controller takes up to 300 ms for each document."""
MOST_DOCUMENTS = 128
"""Documents that are read each round."""


class RackEquipmentReader(RedfishReader):
    """One service. Asked in a thread, with at most one question at a time."""

    def __init__(self, name: str, service: RedfishSource, clock: Callable[[], float]) -> None:
        """`name` is that of the configuration; `clock` gives monotonic seconds. Closes the `service` with itself."""
        self.name = name
        self._service = service
        self._clock = clock
        self._found: list[PartResource] | None = None
        self._problems: list[str] = []
        self._search_at = 0.0
        self.known: dict[EquipmentPart, str] = {}
        """Every part that ever was there, with what it said last."""

    def look(self) -> EquipmentPollResult:
        """Return everything. Raises DeviceError if the service does not answer, or serves nothing of a rack."""
        now = self._clock()
        ask = RedfishPoll(self._service, self._clock, now + ROUND_SECONDS)
        if self._found is None or now >= self._search_at:
            found = self._search(ask)
            self._found, self._problems = found, ask.problems[:]
            self._search_at = now + (SEARCH_SECONDS if found and not ask.problems else SOON_SECONDS)
        if not self._found and not self.known:
            text = "; ".join(["it lists no coolant distribution unit, power shelf or rack PDU", *self._problems])
            raise self._service.error(Reason.UNSUPPORTED, ROOT, text)
        states = dict.fromkeys(self.known, UNAVAILABLE)
        values: dict[tuple[Metric, Labels], float] = {}
        for resource in self._found:
            for each in resource.values(ask.read(resource.path)):
                if isinstance(each, PartState):
                    if each.state is not None:
                        states[each.part] = each.state
                elif each.value is not None:
                    values[each.row, (("unit", resource.part.unit), *each.labels)] = each.value
        self.known = states
        problems = tuple(dict.fromkeys((*self._problems, *ask.problems)))
        self.log_new(problems)
        return EquipmentPollResult(dict(states), values, problems, ask.calls)

    def close(self) -> None:
        self._service.close()

    def _search(self, ask: RedfishPoll) -> list[PartResource]:
        """Return the documents of every unit that the service has, up to a bound. Raises DeviceError."""
        root = ask.read(ROOT)
        if root is None:
            raise DeviceError(Reason.MALFORMED, "; ".join(ask.problems))
        found: list[PartResource] = []
        thermal = ask.at(link_path(root.get("ThermalEquipment")))
        for collection in COOLING_COLLECTIONS:
            for path in ask.members(link_path(thermal.get(collection))):
                if len(found) < MOST_DOCUMENTS:
                    found += cooling_documents_of(path, ask)
        cooling = bool(found)
        power = ask.at(link_path(root.get("PowerEquipment")))
        for collection, kind in POWER_COLLECTIONS:
            for path in ask.members(link_path(power.get(collection))):
                if len(found) < MOST_DOCUMENTS:
                    found += power_documents_of(path, kind, ask)
        if not cooling:
            supplied = {part.unit for part, *_ in found if part.kind == "power-supply"}
            bare = [part.unit for part, *_ in found if part.kind == POWER_SHELF and part.unit not in supplied]
            if bare or not found:
                known = {path for _, path, _ in found}
                found += chassis_documents_of(link_path(root.get("Chassis")), bare, known, ask)
        if len(found) > MOST_DOCUMENTS:
            ask.note(f"{self.name} has more than {MOST_DOCUMENTS} parts; the rest is not read")
        return found[:MOST_DOCUMENTS]


PATIENCE_SECONDS = 10.0
"""Seconds that a whole document may take."""

OpenService = Callable[[], RedfishSource]


def services_of(rack: RackConfig) -> dict[str, HttpTarget]:
    """Return the services that are configured, by name. Raises ConfigError."""
    return {name: make_target(service, f"rack.equipment.{name}") for name, service in rack.equipment.items()}


def over_http(targets: Mapping[str, HttpTarget], clock: Callable[[], float]) -> dict[str, OpenService]:
    """Return how each of these services is opened. `clock` gives monotonic seconds."""
    return {name: partial(RedfishService, target, PATIENCE_SECONDS, clock) for name, target in targets.items()}


_AssignedService = tuple[RackEquipmentReader, PolledSource[EquipmentPollResult]]
"""A service while this agent is the one that polls it."""


class _ServiceReadings(Struct, frozen=True):
    """The readings and gaps of a service's last answer, made once for each answer."""

    answer: EquipmentPollResult | DeviceError
    readings: tuple[Reading, ...]
    gaps: tuple[Gap, ...]


class RackEquipmentBackend:
    """Returns the last readings of the services that this agent polls. `clock` gives monotonic seconds.

    `services` opens a service by its name, when this agent begins to poll it.
    """

    name = "rack_equipment"
    lanes = frozenset({Lane.FAST})
    shortest = 1.0

    def __init__(
        self,
        rack: str,
        services: Mapping[str, OpenService],
        is_my_turn: Callable[[str], bool],
        clock: Callable[[], float],
        spawn: Spawn = spawn_thread,
    ) -> None:
        self._rack = Rack(rack)
        self._is_my_turn = is_my_turn
        self._open = {name: partial(self._begin, name, opened, clock, spawn) for name, opened in services.items()}
        self._turns: dict[str, _AssignedService] = {}
        self._shown: dict[str, _ServiceReadings] = {}
        self._series: dict[tuple[Metric, Labels], Series] = {}

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        """Return all that is known of the services whose turn it is; nothing of the others."""
        readings: list[Reading] = []
        gaps: list[Gap] = []
        calls = 0
        awaited = False
        for name, begin in self._open.items():
            if not self._is_my_turn(name):
                self._end(name)
                continue
            watch, paced = self._turns.get(name) or begin()
            paced.poll(now.mono)
            awaited = awaited or paced.awaited
            answer = paced.value or paced.fault
            if answer is None:
                continue
            before = self._shown.get(name)
            if before is None or before.answer is not answer:
                before = self._shown[name] = self._show(name, watch, answer)
                calls += answer.calls if isinstance(answer, EquipmentPollResult) else 1
            readings += before.readings
            gaps += before.gaps
        return BackendSample(readings, gaps, calls=calls, awaited=awaited)

    def close(self) -> None:
        for name in list(self._turns):
            self._end(name)

    def _begin(self, name: str, opened: OpenService, clock: Callable[[], float], spawn: Spawn) -> _AssignedService:
        watch = RackEquipmentReader(name, opened(), clock)
        self._turns[name] = turn = (watch, PolledSource(watch, watch.look, spawn))
        return turn

    def _end(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            turn[1].close()
            self._shown.pop(name, None)
            self._series = {key: each for key, each in self._series.items() if key[1][0][1] != name}

    def _show(
        self, name: str, watch: RackEquipmentReader, answer: EquipmentPollResult | DeviceError
    ) -> _ServiceReadings:
        own = (("equipment", name),)
        if isinstance(answer, DeviceError):
            unseen = dict.fromkeys(watch.known, UNAVAILABLE)
            made = [self._reading(UP, own, 0), *self._states(own, unseen.items())]
            return _ServiceReadings(answer, tuple(made), (self._gap(answer.reason, f"{name}: {answer.detail}"),))
        values = (self._reading(row, (*own, *labels), value) for (row, labels), value in answer.values.items())
        made = [self._reading(UP, own, 1), *self._states(own, answer.states.items()), *values]
        gaps = (self._gap(Reason.MALFORMED, f"{name}: {problem}") for problem in answer.problems)
        return _ServiceReadings(answer, tuple(made), tuple(gaps))

    def _states(self, own: Labels, states: Iterable[tuple[EquipmentPart, str]]) -> Iterable[Reading]:
        for part, said in states:
            labels = (*own, ("unit", part.unit), ("kind", part.kind), ("part", part.name))
            for state in PART_STATES:
                yield self._reading(PART, (*labels, ("state", state)), int(state == said))

    def _reading(self, row: Metric, labels: Labels, value: float) -> Reading:
        series = self._series.get((row, labels))
        if series is None:
            series = self._series[row, labels] = Series(row, self._rack, labels)
        return Reading(series, value)

    def _gap(self, reason: Reason, detail: str) -> Gap:
        return Gap(PART, self._rack, reason, detail)
