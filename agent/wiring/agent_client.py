"""Ask a running agent for its current sample, its alerts and its last minutes, and read its JSON as untrusted data.

Agents are named as `node7`, `node7:19400` or `https://node7:443`.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from agent.catalogue import BY_NAME
from agent.health.evaluated_rules import NO_RULES, why_unjudged
from agent.lib.http_answers import AnswerBounds, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import TLS_KEYS, HttpTarget
from agent.lib.wording import one_line, show_address
from agent.model import (
    Alert,
    BackendReport,
    Entity,
    Framer,
    Gap,
    Gpu,
    Instant,
    Labels,
    Layout,
    Metric,
    NvLink,
    Outcome,
    PastMoment,
    Phase,
    Reading,
    Reason,
    Series,
    Snapshot,
)
from agent.wiring.identity import DEFAULT_PORT

TIMEOUT_SECONDS = 3.0
"""Seconds after which an agent that has not answered counts as silent."""


def target_of(text: str, login: Mapping[str, Any] | None = None) -> HttpTarget:
    """Return the agent of this name or URL, by https if the login has something of TLS.

    Raises ValueError with the remedy.
    """
    scheme = "https" if login and any(login.get(key) for key in TLS_KEYS) else "http"
    url = text if "://" in text else f"{scheme}://{text}"
    if "://" not in text and not _has_port(text):
        url = f"{url}:{DEFAULT_PORT}"
    target = HttpTarget(url, timeout=TIMEOUT_SECONDS, **(login or {}))
    if target.path:
        raise ValueError(f"url {target.shown!r}: give the agent alone, without a path")
    return target


def name_of_target(target: HttpTarget) -> str:
    """Return what a line calls it: its host, with the port where that is not the usual one."""
    return show_address(target.host, None if target.port == DEFAULT_PORT else target.port)


def _has_port(text: str) -> bool:
    tail = text.rpartition("]")[2] if text.startswith("[") else text
    return ":" in tail


LOGIN_FILE = "--http.config.file"
REMEDIES = {
    400: "; if it speaks https, give its URL with https://",
    401: f"; give its login with {LOGIN_FILE}",
    404: "; is this the port of an agent? coldplate simulate serves metrics alone",
}
"""By the status of an answer."""
_LARGEST = sys.float_info.max
_OUTCOMES = {each.value: each for each in Outcome}
_REASONS = {each.value: each for each in Reason}
_NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time: it has not happened yet."""
_PHASES = {"pending": Phase.PENDING, "firing": Phase.FIRING}


class AgentResponseError(ValueError):
    """The response is not one of a coldplate agent; the text says what is wrong with it."""


class AgentSample(NamedTuple):
    """The answer of `/api/v1/snapshot`: `age` in seconds, the name of the node, the states of GPUs if known."""

    snapshot: Snapshot
    age: float
    node: str
    states: Mapping[Gpu, str]


