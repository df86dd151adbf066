"""Compose one whole screen of the terminal, and the bytes that draw it.

Only changed lines are written, in one synchronized update, so that nothing flickers.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from agent.commands.top.screen import gpu_table, panes
from agent.commands.top.screen.gpu_table import Row
from agent.commands.top.screen.key_input import GpuKey, OneGpu, OneJob, OnScreen, UiState
from agent.commands.top.screen.panes import help_lines, zoom_lines
from agent.commands.top.screen.text_layout import BOLD, DIM, TextLayout, panel
from agent.commands.top.screen.view_builder import ScreenData

LOW = 12
"""Lines of a terminal below which only the worst trouble is shown, in one line."""
_FEW = 3
"""Lines that must be left over for ports that are well."""


def draw(scene: ScreenData, state: UiState, layout: TextLayout) -> tuple[list[Text], OnScreen]:
    """Return the lines, exactly as many as the terminal has, and what keys act upon."""
    rows = gpu_table.rows_of(scene.nodes, state)
    if state.is_helping:
        return _fit_to_height(help_lines(layout), state, layout), _on_screen(rows)
    if isinstance(state.zoom, OneGpu):
        for node in scene.nodes:
            for gpu in node.gpus:
                if gpu.key == state.zoom.key:
                    head = panes.head_line(scene, state, layout)
                    return _fit_to_height([head, *zoom_lines(node, gpu, layout)], state, layout), _on_screen(rows)
    return _overview(scene, state, layout, rows)


def _overview(
    scene: ScreenData, state: UiState, layout: TextLayout, rows: Sequence[Row]
) -> tuple[list[Text], OnScreen]:
    nodes, height = scene.nodes, layout.height
    lines = [panes.head_line(scene, state, layout)]
    lines += panes.verdict(nodes, scene.troubles, layout, _trouble_lines(height, len(rows)))
    if height is None or height >= LOW:
        lines.append(panes.node_line(nodes, layout))
    columns = gpu_table.columns_for(rows, layout, gpu_table.node_width(nodes, layout))
    lines.append(gpu_table.heading(columns, layout, state.sort))
    room = len(rows) if height is None else max(height - len(lines) - 1, 1)
    first = _first(rows, state, room)
    visible = rows[first : first + room]
    top = len(lines)
    lines += [gpu_table.row_line(row, columns, layout, gpu_table.key_of(row) == state.selected) for row in visible]
    if not rows:
        lines.append(layout.line((_empty_text(scene, state), DIM)))
    lines += _panels(scene, state, layout, None if height is None else height - len(lines) - 1)
    return _fit_to_height(lines, state, layout), _on_screen(rows, dict(enumerate(map(gpu_table.key_of, visible), top)))


def _trouble_lines(height: int | None, rows: int) -> int:
    """Return how many lines trouble may have above a table of `rows` rows."""
    if height is None:
        return 100
    if height < LOW:
        return 1
    return max((height - rows) // 4, 4, height // 5)


def _empty_text(scene: ScreenData, state: UiState) -> str:
    if state.filter:
        return f"no GPU matches {state.filter!r}; Esc clears the filter"
    return "no GPU to show" if scene.nodes else "waiting for the first sample"


def _first(rows: Sequence[Row], state: UiState, room: int) -> int:
    """Return the first row that is shown: the selected one stays in sight."""
    place = next((place for place, row in enumerate(rows) if gpu_table.key_of(row) == state.selected), 0)
    return min(max(place - room // 2, 0), max(len(rows) - room, 0))


def _panels(scene: ScreenData, state: UiState, layout: TextLayout, room: int | None) -> list[Text]:
    """Return panels as far as there is room: alerts, then ports in trouble, then jobs, then all ports."""
    nodes = scene.nodes
    if isinstance(state.zoom, OneJob):
        gpus_by_node = {node.name: [gpu for gpu in node.gpus if gpu_table.job_of(gpu) == state.zoom] for node in nodes}
        nodes = [replace(node, gpus=gpus_by_node[node.name]) for node in nodes if gpus_by_node[node.name]]
    alerts = panes.alert_lines(nodes, scene.wall, layout)
    ports, bad = (panes.port_lines(nodes, layout, only_bad) for only_bad in (False, True))
    jobs = panes.job_lines(nodes, scene.wall, layout)
    if room is None:
        panels = [("ALERTS", alerts), ("JOBS", jobs), ("PORTS", ports)]
        return [line for title, lines in panels for line in panel(title, lines, None, layout)]
    spare = room - sum(len(lines) + 1 for lines in (alerts, jobs) if lines)
    if spare > _FEW and len(ports) > len(bad):
        bad = ports
    shares = _shares(room, [len(lines) + 1 if lines else 0 for lines in (alerts, bad, jobs)])
    shared = [*zip(("ALERTS", "PORTS", "JOBS"), (alerts, bad, jobs), shares, strict=True)]
    return [line for title, lines, most in shared for line in panel(title, lines, most, layout)]


def _shares(room: int, heights: Sequence[int]) -> list[int]:
    """Return lines for each of these panels: each gets two if there are, then the first takes what it can use."""
    shares = [0] * len(heights)
    for least in (2, 3, max(heights, default=0)):
        for place, most in enumerate(heights):
            more = min(min(most, least) - shares[place], room)
            if more > 0 and (shares[place] or more >= 2):
                shares[place] += more
                room -= more
    return shares


def _fit_to_height(lines: list[Text], state: UiState, layout: TextLayout) -> list[Text]:
    """Return the lines with the footer, in exactly the terminal's height."""
    if layout.height is None:
        return lines
    body = lines[: max(layout.height - 1, 0)]
    blank = [layout.line("") for _ in range(layout.height - 1 - len(body))]
    return [*body, *blank, _footer(state, layout)][: layout.height]


