"""The page at `/`: whether this node is healthy, what is wrong, and how old that is, for a browser.

Self-contained: no script, no external file, and a content security policy that enforces it. It is rendered from the
last snapshot and the alerts, so it reads no device, and it refreshes itself while it is open. Its first line is the
verdict: healthy or not, and why, the worst first.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from urllib.parse import parse_qs

from agent.catalogue import BY_NAME
from agent.health.device_facts import PORT_METRICS, PortFacts, port_facts
from agent.health.gpu_findings import LIMIT
from agent.health.ledger_states import main_states
from agent.health.seen_node import AGE, CLOCKS, JOBS, LINK_UP, POWER, SLOWDOWN, THROTTLE, SeenGpu, SeenNode
from agent.model import BackendReport, Entity, Metric, Node, Outcome, PastMoment, Snapshot
from exporters import landing_alerts, landing_parts
from exporters.endpoint import RouteContext
from exporters.headlines import WORDS, Headline, condition_lines, unjudged_line, unread_lines, well_line
from exporters.landing_alerts import Overview
from exporters.markup import (
    PAGE_END,
    TABLE_END,
    Tone,
    badge,
    cell,
    cut,
    escape,
    page_head,
    row,
    snake,
    span,
    table_head,
)
from exporters.pages import age_of

_MOST_LINES = 12
Readiness = tuple[bool, str]
"""Whether the agent is ready, and why not."""


def _state(readiness: Readiness, snapshot: Snapshot | None, node: SeenNode, alerts: Overview) -> tuple[str, str]:
    """Return the state in a word, and a banner of it and what is wrong, the worst first."""
    if snapshot is None:
        lines = [Headline(Tone.WARN, "Starting", readiness[1])]
    else:
        lines = sorted(_headlines(readiness, node, snapshot, alerts), key=lambda line: line.tone)
        lines = lines or [well_line(len(node.by_gpu), alerts.worst)]
    tone, word, _ = lines[0]
    items = "".join(f"<li>{cut(line.text)}</li>" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        items += f"<li>and {len(lines) - _MOST_LINES} more</li>"
    return word, (
        f'<section class="state {tone.css}" role="status"><h2>{tone.sign} {word}</h2><ul>{items}</ul></section>\n'
    )


def _headlines(readiness: Readiness, node: SeenNode, snapshot: Snapshot, alerts: Overview) -> Iterator[Headline]:
    ready, reason = readiness
    if not ready:
        yield from (Headline(Tone.BAD, WORDS[Tone.BAD], f"not ready: {line}") for line in reason.splitlines())
    yield from condition_lines(alerts.worst, snapshot.at.wall)
    if alerts.failed:
        text = f"rules that failed at their last evaluation: {alerts.failed}"
        yield Headline(Tone.WARN, WORDS[Tone.WARN], text)
    yield from unread_lines(node, snapshot.reports)
    if alerts.unjudged:
        yield unjudged_line(alerts.unjudged)


HOST = (
    "coldplate_node_load1", "coldplate_node_cpus", "coldplate_node_memory_available_bytes",
    "coldplate_node_memory_total_bytes",
)  # fmt: skip
REPLAY, SYNTHETIC = BY_NAME["coldplate_replay_info"], BY_NAME["coldplate_synthetic_info"]
REFRESHES_SECONDS = (0, 2, 10, 60)
"""Seconds after which the page may reload itself; 0 is never."""
REFRESH_SECONDS = 10
_MOST_FIELDS = 20
METRICS = (
    *PORT_METRICS, *landing_parts.METRICS, AGE, THROTTLE, SLOWDOWN, LINK_UP, *CLOCKS, POWER, LIMIT, *JOBS,
    "coldplate_gpu_memory_temperature_celsius", "coldplate_gpu_utilization_ratio", "coldplate_gpu_temperature_celsius",
    "coldplate_gpu_memory_used_bytes", "coldplate_gpu_memory_total_bytes", "coldplate_node_power_watts",
    "coldplate_rack_power_watts", "coldplate_rack_power_budget_watts", *HOST,
)  # fmt: skip
"""The metrics that the page shows."""


def refresh_of(query: str) -> int:
    """Return the refresh that a query string asks for; the default for a value that is not offered."""
    try:
        text = parse_qs(query, max_num_fields=_MOST_FIELDS).get("refresh", [""])[0]
    except ValueError:
        return REFRESH_SECONDS
    return next((seconds for seconds in REFRESHES_SECONDS if text == str(seconds)), REFRESH_SECONDS)


def render(view: RouteContext, pages: Sequence[tuple[str, str]], moment: float, refresh: int) -> bytes:
    """Return the HTML document for a moment of the view's clock.

    `pages` are the listed paths, each with its description. `refresh` is one of REFRESHES_SECONDS.
    """
    return "".join(_document(view, pages, moment, refresh)).encode("utf-8", "replace")


def _document(view: RouteContext, pages: Sequence[tuple[str, str]], moment: float, refresh: int) -> Iterator[str]:
    snapshot, scraped, readiness = view.all_series(), view.scraped(), view.readiness()
    groups, moments = view.rules(), view.history()
    node, now = SeenNode(METRICS), None
    if snapshot is not None:
        now = snapshot.at.wall
        node.add_snapshot(snapshot)
    devices = list(node.by_gpu.values())
    alerts = landing_alerts.overview_of(groups, now)
    states = main_states(view.ledger())
    for device in devices:
        device.conditions, device.is_judged = alerts.of_device.conditions_of(device.gpu), not alerts.unjudged
        device.state = states.get(device.gpu, "")
    ports = port_facts(node)
    word, banner = _state(readiness, snapshot, node, alerts)
    yield _head(view, snapshot, refresh, word)
    yield banner
    agent = _agent(readiness, None if snapshot is None else age_of(snapshot, moment), scraped)
    yield _summary(node, devices, ports, alerts, agent)
    rules = landing_alerts.section(alerts, now, view.runbooks)
    urgent = alerts.counts.firing > 0
    if urgent:
        yield rules
    if devices:
        yield from landing_parts.gpus_section(devices, view.runbooks, _busy_lines(moments), now)
    if not urgent:
        yield rules
    yield landing_parts.jobs_section(node, devices, now)
    yield landing_parts.fabric_section(node, ports, alerts.of_device)
    if snapshot is not None and snapshot.reports:
        yield _backends(snapshot.reports)
    yield _links(pages)
    yield PAGE_END


def _head(view: RouteContext, snapshot: Snapshot | None, refresh: int, word: str) -> str:
    node = escape(view.node)
    reload = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    scenario, synthetic = view.synthetic, ""
    if scenario is None:  # a recording of synthetic devices may be played
        scenario = (_labels_of(snapshot, SYNTHETIC) or {}).get("scenario")
    if scenario is not None:
        synthetic = (
            f'<p class="banner" role="alert">Synthetic devices, scenario {escape(scenario)}:'
            " nothing they show is real.</p>\n"
        )
    return (
        f"{page_head(f'{word}: {node}', reload)}"
        f"<header><h1>{node} <small>coldplate {escape(view.version)}</small></h1>\n"
        f"{_control(snapshot, refresh)}</header>\n"
        f"{synthetic}{_replay(snapshot)}"
    )


def _replay(snapshot: Snapshot | None) -> str:
    """Return whose past it is, where a recording or a trace is played."""
    facts = _labels_of(snapshot, REPLAY)
    if facts is None:
        return ""
    node, recorded = escape(facts.get("node", "")), escape(facts.get("recorded", ""))
    return (
        f'<p class="banner" role="alert">Replay of a recording of {node}, begun at {recorded}:'
        " nothing it shows is of this moment.</p>\n"
    )


def _labels_of(snapshot: Snapshot | None, metric: Metric) -> dict[str, str] | None:
    """Return the labels of the first series of a metric; None if it has none."""
    layouts = [frame.layout for frame in snapshot.frames] if snapshot is not None else []
    labels = (dict(series.labels) for layout in layouts for series in layout.series if series.metric is metric)
    return next(labels, None)


def _control(snapshot: Snapshot | None, refresh: int) -> str:
    """Return the time of the sample on the page, and the choice of the interval at which the page reloads."""
    at = ""
    if snapshot is not None:
        sampled = datetime.fromtimestamp(snapshot.at.wall, timezone.utc)
        at = f"sampled <b>{sampled:%Y-%m-%d %H:%M:%S} UTC</b> · "
    choices = (
        f"<b>{_every(seconds)}</b>" if seconds == refresh else f'<a href="/?refresh={seconds}">{_every(seconds)}</a>'
        for seconds in REFRESHES_SECONDS
    )
    return f"<nav>{at}refresh: {' '.join(choices)}</nav>\n"


def _every(seconds: int) -> str:
    return f"{seconds}\N{NO-BREAK SPACE}s" if seconds else "off"


def _summary(
    node: SeenNode,
    devices: Sequence[SeenGpu],
    ports: Sequence[PortFacts],
    alerts: Overview,
    agent: Iterable[tuple[str, str]],
) -> str:
    tiles = [("GPUs", _gpus(devices)), ("Alerts", landing_alerts.tile(alerts))]
    if jobs := landing_parts.held(devices):
        tiles.append(("Jobs", str(len(jobs))))
    if ports:
        up = sum(port.is_up for port in ports)
        worst = min(landing_parts.port_tone(port, alerts.of_device) for port in ports)
        tiles.append(("InfiniBand", span(min(worst, Tone.CALM), f"{up} of {len(ports)} up")))
    tiles += [*_power(node), *_host(node), *agent]
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles) + "</dl>\n"


def _agent(readiness: Readiness, age: float | None, scraped: Snapshot | None) -> Iterator[tuple[str, str]]:
    ready, text = readiness
    sampled = "no sample yet" if age is None else f"{age:.1f} s"
    yield "Sample age", sampled if ready else span(Tone.BAD, sampled)
    yield "Agent", "ready" if ready else span(Tone.BAD, cut(text))
    yield "Series", "none yet" if scraped is None else str(len(scraped))


def _gpus(devices: Sequence[SeenGpu]) -> str:
    if not devices:
        return "none"
    if all(device.is_paused for device in devices):
        return "paused"
    worst = min(map(landing_parts.gpu_tone, devices))
    answering = sum(device.up for device in devices)
    return span(min(worst, Tone.CALM), f"{answering} of {len(devices)} answer")


def _power(node: SeenNode) -> Iterator[tuple[str, str]]:
    for reading in node.all("coldplate_node_power_watts")[:1]:
        source = reading.labels.get("source", "")
        yield "Node power", f"{reading.value / 1e3:.1f} kW <small>{escape(source)}</small>"
    budgets = node.by_entity("coldplate_rack_power_budget_watts")
    for entity, watts in node.by_entity("coldplate_rack_power_watts").items():
        words = f"{watts / 1e3:.1f}"
        if (budget := budgets.get(entity)) is not None:
            words = f"{words} of {budget / 1e3:.1f}"
        yield f"Rack {escape(' '.join(value for _, value in entity.labels))}", f"{words} kW"


def _host(node: SeenNode) -> Iterator[tuple[str, str]]:
    """Yield the host's load beside its CPUs, and its memory in use, where they are read."""
    load, cpus, available, total = (node.by_entity(name).get(Node()) for name in HOST)
    if load is not None and cpus is not None:
        yield "Host load", f"{load:.1f} <small>of {cpus:.0f} CPUs</small>"
    if available is not None and total is not None:
        yield "Host memory", f"{(total - available) / 2**30:.0f} of {total / 2**30:.0f} GiB"


