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

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote, urlsplit

from agent.backends.protocol import DeviceError
from agent.lib.credentials import certificates, secret
from agent.lib.textfile import ReadError
from agent.model import Reason

if TYPE_CHECKING:  # both cost memory, so they are loaded only where Redfish is configured
    import http.client
    import ssl

ROOT = "/redfish/v1/"
COLLECTION = "/redfish/v1/Chassis"
MAX_BODY = 1 << 20
MAX_CHASSIS = 64
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

PARTS = frozenset({"Component", "Module", "Card", "Cartridge"})
"""ChassisTypes that are inside a node."""
BEYOND = frozenset({"Rack", "RackGroup", "Row", "Pod", "Zone", "Shelf", "PowerStrip", "Facility"})
"""ChassisTypes that hold several nodes."""
GPU_BASEBOARD = "HGX_"
"""NVIDIA's controllers list the GPU baseboard and what is on it as chassis with this prefix."""

_STATUS = {
    401: (Reason.DENIED, "user name or password refused"),
    403: (Reason.DENIED, "the account may not read this"),
    404: (Reason.UNSUPPORTED, "not found"),
    405: (Reason.UNSUPPORTED, "not offered"),
    501: (Reason.UNSUPPORTED, "not offered"),
    429: (Reason.TIMEOUT, "too many requests"),
    503: (Reason.TIMEOUT, "the service is busy"),
}


@dataclass(frozen=True, slots=True)
class RedfishSettings:
    """Where the service is and how to log in. `password_file` holds the password alone.

    Raises ValueError for what could not work, or would send the password in clear over a network.
    """

    url: str
    username: str = ""
    password_file: str | None = None
    ca_file: str | None = None
    verify: bool = True
    chassis: str | None = None
    timeout: float = 5.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("redfish url: use https://HOST or https://HOST:PORT")
        if parts.username or parts.password or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("redfish url: give only host and port; user and password have their own keys")
        if bool(self.username) != bool(self.password_file):
            raise ValueError("redfish: username and password_file belong together; give both or neither")
        try:
            _ = parts.port
        except ValueError as error:
            raise ValueError(f"redfish url {self.url!r}: {error}; use https://HOST or https://HOST:PORT") from None
        if self.username and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("redfish url: would send the password in clear text; use https")


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
    """The path of a reference, if it stays inside the service."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    if not isinstance(path, str) or not path.startswith(ROOT) or not path.isascii() or not path.isprintable():
        return None
    return path


def is_node(chassis: dict[str, Any]) -> bool:
    """Whether a chassis may be the whole node, neither a part of it nor what holds several."""
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

    def __init__(self, config: RedfishSettings) -> None:
        self._config = config
        self._connection: http.client.HTTPConnection | None = None
        self._headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None
        self._resource: str | None = None

    def watts(self) -> float:
        """The reading, after a search if the resource that has it is not known yet."""
        try:
            if self._resource is None:
                self._resource = self._find()
            return self._reading(self._resource)
        except DeviceError as error:
            if error.reason in (Reason.UNSUPPORTED, Reason.MALFORMED):
                self._resource = None  # it is gone or has changed; one that is slow or away is asked again
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _reading(self, resource: str) -> float:
        watts = consumed_watts(self._get(resource))
        if watts is None:
            raise self._error(Reason.MALFORMED, resource, "has neither PowerConsumedWatts nor PowerWatts.Reading")
        return watts

    def _find(self) -> str:
        """Search for the resource with the largest reading."""
        if self._config.chassis is not None:
            members = [f"{COLLECTION}/{quote(self._config.chassis, safe='')}"]
        else:
            listed = _list(self._get(COLLECTION).get("Members"))
            members = [path for path in map(_link, listed) if path is not None]
        best: tuple[float, str] | None = None
        for member in members[:MAX_CHASSIS]:
            chassis = self._try(member)
            if self._config.chassis is None and not is_node(chassis):
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
        """One resource of many: without it the search goes on."""
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
        import http.client
        import ssl

        kept = self._connection is not None
        try:
            return self._request(path)
        except ssl.SSLCertVerificationError as error:
            self.close()
            remedy = "set ca_file to the controller's own, or verify: false"
            text = f"certificate not trusted: {error.verify_message}; {remedy}"
            raise self._error(Reason.DENIED, path, text) from error
        except TimeoutError as error:
            self.close()
            raise self._error(Reason.TIMEOUT, path, f"no answer within {self._config.timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept:  # the service may close a connection that was idle: once more, on a new one
                return self._exchange(path)
            raise self._error(Reason.LOST, path, f"{type(error).__name__}: {error}") from error

    def _request(self, path: str) -> bytes:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", path, headers=self._headers)
        with self._connection.getresponse() as response:
            status = response.status
            body = response.read(MAX_BODY + 1)
            if len(body) > MAX_BODY or response.will_close or status in (401, 403):
                self.close()  # what is left unread would be taken for the next answer; a new login needs a new start
        if len(body) > MAX_BODY:
            raise self._error(Reason.MALFORMED, path, f"the response exceeds {MAX_BODY} bytes")
        if status != 200:
            reason, text = _STATUS.get(status, (Reason.MALFORMED, "unexpected response"))
            raise self._error(reason, path, f"{text} (HTTP status {status})")
        return body

    def _connect(self) -> http.client.HTTPConnection:
        import http.client

        self._headers = {"Accept": "application/json", "OData-Version": "4.0", **self._authorization()}
        parts = urlsplit(self._config.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=self._config.timeout)
        return http.client.HTTPSConnection(host, parts.port, timeout=self._config.timeout, context=self._tls())

    def _authorization(self) -> dict[str, str]:
        """Basic authentication; the file is read for each connection, so that a new password is taken up."""
        if not self._config.password_file:
            return {}
        try:
            password = secret(self._config.password_file)
        except ValueError as error:
            raise DeviceError(Reason.DENIED, f"redfish password_file {error}") from error
        login = f"{self._config.username}:{password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(login).decode('ascii')}"}

    def _tls(self) -> ssl.SSLContext:
        import ssl

        if self._context is None:
            try:
                ca_file = self._config.ca_file
                self._context = ssl.create_default_context(cadata=certificates(ca_file) if ca_file else None)
            except ReadError as error:
                raise DeviceError(Reason.DENIED, f"redfish ca_file {error}") from error
            except (OSError, ssl.SSLError) as error:
                raise DeviceError(Reason.DENIED, f"redfish ca_file {ca_file}: {error.strerror or error}") from error
            if not self._config.verify:
                self._context.check_hostname = False
                self._context.verify_mode = ssl.CERT_NONE
        return self._context

    def _error(self, reason: Reason, path: str, text: str) -> DeviceError:
        return DeviceError(reason, f"{self._config.url.rstrip('/')}{path}: {text}")
