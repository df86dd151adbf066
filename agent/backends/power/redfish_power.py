"""Node power from a management controller's Redfish service (see `agent.backends.redfish_service`).

The service is searched once for a chassis that reports power: `Power` (PowerControl, the older form) or
`EnvironmentMetrics` (PowerWatts). A controller also lists the parts inside the chassis, and some report several
consumers in one: the largest reading is the whole, since it contains the others. `chassis` in the configuration settles
it where that guess is wrong, as in an enclosure of several nodes.
"""

from collections.abc import Callable
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
    members_of,
)
from agent.catalogue.node import NODE_POWER
from agent.lib.http_target import HttpTarget
from agent.model import Reason

PARTS = frozenset({"Component", "Module", "Card", "Cartridge"})
"""ChassisTypes that are inside a node."""
BEYOND = frozenset({"Rack", "RackGroup", "Row", "Pod", "Zone", "Shelf", "PowerStrip", "Facility"})
"""ChassisTypes that hold several nodes."""
GPU_BASEBOARD = "HGX_"
"""NVIDIA's controllers list the GPU baseboard and what is on it as chassis with this prefix."""


def consumed_watts(document: dict[str, Any]) -> float | None:
    """Return the power that a Power or an EnvironmentMetrics resource reports; None if it reports none."""
    control = as_list(document.get("PowerControl"))
    found = [as_number(entry.get("PowerConsumedWatts")) for entry in control if isinstance(entry, dict)]
    found.append(as_number(document.get("PowerWatts")))
    return max((value for value in found if value is not None), default=None)


def is_node(chassis: dict[str, Any]) -> bool:
    """Return whether a chassis may be the whole node, rather than a part of one or an enclosure of several."""
    kind = chassis.get("ChassisType")
    name = chassis.get("Id")
    return not (kind in PARTS | BEYOND if isinstance(kind, str) else False) and not (
        isinstance(name, str) and name.startswith(GPU_BASEBOARD)
    )


class RedfishPower(PollableSource):
    """The management controller, asked over the network."""

    name = "redfish"
    period = 5.0
    configured = True
    denied_retry = DENIED_RETRY_SECONDS

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """Take a target, whose timeout is how long the service may be silent. `clock` gives monotonic seconds."""
        self._chassis = chassis
        self._clock = clock
        self._service = RedfishService(target, self.timeout, clock)
        self._resource: str | None = None

    def watts(self) -> float:
        """Return the reading, after a search for its resource if that is not known yet."""
        try:
            if self._resource is None:
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
            text = "has neither PowerConsumedWatts nor PowerWatts.Reading"
            raise self._service.error(Reason.MALFORMED, resource, text)
        return watts

    def _find(self) -> str:
        """Search for the resource with the largest reading."""
        if self._chassis is not None:
            members = [f"{CHASSIS}/{quote(self._chassis, safe='')}"]
        else:
            members = members_of(self._service.get(CHASSIS))
        ask = RedfishPoll(self._service, self._clock, NODE_POWER, linked=False)
        best: tuple[float, str] | None = None
        for member in members:
            chassis = ask.at(member)
            if self._chassis is None and not is_node(chassis):
                continue
            for resource in (link_path(chassis.get("Power")), link_path(chassis.get("EnvironmentMetrics"))):
                watts = consumed_watts(ask.at(resource))
                if resource is not None and watts is not None and watts > 0:
                    best = max(best or (0.0, ""), (watts, resource))
                    break
        if best is None:
            text = "no chassis that is a whole node reports its power"
            raise self._service.error(Reason.UNSUPPORTED, CHASSIS, text)
        return best[1]