class SnapshotReader:
    """Reads `/api/v1/snapshot`. Keeps the series of the answer before: they are nearly always the same."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}

    def read(self, body: bytes) -> AgentSample:
        """Return the sample. Metrics that this program does not know are left out. Raises AgentResponseError."""
        data = _data(body)
        try:
            at = Instant(_number(data["monotonic"]), _number(data["timestamp"]))
            sequence, age = int(_number(data["sequence"])), _number(data["age"])
            frame = Framer().frame(self._readings(data["readings"]))
            reports = tuple(_reports(data["reports"], data["gaps"]))
            states = {
                Gpu(str(item["gpu"]), str(item.get("uuid", ""))): str(item["state"]) for item in data.get("states", ())
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise AgentResponseError(f"the snapshot is not an agent's: {error!r}") from error
        return AgentSample(Snapshot(sequence, at, (frame,), reports), age, str(data.get("node", "")), states)

    def _readings(self, listed: list[dict[str, Any]]) -> Iterator[Reading]:
        kept: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        for item in listed:
            row, value = BY_NAME.get(item["metric"]), item["value"]
            if row is None or value is None:
                continue
            key = (row.name, tuple(item["labels"].items()))
            series = self._series.get(key) or _series(row, item["labels"])
            if series is not None and key not in kept:
                kept[key] = series
                yield Reading(series, _number(value))
        self._series = kept


def _series(row: Metric, labels: Mapping[str, Any]) -> Series | None:
    entity = _entity(row.entity, labels)
    if entity is None:
        return None
    own = ((name, str(value)) for name, value in labels.items() if name not in entity.label_names)
    return Series(row, entity, tuple(own))


def entity_of(kind: type[Entity], labels: Mapping[str, Any]) -> Entity | None:
    """Return what the labels name; None where they name nothing of this kind."""
    try:
        if kind is NvLink:
            return NvLink(Gpu(str(labels["gpu"]), str(labels["uuid"])), int(labels["link"]))
        return kind(*(str(labels[name]) for name in kind.label_names))
    except (KeyError, ValueError):
        return None


def _entity(kind: type[Entity], labels: Mapping[str, Any]) -> Entity | None:
    """Return the same; a gap may be that of all links of a GPU, and a GPU may have no uuid."""
    values = {"gpu": "", "uuid": "", **labels}
    return entity_of(Gpu if kind is NvLink and "link" not in values else kind, values)


def _reports(reports: list[dict[str, Any]], gaps: list[dict[str, Any]]) -> Iterator[BackendReport]:
    by_backend: dict[str, list[Gap]] = {}
    for item in gaps:
        row, reason = BY_NAME.get(item["metric"]), _REASONS.get(item["reason"])
        entity = None if row is None else _entity(row.entity, item["labels"])
        if row is not None and reason is not None and entity is not None:
            gap = Gap(row, entity, reason, str(item["detail"]))
            by_backend.setdefault(item["backend"], []).append(gap)
    for report in reports:
        outcome = _OUTCOMES.get(report["outcome"])
        if outcome is not None:
            name = str(report["backend"])
            yield BackendReport(
                name, outcome, _number(report["duration"]), str(report["detail"]), tuple(by_backend.get(name, ()))
            )


def read_history(body: bytes) -> list[PastMoment]:
    """Return the moments of `/api/v1/history`, the oldest first. Raises AgentResponseError."""
    data = _data(body)
    try:
        walls = [_number(stamp) for stamp in data["timestamps"]]
        columns = list(_columns(data["series"], len(walls)))
    except (KeyError, TypeError, AttributeError) as error:
        raise AgentResponseError(f"the history is not an agent's: {error!r}") from error
    return [PastMoment(wall, tuple(_parts(columns, place))) for place, wall in enumerate(walls)]


def _columns(listed: list[dict[str, Any]], moments: int) -> Iterator[tuple[Layout, list[float | None]]]:
    for item in listed:
        row = BY_NAME.get(item["metric"])
        series = None if row is None else _series(row, item["labels"])
        if series is not None and len(item["values"]) == moments:
            yield Layout((series,)), [None if value is None else _number(value) for value in item["values"]]


def _parts(columns: list[tuple[Layout, list[float | None]]], place: int) -> Iterator[tuple[Layout, tuple[float, ...]]]:
    for layout, values in columns:
        value = values[place]
        if value is not None:
            yield layout, (value,)


class AlertsResponse(NamedTuple):
    """The answer of `/api/v1/alerts`.

    `devices` says what devices that are not the node's are: synthetic or replayed. `next_evaluation` is the wall second
    at which the group of rules that waits longest is due; None while one has never been evaluated.
    """

    alerts: list[Alert]
    devices: str = ""
    has_rules: bool = False
    next_evaluation: float | None = None

    def why_unjudged(self, now: float) -> str:
        """Return why the absence of alerts proves nothing at a wall second; empty if the rules are up to date."""
        return why_unjudged(self.has_rules, self.next_evaluation, now)


def read_alerts(body: bytes) -> AlertsResponse:
    """Return the alerts of `/api/v1/alerts`, as in Prometheus's own API. Raises AgentResponseError."""
    data = _data(body)
    try:
        alerts = [_alert(item) for item in data["alerts"] if item["state"] in _PHASES]
        due = str(data.get("nextEvaluation", ""))
        evaluated_at = None if due in ("", _NEVER) else _wall(due)
        return AlertsResponse(alerts, str(data.get("devices", "")), bool(due), evaluated_at)
    except (KeyError, TypeError, AttributeError) as error:
        raise AgentResponseError(f"the alerts are not an agent's: {error!r}") from error


def _alert(document: Mapping[str, Any]) -> Alert:
    labels: Labels = tuple(sorted((str(name), str(value)) for name, value in document["labels"].items()))
    annotations = {str(name): str(value) for name, value in document["annotations"].items()}
    return Alert(
        str(document["labels"]["alertname"]),
        labels,
        _PHASES[document["state"]],
        _float(document["value"]),
        _wall(document["activeAt"]),
        annotations=annotations,
        inhibited_by=str(document.get("inhibitedBy", "")),
        fires_at=_wall(document["firesAt"]) if "firesAt" in document else None,
    )


