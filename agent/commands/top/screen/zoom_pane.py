"""One GPU alone: everything that is known of it, its last minutes as charts, what is wrong and what fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from agent.commands.top.screen import amounts
from agent.commands.top.screen.gpu_table import GIB, throttled
from agent.commands.top.screen.look import BOLD, DIM, HEAD, SPARK, STYLES, Look, Part, sentence
from agent.commands.top.screen.node_panes import alert_lines, panel
from agent.commands.top.screen.node_view import GpuView, NodeView
from agent.commands.top.screen.traffic import NVLINK, PCIE
from exporters.landing_gpus import name_of
from exporters.markup import Tone

CHART_LINES = 4
GRID_WIDTH = 39


def zoom_lines(node: NodeView, gpu: GpuView, look: Look) -> list[Text]:
    """The pane, from top to bottom; whoever has less room cuts it."""
    facts = gpu.row.facts
    about = "  ".join(filter(None, (facts.get("model", ""), facts.get("slot", ""), facts.get("serial", ""))))
    lines = [look.line((f"GPU {gpu.index}  ", BOLD), (gpu.word, STYLES[gpu.tone]), (f"  {about}", DIM))]
    lines.append(look.line((gpu.row.gpu.uuid, DIM)))
    for finding in gpu.findings:
        lines += sentence(look, finding.tone, finding.text)
    if not gpu.findings:
        lines += sentence(look, Tone.GOOD, "nothing is wrong with this GPU")
    lines += _grid([*_values(gpu, look)], look)
    lines += _chart("BUSY", gpu.busy_history, 1.0, "100%", look)
    limit = gpu.value("power_limit_watts")
    if limit:
        lines += _chart("POWER", gpu.power_history, limit, f"{limit:.0f} W", look)
    if gpu.growth and any(gpu.growth.values()):
        grown = [look.line(f"  {what}  +{amount:.0f}") for what, amount in gpu.growth.items() if amount > 0]
        lines += panel("GREW IN THE LAST MINUTE", grown, None, look)
    return lines + panel("ALERTS", _alerts(node, gpu, look), None, look)


def _alerts(node: NodeView, gpu: GpuView, look: Look) -> list[Text]:
    """The alerts of the GPU, each with what else changed on the node when it began, and where to look."""
    lines = []
    for alert in gpu.row.alerts:
        lines += alert_lines([NodeView(node.name, node.origin, alerts=[alert])], node.wall, look)
        for name in ("changes", "command"):
            if text := alert.annotations.get(name):
                lines += sentence(look, Tone.CALM, text, most=6)
    return lines


def _values(gpu: GpuView, look: Look) -> Iterator[tuple[str, Part]]:
    value, degree = gpu.value, look.glyphs.degree
    yield "busy", (_with_rolling(gpu, "utilization", "ratio", 100.0, "%"), "")
    yield "power", (_with_rolling(gpu, "power", "watts", 1.0, " W"), "")
    yield "power limit", (amounts.of(value("power_limit_watts"), value("power_limit_default_watts"), 1.0, " W"), "")
    yield "core", (_with_rolling(gpu, "temperature", "celsius", 1.0, degree), "")
    yield "memory heat", (_with_rolling(gpu, "memory_temperature", "celsius", 1.0, degree), "")
    yield "heat margin", (amounts.plain(value("temperature_margin_celsius"), unit=degree), "")
    yield "memory", (amounts.of(value("memory_used_bytes"), value("memory_total_bytes"), GIB, " GiB"), "")
    yield "SM clock", (amounts.of(value("clock_sm"), value("clock_limit_sm"), 1e-6, " MHz"), "")
    yield "memory clock", (amounts.of(value("clock_memory"), value("clock_limit_memory"), 1e-6, " MHz"), "")
    yield "throttled by", throttled(gpu)
    for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active"):
        yield name.replace("_", " "), (amounts.percent(value(f"{name}_ratio")), "")
    for what, names in (("NVLink", NVLINK), ("PCIe", PCIE)):
        for way, name in zip(("out", "in"), names, strict=True):
            yield f"{what} {way}", (amounts.rate(gpu.rate(name)), "")
    links = gpu.row.links_up + len(gpu.row.links_down)
    yield "NVLinks up", (f"{gpu.row.links_up} of {links}" if links else "-", "")
    generation, width = value("pcie_link_generation"), value("pcie_link_width")
    yield (
        "PCIe link",
        (f"gen {generation:.0f} x{width:.0f}" if generation is not None and width is not None else "-", ""),
    )
    job = gpu.job or {}
    yield "job", (name_of(job) or "-" if len(gpu.row.jobs) < 2 else f"{len(gpu.row.jobs)} jobs", "")
    yield "owner", (job.get("user", "") or "-", "")
    yield "job name", (job.get("name", "") or "-", "")


def _with_rolling(gpu: GpuView, stem: str, unit: str, factor: float, shown: str) -> str:
    """The value with the lowest and highest of the last minute."""
    now = amounts.plain(gpu.value(f"{stem}_{unit}"), factor, unit=shown)
    low, high = (gpu.value(f"{stem}_{which}_{unit}") for which in ("min", "max"))
    if low is None or high is None:
        return now
    return f"{now} (1 min {low * factor:.0f} to {high * factor:.0f})"


def _grid(values: Sequence[tuple[str, Part]], look: Look) -> list[Text]:
    """Names and values, in as many columns as there is room for, read downwards."""
    count = max(look.width // GRID_WIDTH, 1)
    width = look.width // count
    height = -(-len(values) // count)
    lines = []
    for place in range(height):
        parts: list[Part | str] = []
        for name, (shown, style) in values[place::height]:
            parts += [(look.pad(name, 14), DIM), (look.pad(shown, max(width - 15, 1)), style), " "]
        lines.append(look.line(*parts))
    return lines


def _chart(title: str, history: Sequence[float | None], most: float, top: str, look: Look) -> list[Text]:
    """The last samples, the newest at the right, over several lines."""
    if len(history) < 2:
        return []
    shown = list(history[-look.width :])
    lines = [look.line((f"{title} ", HEAD), (f"the last {len(shown)} samples, of {top}", DIM))]
    for line in reversed(range(CHART_LINES)):
        cells = [_cell(None if value is None else value / most, line, look.glyphs.levels) for value in shown]
        lines.append(look.line(("".join(cells).rjust(look.width), SPARK)))
    return lines


def _cell(share: float | None, line: int, levels: str) -> str:
    """One cell of a chart; `line` is counted from below. A zero shows as the lowest level, no value as a blank."""
    if share is None:
        return " "
    filled = round(min(max(share, 0.0), 1.0) * CHART_LINES * len(levels)) - line * len(levels)
    if filled < 1:
        return " " if line else levels[0]
    return levels[min(filled, len(levels)) - 1]
