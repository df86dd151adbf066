"""Equipment that serves a rack, from its Redfish services (`rack.equipment`): coolant distribution units, power shelves
and rack PDUs.

Each service is asked by one agent of the rack; `BackendContext.is_my_turn` says by which. The others have no series of
it. An agent whose turn ends forgets what it saw: what it would show is old.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agent.backends.equipment.equipment_backend import MOST_DOCUMENTS, EquipmentBackend, EquipmentReader, PartDocument
from agent.backends.equipment.rack_resources import (
    COOLING_COLLECTIONS,
    POWER_COLLECTIONS,
    POWER_SHELF,
    chassis_documents_of,
    cooling_documents_of,
    power_documents_of,
)
from agent.backends.polled_source import Spawn, spawn_thread
from agent.backends.protocol import BackendSample, DeviceError, join_samples
from agent.backends.redfish_service import (
    ROOT,
    Problem,
    RedfishPoll,
    RedfishService,
    RedfishSource,
    link_path,
    make_target,
)
from agent.catalogue.rack import PART, UP
from agent.config.schema import RackConfig
from agent.lib.http_target import HttpTarget
from agent.model import Instant, Lane, Rack, Reason


class RackEquipmentReader(EquipmentReader):
    """One service, by its name in the configuration."""

    row = PART
    up_row = UP
    round_seconds = 45.0
    search_soon_seconds = 60.0  # a service that starts lists its parts later

    def refuse_nothing(self, problems: Sequence[Problem]) -> None:
        texts = ["it lists no coolant distribution unit, power shelf or rack PDU", *(text for _, text in problems)]
        raise self._service.error(Reason.UNSUPPORTED, ROOT, "; ".join(texts))

    def search(self, poll: RedfishPoll) -> Sequence[PartDocument]:
        """Return the documents of every unit that the service has."""
        root = poll.read(ROOT)
        if root is None:
            raise DeviceError(Reason.MALFORMED, "; ".join(text for _, text in poll.problems))
        documents: list[PartDocument] = []
        thermal = poll.at(link_path(root.get("ThermalEquipment")))
        for collection in COOLING_COLLECTIONS:
            for path in poll.members(link_path(thermal.get(collection))):
                if len(documents) < MOST_DOCUMENTS:
                    documents += cooling_documents_of(path, poll)
        cooling = bool(documents)
        power = poll.at(link_path(root.get("PowerEquipment")))
        for collection, kind in POWER_COLLECTIONS:
            for path in poll.members(link_path(power.get(collection))):
                if len(documents) < MOST_DOCUMENTS:
                    documents += power_documents_of(path, kind, poll)
        if not cooling:
            supplied = {d.unit for d in documents if d.kind == "power-supply"}
            bare = [d.unit for d in documents if d.kind == POWER_SHELF and d.unit not in supplied]
            if bare or not documents:
                paths = {d.path for d in documents}
                documents += chassis_documents_of(link_path(root.get("Chassis")), bare, paths, poll)
        if len(documents) > MOST_DOCUMENTS:
            poll.record_problem(f"{self.name} has more than {MOST_DOCUMENTS} parts; the rest is not read")
        return documents


TIMEOUT_SECONDS = 10.0
"""Seconds that a whole document may take."""

OpenService = Callable[[], RedfishSource]


def services_of(rack: RackConfig) -> dict[str, HttpTarget]:
    """Return the services that are configured, by name. Raises ConfigError."""
    return {name: make_target(service, f"rack.equipment.{name}") for name, service in rack.equipment.items()}


def over_http(targets: Mapping[str, HttpTarget], clock: Callable[[], float]) -> dict[str, OpenService]:
    """Return how each of these services is opened. `clock` gives monotonic seconds."""
    return {name: partial(RedfishService, target, TIMEOUT_SECONDS, clock) for name, target in targets.items()}


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
        self._services = services
        self._is_my_turn = is_my_turn
        self._clock = clock
        self._spawn = spawn
        self._turns: dict[str, EquipmentBackend] = {}
        """Each service while this agent is the one that polls it."""

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Return all that is known of the services whose turn it is; nothing of the others."""
        samples = []
        for name in self._services:
            if self._is_my_turn(name):
                samples.append((self._turns.get(name) or self._begin(name)).read(lane, now))
            else:
                self._end(name)
        return join_samples(samples)

    def close(self) -> None:
        for name in self._services:
            self._end(name)

    def _begin(self, name: str) -> EquipmentBackend:
        reader = RackEquipmentReader(name, self._services[name](), self._clock)
        turn = self._turns[name] = EquipmentBackend(reader, self._rack, (name,), self._spawn)
        return turn

    def _end(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            turn.close()