_BACKEND_HEADS = ("Backend", "Outcome", "Last read", "Missing", "Detail")
_TONES = {Outcome.OK: Tone.GOOD, Outcome.ABSENT: Tone.CALM, Outcome.FAILED: Tone.BAD}


def _backends(reports: tuple[BackendReport, ...]) -> str:
    rows = (
        row(
            Tone.CALM,
            cell("Backend", snake(report.backend), "first")
            + cell("Outcome", badge(_TONES[report.outcome], report.outcome.value))
            + cell("Last read", f"{report.duration * 1e3:.1f} ms", "n")
            + cell("Missing", str(len(report.gaps)), "n")
            + cell("Detail", cut(report.detail), "wide"),
        )
        for report in sorted(reports, key=lambda report: _TONES[report.outcome] is not Tone.BAD)
    )
    head = table_head("Backends", _BACKEND_HEADS, "cards", ("Last read", "Missing"))
    return head + "".join(rows) + TABLE_END


def _links(pages: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><a href="{escape(path)}">{escape(path)}</a> {description}</li>\n' for path, description in pages
    )
    return f'<h2>Pages</h2>\n<ul class="pages">\n{items}</ul>\n'


BUSY = BY_NAME["coldplate_gpu_utilization_ratio"]
LINE_SECONDS = 900.0
LINE_POINTS = 60
"""Points of a line; each is the mean of fifteen seconds."""
_LINE_HEIGHT = 14


