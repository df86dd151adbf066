"""A management controller's Redfish service over HTTP, and one round of requests to it.

Only GET is ever sent, to the configured host alone: links to other hosts are not followed, redirects only where they
change the slash at the path's end, and proxies of the environment are not used, because each would carry the password
away. The connection is kept, since a TLS handshake takes a small controller a second or more.
"""

import json
import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from agent.backends.protocol import DeviceError
from agent.config.schema import ConfigError
from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError, HttpFault, decompressed
from agent.lib.http_client import HttpClient
from agent.lib.http_link import ACCEPT_ENCODING, HttpRequest
from agent.lib.http_target import HttpTarget
from agent.model import Metric, Reason

ROOT = "/redfish/v1/"
CHASSIS = "/redfish/v1/Chassis"
BOUNDS = AnswerBounds(body=1 << 20)
SILENCE_SECONDS = 5.0
"""Seconds without a byte after which a service has failed to answer; a whole answer may take the source's `timeout`."""
DENIED_RETRY_SECONDS = 300.0
"""Seconds until a service that refused the login is asked again: it locks an account after a few wrong passwords."""
MOST_MEMBERS = 64
"""Members of a collection that are looked at."""
LONGEST_NAME = 64
"""Characters of a resource's name that are kept."""
MAX_PAGES = 16
"""Pages of a collection that are read."""

_HEADERS = (("Accept", "application/json"), (ACCEPT_ENCODING, "gzip"), ("OData-Version", "4.0"))
"""HPE iLO 5 has documents in gzip alone, and answers 406 to who asks for none (Redfish-Mockup-Creator issue 58)."""
_BROKEN_OFF = (HttpFault.UNREACHABLE, HttpFault.GARBAGE)
_FAULTS = {
    HttpFault.UNTRUSTED: (Reason.DENIED, "; set ca_file to the controller's own, or verify: false"),
    HttpFault.UNREADABLE: (Reason.DENIED, ""),
    HttpFault.TIMEOUT: (Reason.TIMEOUT, ""),
}
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_NUMBER = re.compile(r"[+-]?[0-9]{1,12}(\.[0-9]{0,12})?")
_STATUS = {
    401: (Reason.DENIED, "user name or password refused"),
    403: (Reason.DENIED, "the account may not read this"),
    404: (Reason.UNSUPPORTED, "not found"),
    405: (Reason.UNSUPPORTED, "not offered"),
    406: (Reason.MALFORMED, "not offered as JSON, plain or in gzip"),
    501: (Reason.UNSUPPORTED, "not offered"),
    429: (Reason.TIMEOUT, "too many requests"),
    503: (Reason.TIMEOUT, "the service is busy"),
}


def make_target(service: Struct, key: str) -> HttpTarget:
    """Return the service that is configured under `key`. Raises ConfigError for more than a host and port."""
    address = asdict(service)
    address.pop("chassis", None)
    try:
        target = HttpTarget(**address, timeout=SILENCE_SECONDS)
        if target.path:
            raise ValueError(f"url {target.shown!r}: give only host and port: https://HOST or https://HOST:PORT")
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error
    return target


def as_number(value: Any) -> float | None:
    """Return a finite number, as it is, in a text or as `Reading` of a sensor's excerpt; None for all else."""
    if isinstance(value, dict):
        value = value.get("Reading")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and -1e9 < value < 1e9 else None  # NaN is not between them


def as_list(value: Any) -> list[Any]:
    """Return a list that a document holds, or the object that stands in its place as one; an empty one for all else."""
    if isinstance(value, dict) and value and not is_bare_link(value):
        return [value]
    return value if isinstance(value, list) else []


def link_path(value: Any) -> str | None:
    """Return the path of a link, if it stays inside the service."""
    return _path_in_service(value.get("@odata.id") if isinstance(value, dict) else None)


def is_bare_link(value: Any) -> bool:
    """Return whether a value is a link to a resource and holds nothing of it."""
    return isinstance(value, dict) and value.keys() == {"@odata.id"}


