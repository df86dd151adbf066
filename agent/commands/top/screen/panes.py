"""Draw what surrounds the table of GPUs: the head, what is wrong, the node's line, the panels, one GPU, the help."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain

from rich.text import Text

from agent.commands.top.screen import text_layout
from agent.commands.top.screen.gpu_table import GIB, process_lines, throttle_part
from agent.commands.top.screen.key_input import UiState
from agent.commands.top.screen.node_samples import NVLINK, PCIE
from agent.commands.top.screen.node_view import GpuView, NodeView, PortView
from agent.commands.top.screen.text_layout import ABSENT, BOLD, DIM, HEAD, STYLES, Part, TextLayout, panel, sentence
from agent.commands.top.screen.view_builder import ScreenData, gpu_names
from agent.health.conditions import ConditionCounts, counts_now, order_of, phase_text
from agent.lib.wording import age
from agent.model import Alert
from exporters.headlines import Headline, tone_of, well_line
from exporters.landing_parts import JobFacts, job_key, name_of
from exporters.markup import Tone

WIDE = 120
"""Columns from which the host has its place in the node's line."""
NARROW = 40
"""Columns below which nothing but the trouble itself is shown in its line."""


def head_line(scene: ScreenData, state: UiState, layout: TextLayout) -> Text:
    """Return which node or how many, what is in it, and the time of what is shown."""
    nodes, wall = scene.nodes, scene.wall
    parts: list[Part | str] = [("coldplate ", BOLD)]
    if len(nodes) == 1:
        parts += [(f" {nodes[0].name}", BOLD), f"  {_devices(nodes[0])}"]
    else:
        silent = sum(1 for node in nodes if node.problem)
        count = sum(len(node.gpus) for node in nodes)
        parts += [f" {len(nodes)} nodes, {count} GPUs", (f", {silent} silent" if silent else "", STYLES[Tone.BAD])]
    replayed = sorted({node.replayed for node in nodes if node.replayed})
    if replayed:
        parts.append((f"  REPLAY of {', '.join(replayed)}", STYLES[Tone.WARN]))
    scenarios = sorted({node.scenario for node in nodes if node.scenario})
    if scenarios:
        parts.append((f"  SYNTHETIC {', '.join(scenarios)}", STYLES[Tone.WARN]))
    at = "" if wall is None else f"{datetime.fromtimestamp(wall, timezone.utc).astimezone():%H:%M:%S}"
    if state.is_frozen:
        return layout.left_and_right([*parts, ("  FROZEN", "reverse")], at)
    origin = f"{nodes[0].origin}, " if len(nodes) == 1 else ""
    often = f"every {scene.interval:g} s"
    return layout.left_and_right(parts, f"{at}  {origin}{often}", f"{at}  {often}", at)


def _devices(node: NodeView) -> str:
    if not node.gpus:
        return "GPUs unknown" if node.problem else "no GPU"
    models = ", ".join(model.removeprefix("NVIDIA ") for model in node.models)
    drivers = f"  driver {', '.join(node.drivers)}" if node.drivers else ""
    return (f"{len(node.gpus)} x {models}" if models else f"{len(node.gpus)} GPUs") + drivers


