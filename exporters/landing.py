"""The page at `/`: whether this node is healthy, what is wrong, and how old that is, for a browser.

Self-contained: no script, no external file, and a content security policy that enforces it. It is rendered from the
last snapshot and the alerts, so it reads no device, and it refreshes itself while it is open. Its first line is the
verdict: healthy or not, and why, the worst first.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from urllib.parse import parse_qs

from agent.catalogue import BY_NAME
from agent.health import device_states
from agent.health.device_states import ComparedGpus, PortState
from agent.health.seen_node import DRIVER, JOBS, LINK_UP, RECOVERY, XID, SeenGpu, SeenNode, numbers
from agent.health.verdicts import is_bad, power_verdict
from agent.model import BackendReport, Entity, Gpu, Metric, Node, Outcome, PastMoment, Snapshot
from exporters import landing_alerts, landing_parts
from exporters.endpoint import RouteContext
from exporters.landing_alerts import Overview
from exporters.markup import (
    PAGE_END,
    TABLE_END,
    TONES,
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

_WORDS = {Tone.BAD: "Critical", Tone.WARN: "Degraded", Tone.CALM: "Unknown", Tone.GOOD: "OK"}
_MOST_NAMES = 12


Readiness = tuple[bool, str]
"""Whether the agent is ready, and why not."""


def _state(readiness: Readiness, snapshot: Snapshot | None, found: SeenNode, alerts: Overview) -> tuple[str, str]:
    """Return the state in a word, and a banner of it and what is wrong, the worst first."""
    if snapshot is None:
        tone, word, lines = Tone.WARN, "Starting", [readiness[1]]
    else:
        troubles = sorted(_troubles(readiness, found, snapshot.reports, alerts), key=lambda each: each[0])
        tone = troubles[0][0] if troubles else Tone.GOOD
        word, lines = _WORDS[tone], [text for _, text in troubles] or [_peace(len(found.by_gpu), alerts)]
    items = "".join(f"<li>{cut(text)}</li>" for text in lines)
    return word, (
        f'<section class="state {tone.css}" role="status"><h2>{tone.sign} {word}</h2><ul>{items}</ul></section>\n'
    )


def _troubles(
    readiness: Readiness, found: SeenNode, reports: Sequence[BackendReport], alerts: Overview
) -> Iterator[tuple[Tone, str]]:
    ready, why = readiness
    if not ready:
        yield from ((Tone.BAD, f"not ready: {line}") for line in why.splitlines())
    yield from _silent(list(found.by_gpu.values()), found.expected_gpus)
    for tone, severity in ((Tone.BAD, "critical"), (Tone.WARN, "warning")):
        if names := sorted(alerts.names[tone]):
            some = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            yield tone, f"{severity}: {some}"
    by_word: dict[tuple[Tone, str], list[Gpu]] = {}
    for device in found.by_gpu.values():
        if device.up:
            bad = ((TONES[each.verdict], each.word) for each in device.findings if is_bad(each.verdict))
            for key in dict.fromkeys(bad):
                by_word.setdefault(key, []).append(device.gpu)
    for (tone, what), gpus in by_word.items():
        yield tone, f"{what}: {numbers(gpus)}"
    for report in reports:
        if report.outcome is Outcome.FAILED:
            yield Tone.WARN, f"{report.backend} cannot be read: {report.detail or 'no reason given'}"
    if alerts.failed:
        yield Tone.WARN, f"rules that failed at their last evaluation: {alerts.failed}"
    yield from _unknown(found, reports)


def _unknown(found: SeenNode, reports: Sequence[BackendReport]) -> Iterator[tuple[Tone, str]]:
    """Yield what cannot be judged: without a GPU, or a reading of one, the node is neither well nor ill."""
    if not found.by_gpu and not found.expected_gpus:
        details = (report.detail for report in reports if report.backend == DRIVER and report.outcome is Outcome.ABSENT)
        detail = next(details, "")
        yield Tone.CALM, f"no GPU here: {detail}" if detail else "no GPU here"
    if unknown := [device.gpu for device in found.by_gpu.values() if device.up and not device.is_known]:
        yield Tone.CALM, f"neither utilization nor power can be read: {numbers(unknown)}"


def _silent(devices: Sequence[SeenGpu], expected: int | None) -> Iterator[tuple[Tone, str]]:
    known = len(devices)
    silent = [device for device in devices if not device.up and not device.is_paused]
    if paused := [device for device in devices if device.is_paused and not device.up]:
        yield Tone.WARN, f"{numbers(each.gpu for each in paused)} {paused[0].findings[0].text}"
    expected = known if expected is None else expected
    if silent:
        names = ", ".join(f"GPU {each.gpu.index} ({each.word})" for each in silent)
        yield Tone.BAD, f"{known - len(silent)} of {max(known, expected)} GPUs answer, missing: {names}"
    if known < expected:
        yield Tone.BAD, f"{known} of {expected} GPUs are present"


def _peace(count: int, alerts: Overview) -> str:
    gpus = f"all {count} GPUs answer" if count > 1 else "the GPU answers"
    return f"{gpus}, and nothing fires" if not alerts.counts.firing else gpus


HOST = (
    "coldplate_node_load1", "coldplate_node_cpus", "coldplate_node_memory_available_bytes",
    "coldplate_node_memory_total_bytes",
)  # fmt: skip
REPLAY, SYNTHETIC = BY_NAME["coldplate_replay_info"], BY_NAME["coldplate_synthetic_info"]
REFRESHES_SECONDS = (0, 2, 10, 60)
"""Seconds after which the page may reload itself; 0 is never."""
REFRESH_SECONDS = 10
_MOST_FIELDS = 20
_ENOUGH_GPUS = 8
"""GPUs that are judged without a break: about a millisecond."""
METRICS = (
    *device_states.METRICS, *landing_parts.METRICS, RECOVERY, LINK_UP, XID, *JOBS,
    "coldplate_gpu_utilization_ratio", "coldplate_gpu_temperature_celsius", "coldplate_gpu_memory_used_bytes",
    "coldplate_gpu_memory_total_bytes", "coldplate_node_power_watts", "coldplate_rack_power_watts",
    "coldplate_rack_power_budget_watts", *HOST,
)  # fmt: skip
"""The metrics that the page shows."""


def refresh_of(query: str) -> int:
    """Return the refresh that a query string asks for; the default for a value that is not offered."""
    try:
        asked = parse_qs(query, max_num_fields=_MOST_FIELDS).get("refresh", [""])[0]
    except ValueError:
        return REFRESH_SECONDS
    return next((each for each in REFRESHES_SECONDS if asked == str(each)), REFRESH_SECONDS)


def pieces(view: RouteContext, pages: Sequence[tuple[str, str]], moment: float, refresh: int) -> Iterator[bytes]:
    """Yield the HTML document, piece by piece, for a moment of the view's clock.

    `pages` are the listed paths, each with its description. `refresh` is one of REFRESHES_SECONDS.
    """
    for part in _document(view, pages, moment, refresh):
        yield part.encode("utf-8", "replace")


def _document(view: RouteContext, pages: Sequence[tuple[str, str]], moment: float, refresh: int) -> Iterator[str]:
    snapshot, scraped, readiness = view.all_series(), view.scraped(), view.readiness()
    groups, moments = view.rules(), view.history()
    found, now = SeenNode(METRICS), None
    if snapshot is not None:
        now = snapshot.at.wall
        yield from found.look(snapshot)
    devices = list(found.by_gpu.values())
    yield ""
    alerts = yield from landing_alerts.look_at(groups, [device.gpu for device in devices])
    peers = ComparedGpus(devices)
    for count, device in enumerate(devices):
        if count % _ENOUGH_GPUS == 0:
            yield ""
        device.alerts = alerts.of_gpu.get(device.gpu, [])
        peers.judge(device, now)
    ports = device_states.port_states(found)
    yield ""
    word, banner = _state(readiness, snapshot, found, alerts)
    yield _head(view, snapshot, refresh, word)
    yield banner
    agent = _agent(readiness, None if snapshot is None else age_of(snapshot, moment), scraped)
    yield _summary(found, devices, ports, alerts, agent)
    rules = landing_alerts.section(alerts, now, view.runbooks)
    urgent = alerts.counts.firing > 0
    if urgent:
        yield rules
    if devices:
        lines = yield from _busy_lines(moments)
        yield from landing_parts.gpus_section(devices, view.runbooks, lines)
    if not urgent:
        yield rules
    yield landing_parts.jobs_section(found, devices, now)
    yield landing_parts.fabric_section(found, ports)
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
    found = (dict(each.labels) for layout in layouts for each in layout.series if each.metric is metric)
    return next(found, None)


def _control(snapshot: Snapshot | None, refresh: int) -> str:
    """Return the time of the sample on the page, and the choice of the interval at which the page reloads."""
    at = ""
    if snapshot is not None:
        sampled = datetime.fromtimestamp(snapshot.at.wall, timezone.utc)
        at = f"sampled <b>{sampled:%Y-%m-%d %H:%M:%S} UTC</b> · "
    choices = (
        f"<b>{_every(each)}</b>" if each == refresh else f'<a href="/?refresh={each}">{_every(each)}</a>'
        for each in REFRESHES_SECONDS
    )
    return f"<nav>{at}refresh: {' '.join(choices)}</nav>\n"


def _every(seconds: int) -> str:
    return f"{seconds}\N{NO-BREAK SPACE}s" if seconds else "off"


def _summary(
    found: SeenNode,
    devices: Sequence[SeenGpu],
    ports: Sequence[PortState],
    alerts: Overview,
    agent: Iterable[tuple[str, str]],
) -> str:
    tiles = [("GPUs", _gpus(devices)), ("Alerts", landing_alerts.tile(alerts))]
    if jobs := landing_parts.held(devices):
        tiles.append(("Jobs", str(len(jobs))))
    if ports:
        up = sum(port.is_up for port in ports)
        words = f"{up} of {len(ports)} up"
        tiles.append(("InfiniBand", words if up == len(ports) else span(Tone.WARN, words)))
    tiles += [*_power(found), *_host(found), *agent]
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
        return span(Tone.WARN, "paused")
    answering = sum(device.up for device in devices)
    return span(Tone.CALM if answering == len(devices) else Tone.BAD, f"{answering} of {len(devices)} answer")


def _power(found: SeenNode) -> Iterator[tuple[str, str]]:
    for reading in found.all("coldplate_node_power_watts")[:1]:
        source = reading.labels.get("source", "")
        yield "Node power", f"{reading.value / 1e3:.1f} kW <small>{escape(source)}</small>"
    budgets = found.by_entity("coldplate_rack_power_budget_watts")
    for entity, watts in found.by_entity("coldplate_rack_power_watts").items():
        words = f"{watts / 1e3:.1f}"
        if (budget := budgets.get(entity)) is not None:
            words = span(TONES[power_verdict(watts, budget)], f"{words} of {budget / 1e3:.1f}")
        yield f"Rack {escape(' '.join(value for _, value in entity.labels))}", f"{words} kW"


def _host(found: SeenNode) -> Iterator[tuple[str, str]]:
    """Yield the host's load beside its CPUs, and its memory in use, where they are read."""
    load, cpus, available, total = (found.by_entity(name).get(Node()) for name in HOST)
    if load is not None and cpus is not None:
        yield "Host load", f"{load:.1f} <small>of {cpus:.0f} CPUs</small>"
    if available is not None and total is not None:
        yield "Host memory", f"{(total - available) / 2**30:.0f} of {total / 2**30:.0f} GiB"