def _busy_lines(moments: Sequence[PastMoment]) -> dict[Entity, str]:
    """Return an SVG for each GPU that is remembered."""
    if not moments:
        return {}
    end = moments[-1].wall
    sums: dict[Entity, list[float]] = {}
    counts: dict[Entity, list[int]] = {}
    for moment in moments:
        point = LINE_POINTS - 1 - int((end - moment.wall) * LINE_POINTS / LINE_SECONDS)
        if 0 <= point < LINE_POINTS:
            for layout, values in moment.parts:
                for series, value in zip(layout.series, values, strict=True):
                    if series.metric is BUSY:
                        sums.setdefault(series.entity, [0.0] * LINE_POINTS)[point] += value
                        counts.setdefault(series.entity, [0] * LINE_POINTS)[point] += 1
    return {gpu: _drawn(sums[gpu], counts[gpu]) for gpu in sums}


def _drawn(sums: Sequence[float], counts: Sequence[int]) -> str:
    """Draw the means; where nothing was read, the line is interrupted."""
    lines = []
    for is_known, points in groupby(range(LINE_POINTS), key=lambda point: counts[point] > 0):
        if is_known:
            coordinates = [
                (point, _LINE_HEIGHT + 1 - _LINE_HEIGHT * min(sums[point] / counts[point], 1.0)) for point in points
            ]
            lines.append(f'<polyline points="{" ".join(f"{x},{y:.1f}" for x, y in coordinates)}"/>')
    title = "busy in the last 15 minutes, 0 to 100 %"
    return (
        f'<svg class="line" viewBox="0 0 {LINE_POINTS} {_LINE_HEIGHT + 2}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(lines)}</svg>"
    )
