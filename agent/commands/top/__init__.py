"""`coldplate top`: what the GPUs do and what is wrong with them, live, or once for a script."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

from agent.lib.commandline import INVALID
from agent.lib.wording import UserError
from agent.wiring.command_line import add_sources
from agent.wiring.http_access import add_http_config, refuse_beside_url

if TYPE_CHECKING:
    from agent.commands.top.node_sources import NodeSources
    from agent.commands.top.screen.view_builder import ScreenData
    from agent.config.schema import Config
    from agent.wiring.command_line import CommandLineOptions

HELP = "show live what the GPUs do, and why one is slow"
DESCRIPTION = (
    "Show what the GPUs of this node or of other nodes do, which one is slow, and why. It shows the samples of this "
    "node's agent if one runs, else it reads the devices itself. Keys: ? for help, q to quit. If the output is not a "
    "terminal, it prints one screen, as with --once."
)
EXAMPLES = (
    ("coldplate top", "see this node live"),
    ("coldplate top --url node1 node2", "see the agents of other nodes side by side"),
    ("coldplate top --rack --once", "print the state of every node of the rack"),
    ("coldplate top --scenario straggler", "see what a slow GPU looks like, without a GPU"),
    ("coldplate top --scenario straggler --at 20m", "see it 20 minutes after its start"),
)
EXIT_STATUSES = {
    0: "success",
    1: "no node answered (--once, --json, --csv)",
    **INVALID,
    129: "the terminal was closed",
    130: "interrupted",
    143: "terminated",
}
PAPER_COLUMNS = 120
"""Columns of a picture that goes into a file, where COLUMNS says nothing else."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sources(parser, "warn")
    parser.add_argument(
        "--interval", default="1s", metavar="TIME", help="time between two samples (default %(default)s)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--url", nargs="+", metavar="URL", help="show these nodes: host, host:port or URL of their agents"
    )
    parser.add_argument(
        "--at",
        metavar="DURATION",
        help="with --scenario: how long it has been running (default 0s; printed once: until all of its faults show)",
    )
    add_http_config(parser)
    where.add_argument("--rack", action="store_true", help="show this node and all of rack.peers")
    parser.add_argument("--no-attach", action="store_true", help="read the devices even if an agent runs here")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print one screen and exit")
    how.add_argument("--json", action="store_true", help="print all values once as JSON, in base units, and exit")
    how.add_argument("--csv", action="store_true", help="print one row per GPU as CSV, in base units, and exit")
    parser.add_argument(
        "--ascii", action="store_true", help="use ASCII characters only (default if the locale is not UTF-8)"
    )
    parser.add_argument(
        "--no-mouse", action="store_true", help="do not use the mouse, so that the terminal can select text"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show until the person leaves, or once. Raises UserError."""
    from agent.config.quantities import duration_between
    from agent.config.schema import parse_value
    from agent.lib import logs
    from agent.wiring.command_line import read_config, read_options
    from agent.wiring.sources import age_scenario

    refuse_beside_url(arguments, ("scenario", "backend", "no_attach", "at"), "shows what agents sample")
    arguments.interval = parse_value("--interval", duration_between, arguments.interval, "100ms", "60s")
    config = read_config(arguments)
    at = arguments.at and parse_value("--at", duration_between, arguments.at, "0s", "1000d")
    has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    is_asked_once = arguments.once or arguments.json or arguments.csv
    is_live = has_terminal and os.environ.get("TERM") != "dumb" and not is_asked_once
    options = read_options(arguments)
    if at is not None or not is_live:
        options = age_scenario(options, config, at)
    if not (arguments.json or arguments.csv):
        _need_rich()
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)

    if is_live:
        return _show_live(arguments, config, options)
    from agent.commands.top.node_sources import NodeSources

    sources = NodeSources(arguments, config, options)
    try:
        scene = _two_samples(sources, arguments.interval)
    finally:
        sources.close()
    _print(scene, arguments, sys.stdout)
    return 0 if any(not node.problem for node in scene.nodes) else 1


def _need_rich() -> None:
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise UserError(
            "top draws with the library rich, which is not installed: make install EXTRAS=top, or pip install rich "
            "where coldplate is; --json and --csv work without it"
        ) from error


def _two_samples(sources: NodeSources, interval: float) -> ScreenData:
    """Return the nodes after two samples of each: rates need two."""
    from agent.commands.top.screen.view_builder import ViewKeeper
    from agent.lib.clock import clock

    keeper = ViewKeeper(interval)
    counts: dict[str, int] = {}
    for _ in range(2):
        sources.add_new_peers()
        sources.board.wait(counts, FIRST_SECONDS + interval)
        samples, counts = sources.board.latest()
        scene = keeper.scene(samples, clock().mono, sources.note)
    return scene


FIRST_SECONDS = 8.0
"""Seconds that a node may take to be opened and to answer for the first time."""


def _print(scene: ScreenData, arguments: argparse.Namespace, out: TextIO) -> None:
    from agent.commands.top.screen import machine_output

    if arguments.json or arguments.csv:
        out.write(machine_output.as_json(scene) if arguments.json else machine_output.as_csv(scene))
        return
    from rich.console import Console

    from agent.commands.top.screen.frame import draw, style_line
    from agent.commands.top.screen.key_input import UiState
    from agent.commands.top.screen.text_layout import TextLayout, glyphs_for

    columns = shutil.get_terminal_size((PAPER_COLUMNS, 24)).columns
    console = Console(file=out, width=columns, highlight=False)
    layout = TextLayout(columns, None, glyphs_for(out.encoding, os.environ, is_ascii=arguments.ascii))
    out.writelines(style_line(console, line).rstrip() + "\n" for line in draw(scene, UiState(), layout)[0])


MOST_LOG = 100


class LogTail(io.StringIO):
    """Keeps the last log lines: on the screen they would tear the picture. They are printed at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.lines = [*self.lines, *text.splitlines()][-MOST_LOG:]
        return len(text)


def _show_live(arguments: argparse.Namespace, config: Config, options: CommandLineOptions) -> int:
    """Show until the person leaves; the exit status. Raises ConfigError."""
    from agent.commands.top.node_sources import NodeSources
    from agent.lib import logs
    from agent.lib.clock import clock
    from agent.lib.wakeups import WakePipe

    tail = LogTail()
    logs.set_up(arguments.log_level, arguments.log_format, tail)
    pipe = WakePipe()
    try:
        sources = NodeSources(arguments, config, options, pipe.wake)
        try:
            # Only now: the devices are being opened meanwhile.
            from agent.commands.top.screen.live_loop import LiveLoop
            from agent.commands.top.screen.view_builder import ViewKeeper

            keeper = ViewKeeper(arguments.interval)

            def scene() -> ScreenData:
                sources.add_new_peers()
                return keeper.scene(sources.board.latest()[0], clock().mono, sources.note)

            return LiveLoop(scene, pipe, is_ascii=arguments.ascii).run(mouse=not arguments.no_mouse)
        finally:
            sources.close()
    finally:
        logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
        sys.stderr.writelines(f"{line}\n" for line in tail.lines)
