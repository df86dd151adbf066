"""Node power from a management controller's Redfish service, over HTTP.

Only GET is ever sent, to the configured host alone: redirects are not followed, links to other hosts
are not, and proxies of the environment are not used, because each would carry the password away. The
connection is kept, since a TLS handshake takes a small controller a second or more.

A controller may take seconds to answer, so this source is asked in a thread of its own (see `pacing`).

The service is searched once for a chassis that reports power: `Power` (PowerControl, the older
form) or `EnvironmentMetrics` (PowerWatts). A controller also lists the parts inside the chassis, and
some report several consumers in one: the largest reading is the whole, since it contains the others.
`chassis` in the configuration settles it where that guess is wrong, as in an enclosure of several nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeGuard
from urllib.parse import quote

from agent.backends.protocol import DeviceError
from agent.lib.http_answers import AnswerBounds
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_outcomes import HttpError, HttpFault
from agent.lib.http_target import HttpTarget
from agent.model import Reason

ROOT = "/redfish/v1/"
COLLECTION = "/redfish/v1/Chassis"
BOUNDS = AnswerBounds(body=1 << 20)
SILENCE_SECONDS = 5.0
"""Seconds without a byte after which a service has failed to answer; a whole answer may take the source's patience."""
MAX_CHASSIS = 64

PARTS = frozenset({"Component", "Module", "Card", "Cartridge"})
"""ChassisTypes that are inside a node."""
BEYOND = frozenset({"Rack", "RackGroup", "Row", "Pod", "Zone", "Shelf", "PowerStrip", "Facility"})
"""ChassisTypes that hold several nodes."""
GPU_BASEBOARD = "HGX_"
"""NVIDIA's controllers list the GPU baseboard and what is on it as chassis with this prefix."""

_HEADERS = (("Accept", "application/json"), ("OData-Version", "4.0"))
_BROKEN_OFF = (HttpFault.UNREACHABLE, HttpFault.GARBAGE)
_FAULTS = {
    HttpFault.UNTRUSTED: (Reason.DENIED, "; set ca_file to the controller's own, or verify: false"),
    HttpFault.UNREADABLE: (Reason.DENIED, ""),
    HttpFault.TIMEOUT: (Reason.TIMEOUT, ""),
}
_STATUS = {
    401: (Reason.DENIED, "user name or password refused"),
    403: (Reason.DENIED, "the account may not read this"),
    404: (Reason.UNSUPPORTED, "not found"),
    405: (Reason.UNSUPPORTED, "not offered"),
    501: (Reason.UNSUPPORTED, "not offered"),
    429: (Reason.TIMEOUT, "too many requests"),
    503: (Reason.TIMEOUT, "the service is busy"),
}


def check_address(target: HttpTarget) -> None:
    """Reject an address that is more than a host and port. Raises ValueError."""
    if target.path:
        raise ValueError(f"url {target.shown!r}: give only host and port: https://HOST or https://HOST:PORT")