_BACKEND_HEADS = ("Backend", "Outcome", "Last read", "Missing", "Detail")
_TONES = {Outcome.OK: Tone.GOOD, Outcome.ABSENT: Tone.CALM, Outcome.FAILED: Tone.BAD}


def _backends(reports: tuple[BackendReport, ...]) -> str:
    rows = (
        row(
            Tone.BAD if report.outcome is Outcome.FAILED else Tone.CALM,
            cell("Backend", snake(report.backend), "first")
            + cell("Outcome", badge(_TONES[report.outcome], report.outcome.value))
            + cell("Last read", f"{report.duration * 1e3:.1f} ms", "n")
            + cell("Missing", str(len(report.gaps)), "n")
            + cell("Detail", cut(report.detail), "wide"),
        )
        for report in sorted(reports, key=lambda each: _TONES[each.outcome] is not Tone.BAD)
    )
    head = table_head("Backends", _BACKEND_HEADS, "cards", ("Last read", "Missing"))
    return head + "".join(rows) + TABLE_END


def _links(pages: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a> {what}</li>\n' for path, what in pages)
    return f'<h2>Pages</h2>\n<ul class="pages">\n{items}</ul>\n'


BUSY = BY_NAME["coldplate_gpu_utilization_ratio"]
LINE_SECONDS = 900.0
LINE_POINTS = 60
"""Points of a line; each is the mean of fifteen seconds."""
_LINE_HEIGHT = 14
_PAUSE = 32
"""Moments that are looked at without a break: some tenths of a millisecond for eight GPUs."""


def _busy_lines(moments: Sequence[PastMoment]) -> Generator[str, None, dict[Entity, str]]:
    """Return an SVG for each GPU that is remembered; yields empty texts often, as pauses for other clients."""
    if not moments:
        return {}
    end = moments[-1].wall
    sums: dict[Entity, list[float]] = {}
    counts: dict[Entity, list[int]] = {}
    for number, moment in enumerate(moments):
        point = LINE_POINTS - 1 - int((end - moment.wall) * LINE_POINTS / LINE_SECONDS)
        if 0 <= point < LINE_POINTS:
            for layout, values in moment.parts:
                for series, value in zip(layout.series, values, strict=True):
                    if series.metric is BUSY:
                        sums.setdefault(series.entity, [0.0] * LINE_POINTS)[point] += value
                        counts.setdefault(series.entity, [0] * LINE_POINTS)[point] += 1
        if number % _PAUSE == 0:
            yield ""
    return {gpu: _drawn(sums[gpu], counts[gpu]) for gpu in sums}


def _drawn(sums: Sequence[float], counts: Sequence[int]) -> str:
    """Draw the means; where nothing was read, the line is interrupted."""
    lines = []
    for is_known, points in groupby(range(LINE_POINTS), key=lambda point: counts[point] > 0):
        if is_known:
            known = [
                (point, _LINE_HEIGHT + 1 - _LINE_HEIGHT * min(sums[point] / counts[point], 1.0)) for point in points
            ]
            lines.append(f'<polyline points="{" ".join(f"{x},{y:.1f}" for x, y in known)}"/>')
    title = "busy in the last 15 minutes, 0 to 100 %"
    return (
        f'<svg class="line" viewBox="0 0 {LINE_POINTS} {_LINE_HEIGHT + 2}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(lines)}</svg>"
    )
