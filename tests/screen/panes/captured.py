"""The panes that are kept as text, in docs/terminal.md and one beside this file: what each shows, and how."""

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from agent.commands.top.screen.frame import draw
from agent.commands.top.screen.key_input import OneGpu, UiState
from agent.commands.top.screen.text_layout import UNICODE, Glyphs, TextLayout
from agent.commands.top.screen.view_builder import ScreenData
from tests.screen.scenes import scene_of, scene_of_nodes

HOT = Path(__file__).resolve().with_name("thermal-throttle-gpu-120x40.txt")
DOCUMENT = HOT.parents[3] / "docs" / "terminal.md"
PICTURE = DOCUMENT.parent / "images" / "top.svg"
_PANE_IN_DOCUMENT = re.compile(r"<!-- pane (\S+) -->\n```\n.*?```\n", re.DOTALL)


def pane(
    scene: Callable[[], ScreenData], width: int, height: int, glyphs: Glyphs = UNICODE, zoom: str | None = None
) -> str:
    """The lines of one picture without colours, as in the zone UTC."""
    with utc():
        scene_data = scene()
        key = next((gpu.key for node in scene_data.nodes for gpu in node.gpus if gpu.index == zoom), None)
        state = UiState(zoom=OneGpu(key) if key else None)
        lines, _ = draw(scene_data, state, TextLayout(width, height, glyphs))
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


@contextmanager
def utc() -> Iterator[None]:
    """The time of day on a picture is that of the terminal's zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


STRAGGLER = partial(scene_of, "straggler", 920, True)
HEAT = partial(scene_of, "thermal-throttle", 600, True)
RACK = partial(
    scene_of_nodes,
    (("node1", "healthy-training"), ("node2", "gpu-lost"), ("node3", "ib-flap")),
    75,
    True,
    silent="node4",
)

PANES: dict[str, Callable[[], str]] = {
    "straggler-80x24": partial(pane, STRAGGLER, 80, 24),
    HOT.stem: partial(pane, HEAT, 120, 40, UNICODE, "5"),
    "rack-100x40": partial(pane, RACK, 100, 40),
}


def picture() -> str:
    """The straggler in colours, as an SVG that loads nothing."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with utc():
        lines, _ = draw(STRAGGLER(), UiState(), TextLayout(100, 24, UNICODE))
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
    drawn = console.export_svg(title="coldplate top", unique_id="top")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def documented(text: str) -> str:
    """The document with its panes as they are now."""
    return _PANE_IN_DOCUMENT.sub(lambda match: f"<!-- pane {match[1]} -->\n```\n{PANES[match[1]]()}```\n", text)