def verdict(nodes: Sequence[NodeView], troubles: Sequence[Headline], layout: TextLayout, most: int) -> list[Text]:
    """Return what is wrong in a limited number of lines, the worst first; a line says how many more there are."""
    troubles = troubles or [_well_headline(nodes)]
    if most == 1:
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 and layout.width >= NARROW else ""
        cut = layout.cut(troubles[0].text, max(layout.width - 2 - len(more), layout.width // 2))
        return list(sentence(layout, troubles[0].tone, cut + more, 1))
    lines: list[Text] = []
    for place, trouble in enumerate(troubles):
        remaining = most - len(lines)
        more_follow = place + 1 < len(troubles)
        if remaining == 1 and more_follow:
            lines.append(layout.line((f"  and {len(troubles) - place} more", DIM)))
            break
        lines += sentence(layout, trouble.tone, trouble.text, min(2, max(remaining - more_follow, 1)))
    return lines


def _well_headline(nodes: Sequence[NodeView]) -> Headline:
    conditions = [alert for node in nodes for alert in node.alerts or ()]
    return well_line(sum(len(node.gpus) for node in nodes), conditions)


def node_line(nodes: Sequence[NodeView], layout: TextLayout) -> Text:
    """Return how many alerts, power against the rack's budget, and fabric; of many nodes their sums."""
    powers = [node.power for node in nodes if node.power is not None]
    source = f" ({nodes[0].power_source})" if len(nodes) == 1 and nodes[0].power_source else ""
    power = f"{text_layout.kilowatts(sum(powers))} kW{source}" if powers else ABSENT
    fabric = _fabric([port for node in nodes for port in node.ports])
    counts = ConditionCounts()
    for alert in chain.from_iterable(node.alerts or () for node in nodes):
        counts.add(alert)
    is_known = counts.total > 0 or not any(node.unjudged or node.alerts is None for node in nodes)
    alerts = (counts.text if is_known else "n/a", STYLES[Tone.WARN] if counts.firing else "")
    parts: list[Part | str] = [("alerts ", DIM), alerts, ("  power ", DIM), power, *_rack(nodes, layout), *fabric]
    if len(nodes) == 1 and layout.width >= WIDE:
        parts += _host(nodes[0])
    return layout.line(*parts)


def _host(node: NodeView) -> Iterator[Part | str]:
    """Yield load and memory of the host, where they are read."""
    if node.host_load is not None:
        load, cpus = node.host_load
        yield from (("  load ", DIM), f"{load:.1f}/{cpus:.0f} CPUs")
    if node.host_memory is not None:
        used, total = node.host_memory
        yield from (("  mem ", DIM), f"{used * GIB:.0f}/{total * GIB:.0f}G")


def _rack(nodes: Sequence[NodeView], layout: TextLayout) -> list[Part | str]:
    racks = {node.rack: node for node in nodes if node.rack and node.rack_budget}
    parts: list[Part | str] = []
    for name, node in list(racks.items())[:2]:
        power, budget = node.rack_power, node.rack_budget
        share = None if power is None or not budget else power / budget
        text = f"{text_layout.kilowatts(power)}/{text_layout.kilowatts(budget)} kW"
        bar = f" {layout.glyphs.bar(share, 8)}" if layout.width >= 100 and share is not None else ""
        parts += [(f"  rack {name} ", DIM), text + bar]
    return parts


def _fabric(ports: Sequence[PortView]) -> list[Part | str]:
    if not ports:
        return []
    up = sum(1 for port in ports if port.state.is_up)
    bad = any(port.tone <= Tone.WARN for port in ports)
    received = _sum_if_complete([port.received for port in ports])
    sent = _sum_if_complete([port.sent for port in ports])
    return [
        ("  IB ", DIM),
        (f"{up}/{len(ports)} up", STYLES[Tone.WARN] if bad else ""),
        f" in {text_layout.gigabits(received)} out {text_layout.gigabits(sent)} Gb/s",
    ]


def _sum_if_complete(rates: Sequence[float | None]) -> float | None:
    known_rates = [rate for rate in rates if rate is not None]
    return sum(known_rates) if len(known_rates) == len(rates) else None


DESCRIBED = 4
"""Most alerts of which those that fire have a line with their description as well."""


def alert_lines(nodes: Sequence[NodeView], wall: float | None, layout: TextLayout) -> list[Text]:
    """Return alerts, those that fire first and effects after causes, with their summary where there is room."""
    many = len(nodes) > 1
    alerts = [(node, alert) for node in nodes for alert in node.alerts or ()]
    alerts.sort(key=lambda pair: order_of(pair[1]))
    lines = []
    for node, alert in alerts:
        lines.append(_alert(node.name if many else "", alert, wall, layout))
        description = alert.annotations.get("description", "")
        if description and counts_now(alert) and len(alerts) <= DESCRIBED:
            lines.append(layout.line(("  " + description, DIM)))
    return lines


def _alert(node: str, alert: Alert, wall: float | None, layout: TextLayout) -> Text:
    labels, tone = dict(alert.labels), tone_of(alert)
    names = {"gpu": "GPU", "device": "port", "job_id": "job"}
    subject = " ".join([node, *(f"{names[name]} {labels[name]}" for name in names if labels.get(name))]).strip()
    since = "" if wall is None else age(wall - alert.active_at)
    return layout.line(
        (f"{layout.glyphs.marks[tone]} ", STYLES[tone]),
        (layout.pad(alert.rule, min(24, max(layout.width - 20, 10))), STYLES[tone]),
        f" effect of {alert.inhibited_by} " if alert.inhibited_by else "",  # first: it must not be cut
        f" {labels.get('severity', ''):<8} {phase_text(alert, wall):<7} {since:<9} ",
        subject + "  " if subject else "",
        (alert.annotations.get("summary", ""), DIM),
    )


def job_lines(nodes: Sequence[NodeView], wall: float | None, layout: TextLayout) -> list[Text]:
    """Return a line for each job that holds GPUs here."""
    facts = {key: job_facts for node in nodes for key, job_facts in node.jobs.items()}
    return [
        _job(job, where, gpus, facts.get(job_key(job), JobFacts()), wall, layout)
        for job, where, gpus in jobs_of([gpu for node in nodes for gpu in node.gpus], len(nodes) > 1)
    ]


def _job(
    job: Mapping[str, str], where: str, gpus: Sequence[GpuView], facts: JobFacts, wall: float | None, layout: TextLayout
) -> Text:
    labels = {**job, **facts.labels}
    place = ", ".join(filter(None, (labels.get("account", ""), labels.get("partition", ""))))
    alone = [gpu for gpu in gpus if len(gpu.row.jobs) == 1]
    powers = [power for gpu in alone if (power := gpu.value("power_watts")) is not None]
    busy = [gpu.row.busy for gpu in alone if gpu.row.busy is not None]
    share = f"{text_layout.percent(sum(busy) / len(busy) if busy else None)} busy"
    kilowatts = text_layout.kilowatts(sum(powers) if powers else None)
    return layout.line(
        (f"  {layout.pad(name_of(labels) or ABSENT, 10)} ", BOLD),
        f"{layout.pad(labels.get('user', '') or ABSENT, 8)} {layout.pad(labels.get('name', '') or ABSENT, 14)} ",
        f"{where}  {share}  {kilowatts} kW  " if alone else f"{where}  shared  ",
        f"{age(wall - facts.start)}  " if wall is not None and facts.start is not None else "",
        f"{facts.energy / 3.6e6:.1f} kWh  " if facts.energy is not None else "",
        (place, DIM),
    )


def port_lines(nodes: Sequence[NodeView], layout: TextLayout, only_bad: bool) -> list[Text]:
    """Return a line for each port, those in trouble first."""
    many = len(nodes) > 1
    ports = [(node.name if many else "", port) for node in nodes for port in node.ports]
    ports.sort(key=lambda pair: min(pair[1].tone, Tone.CALM))
    return [_port(node, port, layout) for node, port in ports if not only_bad or port.tone <= Tone.WARN]


def _port(node: str, port: PortView, layout: TextLayout) -> Text:
    grown = ", ".join(f"{counter} +{amount:.0f}/min" for counter, amount in port.growth.items())
    full = port.received is not None and port.sent is not None and port.state.rate
    share = max(port.received or 0.0, port.sent or 0.0) / port.state.rate if full and port.state.rate else None
    return layout.line(
        (f"{layout.glyphs.marks[port.tone]} ", STYLES[port.tone]),
        f"{node} " if node else "",
        (layout.pad(port.name, 10), ""),
        (f" {port.state.word:<6}", STYLES[port.tone]),
        f" in {text_layout.gigabits(port.received):>5} out {text_layout.gigabits(port.sent):>5} Gb/s",
        f" of {text_layout.gigabits(port.state.rate)}" if port.state.rate is not None else "",
        f" {layout.glyphs.bar(share, 10)} " if layout.width >= 100 and share is not None else "  ",
        (f"{port.state.link}  " if not port.state.is_up else "", DIM),
        grown,
    )


def jobs_of(gpus: Sequence[GpuView], many: bool) -> Iterator[tuple[Mapping[str, str], str, list[GpuView]]]:
    """Yield each job with its facts, the GPUs that it holds in short, and those GPUs."""
    held: dict[tuple[str, str], tuple[Mapping[str, str], list[GpuView]]] = {}
    for gpu in gpus:
        for key, job in {job_key(job): job for job in gpu.row.jobs}.items():  # a job may hold several of its instances
            held.setdefault(key, (job, []))[1].append(gpu)
    for key in sorted(held):
        facts, holders = held[key]
        nodes = {gpu.node for gpu in holders}
        where = gpu_names(holders, many) if len(nodes) == 1 else f"{len(holders)} GPUs of {len(nodes)} nodes"
        yield facts, where, holders


CHART_LINES = 4
GRID_WIDTH = 39


def zoom_lines(node: NodeView, gpu: GpuView, layout: TextLayout) -> list[Text]:
    """Return the pane from top to bottom; the caller cuts it if there is less room."""
    facts = gpu.row.facts
    about = "  ".join(filter(None, (facts.get("model", ""), facts.get("slot", ""), facts.get("serial", ""))))
    lines = [
        layout.line((f"GPU {gpu.index}  ", BOLD), (gpu.row.shown_word or ABSENT, STYLES[gpu.tone]), (f"  {about}", DIM))
    ]
    lines.append(layout.line((gpu.row.gpu.uuid, DIM)))
    if gpu.row.silence_text:
        lines += sentence(layout, Tone.UNKNOWN, gpu.row.silence_text)
    elif not gpu.row.is_known:
        lines += sentence(
            layout, Tone.UNKNOWN, "its driver reports neither utilization nor power: its state is unknown"
        )
    elif node.unjudged and not gpu.row.conditions:
        lines += sentence(layout, Tone.UNKNOWN, f"{node.unjudged}: it is not judged")
    elif not gpu.row.conditions:
        lines += sentence(layout, Tone.GOOD, "no alert names this GPU")
    lines += _grid([*_values(gpu, layout)], layout)
    lines += process_lines(node, gpu, layout)
    lines += _chart("BUSY", gpu.busy_history, 1.0, "100%", layout)
    limit = gpu.value("power_limit_watts")
    if limit:
        lines += _chart("POWER", gpu.power_history, limit, f"{limit:.0f} W", layout)
    grown = [layout.line(f"  {counter}  +{amount:.0f}") for counter, amount in gpu.growth.items() if amount > 0]
    lines += panel("GREW IN THE LAST MINUTE", grown, None, layout)
    return lines + panel("ALERTS", _alerts(node, gpu, layout), None, layout)


def _alerts(node: NodeView, gpu: GpuView, layout: TextLayout) -> list[Text]:
    """Return the alerts of the GPU, each with its description, the changes before it, and its command."""
    lines = []
    for alert in gpu.row.conditions:
        lines.append(_alert("", alert, node.wall, layout))
        for name in ("description", "changes", "command"):
            if text := alert.annotations.get(name):
                lines += sentence(layout, Tone.CALM, text, most=6)
    return lines


def _values(gpu: GpuView, layout: TextLayout) -> Iterator[tuple[str, Part | str]]:
    value, degree = gpu.value, layout.glyphs.degree
    yield "busy", _with_rolling(gpu, "utilization", "ratio", 100.0, "%")
    yield "power", _with_rolling(gpu, "power", "watts", 1.0, " W")
    yield (
        "power limit",
        text_layout.value_of_limit(value("power_limit_watts"), value("power_limit_default_watts"), 1.0, " W"),
    )
    yield "core", _with_rolling(gpu, "temperature", "celsius", 1.0, degree)
    yield "memory heat", _with_rolling(gpu, "memory_temperature", "celsius", 1.0, degree)
    yield "heat margin", text_layout.plain(value("temperature_margin_celsius"), unit=degree)
    yield "memory", text_layout.value_of_limit(value("memory_used_bytes"), value("memory_total_bytes"), GIB, " GiB")
    yield "SM clock", text_layout.value_of_limit(value("clock_hertz"), value("clock_limit_hertz"), 1e-6, " MHz")
    yield "memory clock", text_layout.value_of_limit(*gpu.memory_clocks, 1e-6, " MHz")
    yield "throttled by", throttle_part(gpu)
    for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active"):
        yield name.replace("_", " "), text_layout.percent(value(f"{name}_ratio"))
    for link, names in (("NVLink", NVLINK), ("PCIe", PCIE)):
        for way, name in zip(("out", "in"), names, strict=True):
            yield f"{link} {way}", text_layout.rate(gpu.rate(name))
    yield "NVLinks up", f"{gpu.row.links_up} of {gpu.row.links}" if gpu.row.links else ABSENT
    generation, width = value("pcie_link_generation"), value("pcie_link_width")
    is_known = generation is not None and width is not None
    yield "PCIe link", f"gen {generation:.0f} x{width:.0f}" if is_known else ABSENT
    job = gpu.job or {}
    yield "job", f"{len(gpu.row.jobs)} jobs" if len(gpu.row.jobs) > 1 else name_of(job) or ABSENT
    yield "owner", job.get("user", "") or ABSENT
    yield "job name", job.get("name", "") or ABSENT


def _with_rolling(gpu: GpuView, stem: str, unit: str, factor: float, unit_text: str) -> str:
    """Return the value with the lowest and highest of the last minute."""
    now = text_layout.plain(gpu.value(f"{stem}_{unit}"), factor, unit=unit_text)
    low, high = (gpu.value(f"{stem}_{extreme}_{unit}") for extreme in ("min", "max"))
    if low is None or high is None:
        return now
    return f"{now} (1 min {low * factor:.0f} to {high * factor:.0f})"


def _grid(values: Sequence[tuple[str, Part | str]], layout: TextLayout) -> list[Text]:
    """Return names and values, in as many columns as there is room for, read downwards."""
    count = max(layout.width // GRID_WIDTH, 1)
    width = layout.width // count
    height = -(-len(values) // count)
    lines = []
    for place in range(height):
        parts: list[Part | str] = []
        for name, value in values[place::height]:
            text, style = text_layout.with_style(value)
            parts += [(layout.pad(name, 14), DIM), (layout.pad(text, max(width - 15, 1)), style), " "]
        lines.append(layout.line(*parts))
    return lines


def _chart(title: str, history: Sequence[float | None], most: float, top: str, layout: TextLayout) -> list[Text]:
    """Return the last samples, the newest at the right, over several lines."""
    if sum(value is not None for value in history) < 2:
        return []
    values = list(history[-layout.width :])
    lines = [layout.line((f"{title} ", HEAD), (f"the last {len(values)} samples, of {top}", DIM))]
    for line in reversed(range(CHART_LINES)):
        cells = [_cell(None if value is None else value / most, line, layout.glyphs.levels) for value in values]
        lines.append(layout.line(("".join(cells).rjust(layout.width), text_layout.SPARK)))
    return lines


def _cell(share: float | None, line: int, levels: str) -> str:
    """Return one cell of a chart; `line` counts from below. A zero shows as the lowest level, no value as a blank."""
    if share is None:
        return " "
    filled = round(min(max(share, 0.0), 1.0) * CHART_LINES * len(levels)) - line * len(levels)
    if filled < 1:
        return " " if line else levels[0]
    return levels[min(filled, len(levels)) - 1]


WORDS = (
    ("computing", "its units work"),
    ("throttled", "it computes, and heat or the power supply lowers its clocks"),
    ("waiting", "100% busy at a fraction of its power: it spins for a peer"),
    ("awaited", "idle while the other GPUs of its job wait"),
    ("saving, loading", "idle while the node writes much; while it is filled for a job"),
    ("starved", "idle while much data is read for it"),
    ("held, free", "idle with a job, or with memory in use; idle without"),
    ("up", "it answers, and its state is not known yet"),
    ("lost, no answer", "gone from the bus; the driver does not answer for it"),
    ("paused", "coldplate pause has released the driver"),
)
"""States of the ledger, and why a GPU is not read."""


def help_lines(layout: TextLayout) -> list[Text]:
    arrows, enter_key = layout.glyphs.arrows, layout.glyphs.enter_key
    keys = (
        (f"{arrows} j k", "select a GPU (also: click, wheel)"),
        (f"{enter_key} or click", "zoom into the selected GPU; Esc: back"),
        ("g", "only the GPUs of this GPU's job, on all nodes shown"),
        ("s, r", "sort by the next column; reverse"),
        ("/", "filter by words: node, state, model, job, user; Esc clears"),
        ("space", "freeze the picture; sampling goes on"),
        ("m", "mouse off and on (off: the terminal selects text)"),
        ("?, q", "this page; quit"),
    )
    lines = [layout.line(("coldplate top: keys (any key: back)", HEAD))]
    lines += [layout.line((layout.pad(f"  {name}", 14), BOLD), f" {action}") for name, action in keys]
    lines += [layout.line(""), layout.line(("States, coloured by the worst alert of the GPU", HEAD))]
    lines += [layout.line((layout.pad(f"  {word}", 18), BOLD), f" {meaning}") for word, meaning in WORDS]
    meanings = ("critical", "warning", "pending", "not known", "note", "nothing fires")
    signs = [f"{layout.glyphs.marks[tone]} {meaning}" for tone, meaning in zip(Tone, meanings, strict=True)]
    lines += [layout.line(""), layout.line(("  ".join([*signs, "- no value"]), DIM))]
    return lines
