"""The past of nodes from a Prometheus server, by its `query_range`, some hours at a time.

Series of coldplate's become what they were on the node, and series of dcgm-exporter's the rows that stand for the same.
A server gives each series the newest value of the five minutes before a moment, as its rules would see it there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from agent.catalogue import BY_NAME
from agent.commands.import_.imported_sample import ImportedSample, ImportProblems, LogFormatError
from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.wording import one_line, shown
from agent.model import Entity, Labels, Metric, Reading, Series
from agent.wiring.agent_client import entity_of
from exporters.compatibility import dcgm

POINTS = 240
"""Steps that are asked for at once: an hour at 15 s; a node with 8 GPUs has 2,400 series."""
ANSWER = 512 * 2**20
"""Bytes of an answer that are taken."""
OF_TARGETS = frozenset({"__name__", "instance", "job"})
ALIASES: dict[str, tuple[Metric, float, tuple[str, ...]]] = {}
_mapped: set[tuple[str, tuple[str, ...]]] = set()
for _name in (*dcgm.DEFAULTS, *dcgm.COMMON):
    _term = _name.simple
    if _term is not None and (_term.row, _term.labels) not in _mapped:  # a second name for a series is the poorer one
        _mapped.add((_term.row, _term.labels))
        ALIASES[_name.name] = (BY_NAME[_term.row], 1 / _term.factor, _term.labels)


class HistoryQuery(NamedTuple):
    """The request to the server: series, and wall seconds."""

    selector: str
    start: float
    end: float
    step: float


class _Meaning(NamedTuple):
    """What a series of the server stands for on its node; `factor` leads to the unit of `series`.

    `instance` is empty where a label names the host, else the address at which the server scraped it.
    """

    host: str
    instance: str
    series: Series
    factor: float


_KnownSeries = dict[tuple[tuple[str, str], ...], _Meaning | None]


class _PastSeries(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Matrix(msgspec.Struct):
    result: list[_PastSeries]


class _Answer(msgspec.Struct):
    status: str
    error: str = "no reason"
    data: msgspec.Raw = msgspec.Raw(b"{}")


def node_ticks(
    target: HttpTarget, query: HistoryQuery, clock: Callable[[], float], problems: ImportProblems
) -> Iterator[ImportedSample]:
    """Yield what the nodes had, hour by hour, and in each of them node by node. Raises LogFormatError."""
    client = HttpClient(target, AnswerBounds(ANSWER), clock)
    meanings: _KnownSeries = {}
    shared: set[str] = set()
    try:
        start = query.start
        while start <= query.end:
            end = min(start + (POINTS - 1) * query.step, query.end)
            try:
                result = _result(client, target, query._replace(start=start, end=end), clock)
                samples = list(_samples(result, meanings, shared, problems))
            except (ValueError, RecursionError) as error:
                raise LogFormatError(f"{target.shown}: its answer is not a matrix of series; check --match") from error
            yield from samples
            start += POINTS * query.step
    finally:
        client.close()


def _samples(
    result: list[_PastSeries], meanings: _KnownSeries, shared: set[str], problems: ImportProblems
) -> Iterator[ImportedSample]:
    """Yield what an answer says, node by node. `shared` are the hosts of several agents, as far as is known."""
    parts: list[tuple[_PastSeries, _Meaning]] = []
    for past in result:
        key = tuple(sorted(past.metric.items()))
        if key not in meanings:
            meanings[key] = _meaning(past.metric, problems)
        meaning = meanings[key]
        if meaning is not None:
            parts.append((past, meaning))
    for host in sorted(_shared_hosts(parts) - shared):
        shared.add(host)
        problems.add(
            None, f"several instances of {shown(host)} have the same series: each is a node of its own, HOST:PORT"
        )
    nodes: defaultdict[str, defaultdict[float, dict[Series, float]]] = defaultdict(lambda: defaultdict(dict))
    for past, meaning in parts:
        low, high = meaning.series.metric.span
        is_own = meaning.instance and meaning.host in shared
        ticks = nodes[meaning.instance if is_own else meaning.host]
        for at, text in past.values:
            value = float(text) * meaning.factor
            if low <= value <= high and value < float("inf"):
                ticks[at].setdefault(meaning.series, value)
    for node, ticks in sorted(nodes.items()):
        for wall, values in sorted(ticks.items()):
            readings = tuple(Reading(series, value) for series, value in values.items())
            yield ImportedSample(wall, readings, node)


def _shared_hosts(parts: list[tuple[_PastSeries, _Meaning]]) -> set[str]:
    """Return the hosts on which two instances had the same series at the same time.

    An agent and another exporter of one host have different names, and an agent that moved to another port other times.
    """
    spans: defaultdict[tuple[str, str, Series], list[tuple[float, float, str]]] = defaultdict(list)
    for past, meaning in parts:
        if meaning.instance and past.values:
            key = (meaning.host, past.metric["__name__"], meaning.series)
            spans[key].append((past.values[0][0], past.values[-1][0], meaning.instance))
    hosts = set()
    for (host, _, _), host_spans in spans.items():
        host_spans.sort()
        if any(later[0] <= earlier[1] and later[2] != earlier[2] for earlier, later in pairwise(host_spans)):
            hosts.add(host)
    return hosts


def _result(
    client: HttpClient, target: HttpTarget, query: HistoryQuery, clock: Callable[[], float]
) -> list[_PastSeries]:
    """Return the series of the answer. Raises LogFormatError, and ValueError or RecursionError for another result."""
    parameters = urlencode({"query": query.selector, "start": query.start, "end": query.end, "step": query.step})
    path = f"{target.path.rstrip('/')}/api/v1/query_range?{parameters}"
    try:
        answer = client.exchange(HttpRequest("GET", path), clock() + target.timeout)
    except HttpError as error:
        raise LogFormatError(f"{target.shown}: {error}") from error
    if answer.cut:
        raise LogFormatError(f"{target.shown}: its answer is too long; ask for fewer series with --match")
    try:
        document = msgspec.json.decode(answer.body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise LogFormatError(
            f"{target.shown}: answers with status {answer.status} and not as a Prometheus server does; check the URL"
        ) from error
    if document.status != "success":
        raise LogFormatError(f"{target.shown}: {one_line(document.error)}")
    return msgspec.json.decode(document.data, type=_Matrix).result


def _meaning(metric: Mapping[str, str], problems: ImportProblems) -> _Meaning | None:
    """Return None for a series that coldplate has no metric for, or that lacks its labels."""
    name = metric.get("__name__", "")
    metric_row, factor, labels = BY_NAME.get(name), 1.0, dict(metric)
    if metric_row is None and name in ALIASES:
        metric_row, factor, own = ALIASES[name]
        labels = {
            "gpu": metric.get("gpu", ""),
            "uuid": metric.get("UUID", metric.get("uuid", "")),
            **dict(zip(metric_row.labels, own, strict=False)),
        }
    if metric_row is None:
        problems.add(None, f"series of {shown(name)} are left out: coldplate has no such metric")
        return None
    entity = entity_of(metric_row.entity, labels)
    if entity is None:
        problems.add(None, f"series of {name} without the labels of a {metric_row.entity.__name__} are left out")
        return None
    host = metric.get("Hostname", metric.get("hostname")) if name in ALIASES else None
    instance = metric.get("instance", "")
    series = Series(metric_row, entity, _labels(metric_row, entity, labels))
    if host:
        return _Meaning(host, "", series, factor)
    return _Meaning(instance.rpartition(":")[0] or instance, instance, series, factor)


def _labels(row: Metric, entity: Entity, labels: Mapping[str, str]) -> Labels:
    """Return the series' own labels in their order; those of the scrape are left out, but where a row has any."""
    own = (*row.labels, *row.further_labels)
    if own:
        return tuple((label, labels[label]) for label in own if label in labels)
    if row.name not in ("coldplate_alert", "coldplate_alert_text_info", "coldplate_metric_missing"):
        return ()
    return tuple(sorted(pair for pair in labels.items() if pair[0] not in OF_TARGETS | set(dict(entity.labels))))