def _path_in_service(path: Any) -> str | None:
    if not isinstance(path, str) or not path.startswith(ROOT) or not path.isascii() or not path.isprintable():
        return None
    return path


def link_paths(value: Any) -> list[str]:
    """Return the paths of the links in a list, or of the one in its place, as far as they stay inside the service."""
    paths = map(link_path, [value] if isinstance(value, dict) else as_list(value))
    return [path for path in paths if path is not None]


def resource_id(path: str) -> str:
    """Return the last part of a resource's path, which is its Id by the specification, as a label's value."""
    return path.rstrip("/").rpartition("/")[2][:LONGEST_NAME]


def exchange(client: HttpClient, target: HttpTarget, path: str, until: float) -> HttpAnswer:
    """Ask the service for a path, by a deadline on the monotonic clock. Raises HttpError.

    Where the service has the other form of it, with or without a slash at the end, that one is asked for as well.
    """
    answer = client.exchange(HttpRequest("GET", path, _HEADERS), until)
    other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
    if (path == ROOT and answer.status == 404) or _leads_to(answer, f"{target.url.rstrip('/')}{path}", other):
        return client.exchange(HttpRequest("GET", other, _HEADERS), until)
    return answer


def _leads_to(answer: HttpAnswer, requested: str, other: str) -> bool:
    """Return whether an answer redirects from the URL that was asked for to the path `other` of the same server."""
    if answer.status not in _REDIRECTS:
        return False
    try:
        here, there = urlsplit(requested), urlsplit(urljoin(requested, answer.headers.get("location", "")))
        ports = [url.port or _PORTS.get(url.scheme) for url in (here, there)]
    except ValueError:
        return False
    same = (here.scheme, here.hostname, ports[0]) == (there.scheme, there.hostname, ports[1])
    return same and (there.path, there.query) == (other, "")


def _server_of(requested: str, location: str) -> str:
    """Return the server that a redirect leads to."""
    try:
        place = urlsplit(urljoin(requested, location))
    except ValueError:
        return "an invalid address"
    return f"{place.scheme}://{place.netloc.rpartition('@')[2]}"


class RedfishSource(Protocol):
    """What documents are read from."""

    def get(self, path: str) -> dict[str, Any]:
        """Return one document. Raises DeviceError."""

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        """Return what is wrong with one of its documents, with the whole address."""

    def close(self) -> None:
        """Release the connection; may be called more than once."""


