"""A management controller's Redfish service, over HTTP.

Only GET is ever sent, to the configured host alone: links to other hosts are not followed, redirects only where they
change the slash at the path's end, and proxies of the environment are not used, because each would carry the password
away. The connection is kept, since a TLS handshake takes a small controller a second or more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard
from urllib.parse import urljoin, urlsplit

import msgspec

from agent.backends.protocol import DeviceError
from agent.config.schema import BackendsConfig, ConfigError
from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.model import Reason

ROOT = "/redfish/v1/"
CHASSIS = "/redfish/v1/Chassis"
BOUNDS = AnswerBounds(body=1 << 20)
SILENCE_SECONDS = 5.0
"""Seconds without a byte after which a service has failed to answer; a whole answer may take the source's patience."""
DENIED_RETRY_SECONDS = 300.0
"""Seconds until a service that refused the login is asked again: it locks an account after a few wrong passwords."""
MOST_MEMBERS = 64
"""Members of a collection that are looked at."""

_HEADERS = (("Accept", "application/json"), ("OData-Version", "4.0"))
_BROKEN_OFF = (HttpFault.UNREACHABLE, HttpFault.GARBAGE)
_FAULTS = {
    HttpFault.UNTRUSTED: (Reason.DENIED, "; set ca_file to the controller's own, or verify: false"),
    HttpFault.UNREADABLE: (Reason.DENIED, ""),
    HttpFault.TIMEOUT: (Reason.TIMEOUT, ""),
}
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_STATUS = {
    401: (Reason.DENIED, "user name or password refused"),
    403: (Reason.DENIED, "the account may not read this"),
    404: (Reason.UNSUPPORTED, "not found"),
    405: (Reason.UNSUPPORTED, "not offered"),
    501: (Reason.UNSUPPORTED, "not offered"),
    429: (Reason.TIMEOUT, "too many requests"),
    503: (Reason.TIMEOUT, "the service is busy"),
}


def target_of(wanted: BackendsConfig) -> HttpTarget | None:
    """The management controller that is configured, if one is. Raises ConfigError."""
    if wanted.redfish is None:
        return None
    address = msgspec.structs.asdict(wanted.redfish)
    del address["chassis"]
    try:
        target = HttpTarget(**address, timeout=SILENCE_SECONDS)
        check_address(target)
    except ValueError as error:
        raise ConfigError(f"backends.redfish: {error}") from error
    return target


def check_address(target: HttpTarget) -> None:
    """Reject an address that is more than a host and port. Raises ValueError."""
    if target.path:
        raise ValueError(f"url {target.shown!r}: give only host and port: https://HOST or https://HOST:PORT")


def number(value: Any) -> float | None:
    """A finite number that a document holds, as it is or as `Reading` of a sensor's excerpt; None for all else."""
    if isinstance(value, dict):
        value = value.get("Reading")
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e9 < value < 1e9  # NaN is not


def list_in(value: Any) -> list[Any]:
    """A list that a document holds; an empty one for all else."""
    return value if isinstance(value, list) else []


def link(value: Any) -> str | None:
    """The path of a link, if it stays inside the service."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    if not isinstance(path, str) or not path.startswith(ROOT) or not path.isascii() or not path.isprintable():
        return None
    return path


def members_of(collection: dict[str, Any]) -> list[str]:
    """The paths of a collection's members, as far as they stay inside the service."""
    paths = map(link, list_in(collection.get("Members")))
    return [path for path in paths if path is not None][:MOST_MEMBERS]


def exchange(client: HttpClient, target: HttpTarget, path: str, until: float) -> HttpAnswer:
    """Ask the service for a path, by a deadline on the monotonic clock. Raises HttpError.

    Where the service has the other form of it, with or without a slash at the end, that one is asked for as well.
    """
    answer = client.exchange(HttpRequest("GET", path, _HEADERS), until)
    other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
    if (path == ROOT and answer.status == 404) or _leads_to(answer, f"{target.url.rstrip('/')}{path}", other):
        return client.exchange(HttpRequest("GET", other, _HEADERS), until)
    return answer


def _leads_to(answer: HttpAnswer, asked: str, other: str) -> bool:
    """Whether an answer redirects from the URL that was asked for to the path `other` of the same server."""
    if answer.status not in _REDIRECTS:
        return False
    try:
        here, there = urlsplit(asked), urlsplit(urljoin(asked, answer.headers.get("location", "")))
        ports = [each.port or _PORTS.get(each.scheme) for each in (here, there)]
    except ValueError:
        return False
    same = (here.scheme, here.hostname, ports[0]) == (there.scheme, there.hostname, ports[1])
    return same and (there.path, there.query) == (other, "")


class RedfishSource(Protocol):
    """What documents are read from."""

    def get(self, path: str) -> dict[str, Any]:
        """One document. Raises DeviceError."""

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        """What is wrong with one of its documents, with the whole address."""

    def close(self) -> None:
        """Let go of what is held; may be called more than once."""


class RedfishService:
    """Reads documents of one service."""

    def __init__(self, target: HttpTarget, patience: float, clock: Callable[[], float]) -> None:
        """An answer may take `patience` seconds, and be silent for the target's timeout. `clock`: monotonic seconds."""
        self._target = target
        self._patience = patience
        self._clock = clock
        self._client = HttpClient(target, BOUNDS, clock, silence=target.timeout)

    def close(self) -> None:
        self._client.close()

    def members(self, collection: str) -> list[str]:
        """The paths of a collection's members, as far as they stay inside the service. Raises DeviceError."""
        return members_of(self.get(collection))

    def attempt(self, path: str) -> dict[str, Any]:
        """One document of many: empty if it is not there, or is none. Raises DeviceError for any other reason."""
        try:
            return self.get(path)
        except DeviceError as error:
            if error.reason in (Reason.UNSUPPORTED, Reason.MALFORMED):
                return {}
            raise

    def get(self, path: str) -> dict[str, Any]:
        """One document. Raises DeviceError."""
        body = self._exchange(path)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self.error(Reason.MALFORMED, path, f"invalid JSON: {error}") from error
        if not isinstance(document, dict):
            raise self.error(Reason.MALFORMED, path, "not a JSON object")
        return document

    def _exchange(self, path: str) -> bytes:
        try:
            answer = exchange(self._client, self._target, path, self._clock() + self._patience)
        except HttpError as error:
            if error.kept and error.fault in _BROKEN_OFF:  # try once more, on a new connection
                return self._exchange(path)
            reason, remedy = _FAULTS.get(error.fault, (Reason.LOST, ""))
            raise self.error(reason, path, f"{error}{remedy}") from error
        if answer.status in (401, 403):
            self._client.close()  # a new login needs a new start
        if answer.cut:
            raise self.error(Reason.MALFORMED, path, f"the response exceeds {BOUNDS.body} bytes")
        if answer.status != 200:
            reason, text = _STATUS.get(answer.status, (Reason.MALFORMED, "unexpected response"))
            raise self.error(reason, path, f"{text} (HTTP status {answer.status})")
        return answer.body

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        """What is wrong with one of its documents, with the whole address."""
        return DeviceError(reason, f"{self._target.url.rstrip('/')}{path}: {text}")
