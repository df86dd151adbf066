"""Node power from a management controller's Redfish service (see `agent.backends.redfish_service`).

The service is searched once for a chassis that reports power: `Power` (PowerControl, the older form) or
`EnvironmentMetrics` (PowerWatts). A controller also lists the parts inside the chassis, and some report several
consumers in one: the largest reading is the whole, since it contains the others. The controller of a blade lists its
enclosure as well, which is left out. `chassis` in the configuration settles it where that guess is wrong.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any
from urllib.parse import quote

from agent.backends.polled_source import PollableSource
from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import (
    CHASSIS,
    DENIED_RETRY_SECONDS,
    RedfishPoll,
    RedfishService,
    as_list,
    as_number,
    link_path,
    link_paths,
)
from agent.catalogue.node import NODE_POWER
from agent.lib.http_target import HttpTarget
from agent.model import Reason

PARTS = frozenset({"Component", "Module", "Card", "Cartridge"})
"""ChassisTypes that are inside a node."""
BEYOND = frozenset({"Rack", "RackGroup", "Row", "Pod", "Zone", "Shelf", "PowerStrip", "Facility"})
"""ChassisTypes that hold several nodes."""
ENCLOSURE = "Enclosure"
BLADES = frozenset({"Blade", "Sled"})
"""ChassisTypes of a node in an enclosure of several."""
NODES = frozenset({*BLADES, "RackMount", "StandAlone"})
"""ChassisTypes of a whole node. OpenBMC's bmcweb calls any part of a node RackMount."""
GPU_BASEBOARD = "HGX_"
"""NVIDIA's controllers list the GPU baseboard and what is on it as chassis with this prefix."""

NO_READING = "has neither PowerConsumedWatts nor PowerWatts.Reading"
SEARCH_SECONDS = 600.0
"""Seconds until the next search where something could not be read in the last one."""


def consumed_watts(document: dict[str, Any]) -> float | None:
    """Return the power that a Power or an EnvironmentMetrics resource reports; None if it reports none."""
    control = as_list(document.get("PowerControl"))
    readings = [as_number(entry.get("PowerConsumedWatts")) for entry in control if isinstance(entry, dict)]
    readings.append(as_number(document.get("PowerWatts")))
    return max((watts for watts in readings if watts is not None), default=None)


def is_node(chassis: dict[str, Any]) -> bool:
    """Return whether a chassis may be the whole node, rather than a part of one or an enclosure of several."""
    name = chassis.get("Id")
    is_baseboard = isinstance(name, str) and name.startswith(GPU_BASEBOARD)
    return _type_of(chassis) not in PARTS | BEYOND and not is_baseboard


def _type_of(chassis: dict[str, Any]) -> str:
    kind = chassis.get("ChassisType")
    return kind if isinstance(kind, str) else ""


def enclosures_of(chassis: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the paths of those chassis, by path, that hold a node and so are not one themselves."""
    kinds = {path: _type_of(document) for path, document in chassis.items()}
    enclosures = set()
    for path, document in chassis.items():
        links = document.get("Links")
        if not isinstance(links, dict):
            continue
        has_node = kinds[path] in NODES or bool(link_paths(links.get("ComputerSystems")))
        for holder in link_paths(links.get("ContainedBy")):
            holder = holder.rstrip("/")
            if kinds[path] in BLADES or (has_node and kinds.get(holder) == ENCLOSURE):
                enclosures.add(holder)
    return enclosures


class RedfishPower(PollableSource):
    """The management controller, asked over the network."""

    name = "redfish"
    period = 5.0
    configured = True
    denied_retry = DENIED_RETRY_SECONDS

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float], until: float = inf) -> None:
        """Take a target, whose timeout is how long the service may be silent; it is not asked beyond `until`.

        `clock` gives monotonic seconds, and `until` is one of them.
        """
        self._chassis = chassis
        self._clock = clock
        self._service = RedfishService(target, self.timeout, clock, until)
        self._resource: str | None = None
        self._search_at = inf

    @property
    def accepted(self) -> bool:
        """Whether the service accepted the login when it last answered."""
        return self._service.accepted

    def watts(self) -> float:
        """Return the reading, after a search for its resource if that is not known yet."""
        try:
            if self._resource is None or self._clock() >= self._search_at:
                self._resource = self._find()
            return self._reading(self._resource)
        except DeviceError as error:
            if error.reason in (Reason.UNSUPPORTED, Reason.MALFORMED):
                self._resource = None  # it is gone or has changed; one that is only slow or unreachable is kept
            raise

    def close(self) -> None:
        self._service.close()

    def _reading(self, resource: str) -> float:
        watts = consumed_watts(self._service.get(resource))
        if watts is None:
            raise self._service.error(Reason.MALFORMED, resource, NO_READING)
        return watts

    def _find(self) -> str:
        """Search for the resource with the largest reading. Raises the first problem if nothing reports power."""
        poll = RedfishPoll(self._service, self._clock, NODE_POWER, linked=False)
        answers = [self._power_of(chassis, poll) for chassis in self._chassis_of_node(poll)]
        readings = [answer for answer in answers if answer is not None]
        if not readings:
            raise self._nothing(poll.fault)
        # What could not be read may have been the whole, and the largest reading that of a part.
        is_partial = poll.fault is not None and poll.fault.reason is not Reason.UNSUPPORTED
        self._search_at = self._clock() + SEARCH_SECONDS if is_partial else inf
        return max(readings)[1]

    def _chassis_of_node(self, poll: RedfishPoll) -> list[dict[str, Any]]:
        """Return the chassis that may be the node. Raises DeviceError."""
        if self._chassis is not None:
            return [poll.at(f"{CHASSIS}/{quote(self._chassis, safe='')}")]
        members = poll.members_in(CHASSIS, poll.require(CHASSIS), excluded=GPU_BASEBOARD)
        listed = {path.rstrip("/"): poll.at(path) for path in members}
        enclosures = enclosures_of(listed)
        return [chassis for path, chassis in listed.items() if path not in enclosures and is_node(chassis)]

    def _power_of(self, chassis: dict[str, Any], poll: RedfishPoll) -> tuple[float, str] | None:
        """Return the watts of a chassis and the resource that reports them; None if it reports none."""
        for resource in map(link_path, (chassis.get("Power"), chassis.get("EnvironmentMetrics"))):
            document = None if resource is None else poll.read(resource)
            if resource is None or document is None:
                continue
            watts = consumed_watts(document)
            if watts is not None and watts > 0:
                return watts, resource
            text = NO_READING if watts is None else f"reports {watts:g} W for a running node"
            poll.record_fault(self._service.error(Reason.UNSUPPORTED, resource, text))
        return None

    def _nothing(self, fault: DeviceError | None) -> DeviceError:
        text = "no chassis that is a whole node reports its power"
        if fault is None:
            return self._service.error(Reason.UNSUPPORTED, CHASSIS, text)
        return DeviceError(fault.reason, f"{fault.detail}; {text}")
