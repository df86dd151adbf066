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


def draw(scene: ScreenData, state: UiState, look: TextLayout) -> tuple[list[Text], OnScreen]:
    """Return the lines, exactly as many as the terminal has, and what keys act upon."""
    rows = gpu_table.rows_of(scene.nodes, state)
    if state.is_helping:
        return _fitted(help_lines(look), state, look), _on_screen(rows)
    if isinstance(state.zoom, OneGpu):
        for node in scene.nodes:
            for gpu in node.gpus:
                if gpu.key == state.zoom.key:
                    head = panes.head_line(scene, state, look)
                    return _fitted([head, *zoom_lines(node, gpu, look)], state, look), _on_screen(rows)
    return _overview(scene, state, look, rows)


def _overview(scene: ScreenData, state: UiState, look: TextLayout, rows: Sequence[Row]) -> tuple[list[Text], OnScreen]:
    nodes, height = scene.nodes, look.height
    lines = [panes.head_line(scene, state, look)]
    most = 100 if height is None else 1 if height < LOW else max((height - len(rows)) // 4, 4, height // 5)
    lines += panes.verdict(nodes, scene.troubles, look, most)
    if height is None or height >= LOW:
        lines.append(panes.node_line(nodes, look))
    columns = gpu_table.columns_for(rows, look, gpu_table.node_width(nodes, look))
    lines.append(gpu_table.heading(columns, look, state.sort))
    room = len(rows) if height is None else max(height - len(lines) - 1, 1)
    first = _first(rows, state, room)
    shown = rows[first : first + room]
    top = len(lines)
    lines += [gpu_table.row_line(row, columns, look, gpu_table.key_of(row) == state.selected) for row in shown]
    if not rows:
        lines.append(look.line((_nothing(scene, state), DIM)))
    lines += _panels(scene, state, look, None if height is None else height - len(lines) - 1)
    return _fitted(lines, state, look), _on_screen(rows, dict(enumerate(map(gpu_table.key_of, shown), top)))


def _nothing(scene: ScreenData, state: UiState) -> str:
    if state.filter:
        return f"no GPU matches {state.filter!r}; Esc clears the filter"
    return "no GPU to show" if scene.nodes else "waiting for the first sample"


def _first(rows: Sequence[Row], state: UiState, room: int) -> int:
    """Return the first row that is shown: the selected one stays in sight."""
    place = next((place for place, row in enumerate(rows) if gpu_table.key_of(row) == state.selected), 0)
    return min(max(place - room // 2, 0), max(len(rows) - room, 0))


def _panels(scene: ScreenData, state: UiState, look: TextLayout, room: int | None) -> list[Text]:
    """Return panels as far as there is room: alerts, then ports in trouble, then jobs, then all ports."""
    nodes = scene.nodes
    if isinstance(state.zoom, OneJob):
        shown = {node.name: [gpu for gpu in node.gpus if gpu_table.job_of(gpu) == state.zoom] for node in nodes}
        nodes = [replace(node, gpus=shown[node.name]) for node in nodes if shown[node.name]]
    alerts = panes.alert_lines(nodes, scene.wall, look)
    ports, bad = (panes.port_lines(nodes, look, only_bad) for only_bad in (False, True))
    jobs = panes.job_lines(nodes, scene.wall, look)
    if room is None:
        panels = [("ALERTS", alerts), ("JOBS", jobs), ("PORTS", ports)]
        return [line for title, lines in panels for line in panel(title, lines, None, look)]
    spare = room - sum(len(lines) + 1 for lines in (alerts, jobs) if lines)
    if spare > _FEW and len(ports) > len(bad):
        bad = ports
    shares = _shares(room, [len(lines) + 1 if lines else 0 for lines in (alerts, bad, jobs)])
    found = [*zip(("ALERTS", "PORTS", "JOBS"), (alerts, bad, jobs), shares, strict=True)]
    return [line for title, lines, most in found for line in panel(title, lines, most, look)]


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


def _fitted(lines: list[Text], state: UiState, look: TextLayout) -> list[Text]:
    """Return the lines with the footer, in exactly the terminal's height."""
    if look.height is None:
        return lines
    body = lines[: max(look.height - 1, 0)]
    blank = [look.line("") for _ in range(look.height - 1 - len(body))]
    return [*body, *blank, _footer(state, look)][: look.height]


def _footer(state: UiState, look: TextLayout) -> Text:
    if state.is_typing:
        return look.line(("filter: ", BOLD), f"{state.filter}_", ("   Enter keeps it, Esc clears it", DIM))
    order = f"{state.sort.value}{' reversed' if state.reverse else ''}"
    words = f"filter: {state.filter}" if state.filter else "filter"
    keys = [("q", "quit"), ("?", "help"), ("s", f"sort: {order}"), ("/", words),
            (look.glyphs.enter, "zoom"), ("g", "job"), ("space", "freeze")]  # fmt: skip
    if state.zoom is not None or state.filter:
        keys.insert(0, ("Esc", "back"))
    parts = [part for key, what in keys for part in ((f" {key}", BOLD), (f" {what} ", DIM))]
    return look.line(*parts)


def _on_screen(rows: Sequence[Row], lines: Mapping[int, GpuKey] | None = None) -> OnScreen:
    return OnScreen({gpu_table.key_of(row): gpu_table.job_of(row) for row in rows}, lines or {})


BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output (DEC private mode 2026): a terminal without it ignores both."""


def styled(console: Console, line: Text) -> str:
    """Return a line with the console's way of colouring: none where NO_COLOR is set or the terminal is dumb."""
    with console.capture() as capture:
        console.print(line, end="", soft_wrap=True, markup=False, highlight=False, emoji=False)
    return capture.get()


class Painter:
    """Remembers what each line of the screen shows."""

    def __init__(self, console: Console, encoding: str) -> None:
        self._console = console
        self._encoding = encoding
        self._shown: list[str] = []

    def forget(self) -> None:
        """Draw everything again: the screen was changed by others, or has another size."""
        self._shown = []

    def paint(self, lines: Sequence[Text]) -> bytes:
        """Return what to write so that the screen shows these lines; nothing if it does."""
        fresh = [styled(self._console, line) for line in lines]
        out = [] if self._shown else ["\x1b[2J"]
        for place, line in enumerate(fresh):
            if place >= len(self._shown) or self._shown[place] != line:
                out.append(f"\x1b[{place + 1};1H\x1b[0m\x1b[K{line}")
        self._shown = fresh
        return f"{BEGIN}{''.join(out)}{END}".encode(self._encoding, "replace") if out else b""