class RedfishService:
    """Reads documents of one service."""

    def __init__(self, target: HttpTarget, timeout: float, clock: Callable[[], float], until: float = inf) -> None:
        """Wait `timeout` seconds for a whole answer, and the target's own for a byte; never beyond `until`.

        `clock` gives monotonic seconds.
        """
        self._target = target
        self._timeout = timeout
        self._clock = clock
        self._until = until
        self.accepted = False
        """Whether the service accepted the login when it last answered."""
        self._client = HttpClient(target, BOUNDS, clock, silence=target.timeout)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return one document. Raises DeviceError.

        A byte that is not UTF-8, or a control character in a text, spoils that text alone (libredfish issue 108,
        idrac_exporter issue 192).
        """
        body = self._exchange(path)
        try:
            document = json.loads(body.decode(json.detect_encoding(body), "replace"), strict=False)
        except (ValueError, RecursionError) as error:
            raise self.error(Reason.MALFORMED, path, f"invalid JSON: {error}") from error
        if not isinstance(document, dict):
            raise self.error(Reason.MALFORMED, path, "not a JSON object")
        return document

    def _exchange(self, path: str) -> bytes:
        try:
            deadline = min(self._clock() + self._timeout, self._until)
            answer = exchange(self._client, self._target, path, deadline)
        except HttpError as error:
            if error.kept and error.fault in _BROKEN_OFF:  # retry on a new connection
                return self._exchange(path)
            reason, remedy = _FAULTS.get(error.fault, (Reason.LOST, ""))
            raise self.error(reason, path, f"{error}{remedy}") from error
        if answer.status in (401, 403):
            self._client.close()  # a new login needs a new start
        if answer.status == 401 and self.accepted:
            # A busy controller rejects the login that it has just accepted (idrac_exporter issue 178). One retry: an
            # account is locked after a few wrong passwords.
            self.accepted = False
            return self._exchange(path)
        if answer.status != 200:
            reason, text = _STATUS.get(answer.status, (Reason.MALFORMED, "unexpected response"))
            if answer.status in _REDIRECTS:
                place = _server_of(f"{self._target.url}{path}", answer.headers.get("location", ""))
                text = f"redirects to {_printable(place)}, which is not followed; correct the url"
            raise self.error(reason, path, f"{text} (HTTP status {answer.status})")
        if path != ROOT:  # which is read without a login
            self.accepted = True
        return self._body_of(answer, path)

    def _body_of(self, answer: HttpAnswer, path: str) -> bytes:
        try:
            answer = decompressed(answer, BOUNDS.body)
        except HttpError as error:
            raise self.error(Reason.MALFORMED, path, str(error)) from error
        if answer.cut:
            raise self.error(Reason.MALFORMED, path, f"the response exceeds {BOUNDS.body} bytes")
        return answer.body

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        return DeviceError(reason, f"{self._target.url.rstrip('/')}{path}: {text}")


Problem = tuple[Metric, str]
"""What is wrong with a document, and the row that is missing for it."""
MOST_PROBLEMS = 8
"""Most problems of a round that are kept for one row."""
MAX_ERROR_TEXT = 120
_NEXT = "Members@odata.nextLink"
_LISTS = ("Temperatures", "LeakDetectorGroups", "Detectors")
_LISTS_OR_LINKS = ("Members", "Fans")
_LINKS = (
    "ThermalEquipment", "CDUs", "RPUs", "Pumps", "Reservoirs", "Filters", "PrimaryCoolantConnectors",
    "SecondaryCoolantConnectors", "LeakDetection", "LeakDetectors", "EnvironmentMetrics", "PowerEquipment",
    "PowerShelves", "RackPDUs", "Metrics", "Mains", "Branches", "PowerSubsystem", "PowerSupplies", "ThermalSubsystem",
    "CoolantConnectors", "ThermalMetrics", "Thermal",
)  # fmt: skip
"""Members of documents that are read, by what they are."""
_DEEPEST = 2
"""Lists in lists that are looked into: detectors in groups."""


class RedfishPoll:
    """Reads documents of `service` until `until` (monotonic seconds, by `clock`).

    What is wrong with one document, or a part of it, costs that, and is kept as a problem; what is wrong with the
    service (it does not answer, it refuses the login) ends the round.

    With `linked`, a document that is not there is a problem; else it is one that the service does not offer. `row` is
    the one that is missing for the problems of what is read next.
    """

    def __init__(
        self, service: RedfishSource, clock: Callable[[], float], row: Metric, until: float = inf, *, linked: bool
    ) -> None:
        self._service = service
        self._clock = clock
        self._until = until
        self._linked = linked
        self.row = row
        self.calls = 0
        """Documents that were asked for."""
        self.problems: list[Problem] = []
        self.fault: DeviceError | None = None
        """What is wrong with a document, of those read so far."""

    def require(self, path: str) -> dict[str, Any]:
        """Return the document, after a note of what in it cannot be understood. Raises DeviceError."""
        if self._clock() >= self._until:
            text = f"the round's time is over after {self.calls} documents: the service is too slow"
            raise self._service.error(Reason.TIMEOUT, path, text)
        self.calls += 1
        document = self._service.get(path)
        if "error" in document and "@odata.id" not in document:
            raise self._service.error(Reason.MALFORMED, path, f"an error: {_error_text(document['error'])}")
        for oddity in _oddities(document):
            self.record_problem(str(self._service.error(Reason.MALFORMED, path, oddity)))
        return document

    def read(self, path: str) -> dict[str, Any] | None:
        """Return the document; None if missing or no JSON object. Raises DeviceError for the service as a whole."""
        try:
            return self.require(path)
        except DeviceError as error:
            if error.reason not in (Reason.UNSUPPORTED, Reason.MALFORMED):
                raise
            self.record_fault(error)
            if self._linked or error.reason is not Reason.UNSUPPORTED:
                self.record_problem(str(error))
            return None

    def record_fault(self, error: DeviceError) -> None:
        """Keep the first of what is wrong with single documents; one that is not offered gives way to any other."""
        if self.fault is None or (self.fault.reason is Reason.UNSUPPORTED and error.reason is not Reason.UNSUPPORTED):
            self.fault = error

    def at(self, path: str | None) -> dict[str, Any]:
        """Return the document at a link; an empty one if it is missing."""
        return (self.read(path) if path is not None else None) or {}

    def members(self, path: str | None) -> list[str]:
        """Return the paths of the members of a collection, as many as are looked at."""
        return self.members_in(path, self.at(path))

    def members_in(self, path: str | None, collection: dict[str, Any], excluded: str | None = None) -> list[str]:
        """Return the same of a collection that has been read, on all its pages.

        Members whose Id begins with `excluded` are left out before they are counted.
        """
        members: dict[str, None] = {}
        pages: set[str] = set()
        page: dict[str, Any] | None = collection
        while page is not None:
            for member in link_paths(page.get("Members")):
                if excluded is None or not resource_id(member).startswith(excluded):
                    members[member] = None
            following = page.get(_NEXT)
            page = self._next_page(following, pages) if len(members) < MOST_MEMBERS else None
            if page is None and (following is not None or len(members) > MOST_MEMBERS):
                self.record_problem(f"{path}: only the first {min(len(members), MOST_MEMBERS)} members are read")
        return list(members)[:MOST_MEMBERS]

    def _next_page(self, link: Any, pages: set[str]) -> dict[str, Any] | None:
        """Return the page at a link; None without one, or if it is one of the `pages` that were read."""
        path = _path_in_service(link)
        if path is None or path in pages or len(pages) + 1 >= MAX_PAGES:
            return None
        pages.add(path)
        return self.read(path)

    def record_problem(self, problem: str) -> None:
        """Keep a problem, one of the first few."""
        texts = [text for row, text in self.problems if row is self.row]
        if len(texts) < MOST_PROBLEMS and problem not in texts:
            self.problems.append((self.row, problem))


def _oddities(document: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield what is of another type than the schemas have it, of what is read, so that it cannot be understood."""
    if not isinstance(document.get("Status", {}), dict | None):
        yield "Status is not an object"
    for name in _LINKS:
        if not _may_be_link(document.get(name)):
            yield f"{name} is not a link"
    for name in (*_LISTS, *_LISTS_OR_LINKS):
        listed = document.get(name)
        if listed is None or (name in _LISTS_OR_LINKS and is_bare_link(listed) and _may_be_link(listed)):
            continue
        if isinstance(listed, list) or (isinstance(listed, dict) and not is_bare_link(listed)):
            yield from _odd_entries(name, as_list(listed), depth)
        else:
            yield f"{name} is not a list"


def _odd_entries(name: str, listed: list[Any], depth: int) -> Iterator[str]:
    for place, entry in enumerate(listed):
        if not isinstance(entry, dict):
            yield f"{name}[{place}] is not an object"
        elif name == "Members":
            if not _may_be_link(entry):
                yield f"{name}[{place}] is not a link"
        elif depth < _DEEPEST:
            yield from (f"{name}[{place}]: {oddity}" for oddity in _oddities(entry, depth + 1))


def _may_be_link(value: Any) -> bool:
    """Return whether it is absent or a link, which may lead elsewhere."""
    return not value or (isinstance(value, dict) and isinstance(value.get("@odata.id", ""), str))


def _error_text(error: Any) -> str:
    """Return what an error body says, as one short line."""
    text = error.get("message") or error.get("code") if isinstance(error, dict) else error
    return _printable(str(text))


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_ERROR_TEXT])