def _footer(state: UiState, layout: TextLayout) -> Text:
    if state.is_typing:
        return layout.line(("filter: ", BOLD), f"{state.filter}_", ("   Enter keeps it, Esc clears it", DIM))
    order = f"{state.sort.value}{' reversed' if state.reverse else ''}"
    filter_text = f"filter: {state.filter}" if state.filter else "filter"
    keys = [("q", "quit"), ("?", "help"), ("s", f"sort: {order}"), ("/", filter_text),
            (layout.glyphs.enter_key, "zoom"), ("g", "job"), ("space", "freeze")]  # fmt: skip
    if state.zoom is not None or state.filter:
        keys.insert(0, ("Esc", "back"))
    parts = [part for key, action in keys for part in ((f" {key}", BOLD), (f" {action} ", DIM))]
    return layout.line(*parts)


def _on_screen(rows: Sequence[Row], lines: Mapping[int, GpuKey] | None = None) -> OnScreen:
    return OnScreen({gpu_table.key_of(row): gpu_table.job_of(row) for row in rows}, lines or {})


BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output (DEC private mode 2026): a terminal without it ignores both."""


def style_line(console: Console, line: Text) -> str:
    """Return a line with the console's way of colouring: none where NO_COLOR is set or the terminal is dumb."""
    with console.capture() as capture:
        console.print(line, end="", soft_wrap=True, markup=False, highlight=False, emoji=False)
    return capture.get()


class Painter:
    """Remembers what each line of the screen shows."""

    def __init__(self, console: Console, encoding: str) -> None:
        self._console = console
        self._encoding = encoding
        self._drawn: list[str] = []

    def forget(self) -> None:
        """Draw everything again: the screen was changed by others, or has another size."""
        self._drawn = []

    def paint(self, lines: Sequence[Text]) -> bytes:
        """Return what to write so that the screen shows these lines; nothing if it does."""
        fresh = [style_line(self._console, line) for line in lines]
        out = [] if self._drawn else ["\x1b[2J"]
        for place, line in enumerate(fresh):
            if place >= len(self._drawn) or self._drawn[place] != line:
                out.append(f"\x1b[{place + 1};1H\x1b[0m\x1b[K{line}")
        self._drawn = fresh
        return f"{BEGIN}{''.join(out)}{END}".encode(self._encoding, "replace") if out else b""