def consumed_watts(document: Any) -> float | None:
    """The power that a Power or an EnvironmentMetrics resource reports; None if it reports none."""
    if not isinstance(document, dict):
        return None
    control = document.get("PowerControl")
    metrics = document.get("PowerWatts")
    found = [entry.get("PowerConsumedWatts") for entry in _list(control) if isinstance(entry, dict)]
    found.append(metrics.get("Reading") if isinstance(metrics, dict) else None)
    return max((float(value) for value in found if _is_number(value)), default=None)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e9 < value < 1e9  # NaN is not


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _link(value: Any) -> str | None:
    """The path of a link, if it stays inside the service."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    if not isinstance(path, str) or not path.startswith(ROOT) or not path.isascii() or not path.isprintable():
        return None
    return path


def is_node(chassis: dict[str, Any]) -> bool:
    """Whether a chassis may be the whole node, rather than a part of one or an enclosure of several."""
    kind = chassis.get("ChassisType")
    name = chassis.get("Id")
    return not (kind in PARTS | BEYOND if isinstance(kind, str) else False) and not (
        isinstance(name, str) and name.startswith(GPU_BASEBOARD)
    )


class Redfish:
    """The management controller, asked over the network."""

    name = "redfish"
    period = 5.0
    configured = True
    denied_retry = 300.0  # long, because a management controller locks an account after a few wrong passwords
    slow = True
    grace = 0.0
    patience = 10.0

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """The target's timeout is how long the service may be silent. `clock` gives monotonic seconds."""
        self._url = target.url.rstrip("/")
        self._chassis = chassis
        self._clock = clock
        self._client = HttpClient(target, BOUNDS, clock, silence=target.timeout)
        self._resource: str | None = None

    def watts(self) -> float:
        """The reading, after a search for its resource if that is not known yet."""
        try:
            if self._resource is None:
                self._resource = self._find()
            return self._reading(self._resource)
        except DeviceError as error:
            if error.reason in (Reason.UNSUPPORTED, Reason.MALFORMED):
                self._resource = None  # it is gone or has changed; one that is only slow or unreachable is kept
            raise

    def close(self) -> None:
        self._client.close()

    def _reading(self, resource: str) -> float:
        watts = consumed_watts(self._get(resource))
        if watts is None:
            raise self._error(Reason.MALFORMED, resource, "has neither PowerConsumedWatts nor PowerWatts.Reading")
        return watts

    def _find(self) -> str:
        """Search for the resource with the largest reading."""
        if self._chassis is not None:
            members = [f"{COLLECTION}/{quote(self._chassis, safe='')}"]
        else:
            listed = _list(self._get(COLLECTION).get("Members"))
            members = [path for path in map(_link, listed) if path is not None]
        best: tuple[float, str] | None = None
        for member in members[:MAX_CHASSIS]:
            chassis = self._try(member)
            if self._chassis is None and not is_node(chassis):
                continue
            for resource in (_link(chassis.get("Power")), _link(chassis.get("EnvironmentMetrics"))):
                if resource is None:
                    continue
                watts = consumed_watts(self._try(resource))
                if watts is not None and watts > 0:
                    best = max(best or (0.0, ""), (watts, resource))
                    break
        if best is None:
            raise self._error(Reason.UNSUPPORTED, COLLECTION, "no chassis that is a whole node reports its power")
        return best[1]

    def _try(self, path: str) -> dict[str, Any]:
        """One resource of many: if it cannot be read, the search goes on."""
        try:
            return self._get(path)
        except DeviceError as error:
            if error.reason in (Reason.UNSUPPORTED, Reason.MALFORMED):
                return {}
            raise

    def _get(self, path: str) -> dict[str, Any]:
        body = self._exchange(path)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._error(Reason.MALFORMED, path, f"invalid JSON: {error}") from error
        if not isinstance(document, dict):
            raise self._error(Reason.MALFORMED, path, "not a JSON object")
        return document

    def _exchange(self, path: str) -> bytes:
        question = HttpRequest("GET", path, _HEADERS)
        try:
            answer = self._client.exchange(question, self._clock() + self.patience)
        except HttpError as error:
            if error.kept and error.fault in _BROKEN_OFF:  # try once more, on a new connection
                return self._exchange(path)
            reason, remedy = _FAULTS.get(error.fault, (Reason.LOST, ""))
            raise self._error(reason, path, f"{error}{remedy}") from error
        if answer.status in (401, 403):
            self._client.close()  # a new login needs a new start
        if answer.cut:
            raise self._error(Reason.MALFORMED, path, f"the response exceeds {BOUNDS.body} bytes")
        if answer.status != 200:
            reason, text = _STATUS.get(answer.status, (Reason.MALFORMED, "unexpected response"))
            raise self._error(reason, path, f"{text} (HTTP status {answer.status})")
        return answer.body

    def _error(self, reason: Reason, path: str, text: str) -> DeviceError:
        return DeviceError(reason, f"{self._url}{path}: {text}")