def _wall(text: str) -> float:
    """Return seconds since the epoch of a UTC time of the API, with any number of digits behind the second."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    try:
        return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
    except ValueError as error:
        raise AgentResponseError(f"{text[:40]!r} is not a valid time: {error}") from error


def _float(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _data(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AgentResponseError("the answer is not JSON: is this the port of an agent?") from error
    if not isinstance(answer, dict) or answer.get("status") != "success" or not isinstance(answer.get("data"), dict):
        text = answer.get("error") if isinstance(answer, dict) else None
        raise AgentResponseError(str(text) if isinstance(text, str) else "the answer is not an agent's")
    data: dict[str, Any] = answer["data"]
    return data


def _number(value: object) -> float:
    """Return a finite number. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST:
        raise TypeError(f"{value!r} is not a number")
    return float(value)


MOST_BODY = 64 * 1024 * 1024
"""Bytes of a snapshot: that of the largest node has about 10 MiB."""
_OK, _NO_RULES = 200, 404


class AgentResponse(NamedTuple):
    """What an agent answered: a snapshot, or the problem that prevents one.

    Where no rules are evaluated, it has None for `alerts`; `unjudged` says why the absence of alerts proves nothing.
    `age` is that of the snapshot in seconds when it came, `mono` when that was. `past` are the minutes before the first
    answer, the oldest first. `node` is the node's own name. `states` are what GPUs did for most of the last minute,
    as far as that is known.
    """

    snapshot: Snapshot | None = None
    alerts: Sequence[Alert] | None = None
    problem: str = ""
    age: float = 0.0
    mono: float = 0.0
    past: Sequence[PastMoment] = ()
    unjudged: str = ""
    node: str = ""
    states: Mapping[Gpu, str] = MappingProxyType({})


class AgentClient:
    """Reads one agent over HTTP. `clock` reads both clocks; it is called in one thread.

    The first answer has the minutes before, too, if `with_past`.
    """

    def __init__(self, name: str, target: HttpTarget, clock: Callable[[], Instant], *, with_past: bool = True) -> None:
        self.name = name
        self._timeout = target.timeout
        self._clock = clock
        self._client = HttpClient(target, AnswerBounds(MOST_BODY), lambda: clock().mono)
        self._reader = SnapshotReader()
        self._past: list[PastMoment] | None = None if with_past else []

    def fetch(self) -> AgentResponse:
        """Return its current sample, or why there is no response. Takes no longer than the target's timeout."""
        until = self._clock().mono + self._timeout
        try:
            body = self._get("/api/v1/snapshot", until)
            assert body is not None
            sample = self._reader.read(body)
            body = self._get("/api/v1/alerts", until, optional=True)
            answer = None if body is None else read_alerts(body)
            if self._past is None:
                self._past = self._history(until)
        except HttpError as error:
            remedy = f"; name its CA as ca_file in {LOGIN_FILE}" if error.fault is HttpFault.UNTRUSTED else ""
            return self._silent(f"no answer: {self._client.masked(str(error))}{remedy}")
        except AgentResponseError as error:
            return self._silent(str(error))
        now = self._clock()
        alerts = None if answer is None else answer.alerts
        unjudged = NO_RULES if answer is None else answer.why_unjudged(now.wall)
        return AgentResponse(
            sample.snapshot, alerts, "", sample.age, now.mono, self._past, unjudged, sample.node, sample.states
        )

    def close(self) -> None:
        """Hang up; the next question opens another connection."""
        self._client.close()

    def abort(self) -> None:
        """End a question under way, from another thread."""
        self._client.abort()

    def _history(self, until: float) -> list[PastMoment]:
        """Return the past, empty if nothing usable comes: a picture without it is better than none."""
        try:
            body = self._get("/api/v1/history", until, optional=True)
            return [] if body is None else read_history(body)
        except (HttpError, AgentResponseError):
            self._client.close()
            return []

    def _get(self, path: str, until: float, *, optional: bool = False) -> bytes | None:
        answer = self._client.exchange(HttpRequest("GET", path), until)
        if answer.closes:
            self._client.close()
        if optional and answer.status == _NO_RULES:
            return None
        if answer.status != _OK or answer.cut:
            raise AgentResponseError(f"answers {path} with status {answer.status}{REMEDIES.get(answer.status, '')}")
        return answer.body

    def _silent(self, problem: str) -> AgentResponse:
        return AgentResponse(problem=one_line(problem), mono=self._clock().mono)
