"""Runs the live picture: the sources in their threads, the loop in the main one, and the log where it can be seen."""

from __future__ import annotations

import argparse
import io
import os
import sys

from agent.commands.top.node_sources import NodeSources
from agent.config.schema import Config
from agent.lib import logs
from agent.lib.clock import clock
from agent.lib.wakeups import WakePipe
from agent.wiring.command_line import CommandLineOptions

MOST_LOG = 100


class LogTail(io.StringIO):
    """Keeps the last log lines: on the screen they would tear the picture. They are printed at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.lines = [*self.lines, *text.splitlines()][-MOST_LOG:]
        return len(text)


def show_live(arguments: argparse.Namespace, config: Config, options: CommandLineOptions) -> int:
    """Until the person leaves; the exit status. Raises ConfigError."""
    tail = LogTail()
    logs.set_up(arguments.log_level, arguments.log_format, tail)
    pipe = WakePipe()
    try:
        sources = NodeSources(arguments, config, options, pipe.wake)
        try:
            return _show(arguments, sources, pipe)
        finally:
            sources.close()
    finally:
        logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
        sys.stderr.writelines(f"{line}\n" for line in tail.lines)


def _show(arguments: argparse.Namespace, sources: NodeSources, pipe: WakePipe) -> int:
    """Import what draws only now: the devices are being opened meanwhile."""
    from rich.console import Console

    from agent.commands.top.screen.key_input import UiState
    from agent.commands.top.screen.live_loop import LiveLoop
    from agent.commands.top.screen.text_layout import ASCII, glyphs_for
    from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper

    console = Console(file=io.StringIO(), force_terminal=True, highlight=False)  # it styles; the loop writes
    watch = ViewKeeper(arguments.interval)

    def scene() -> ScreenData:
        sources.add_new_peers()
        return watch.scene(sources.board.look()[0], clock().mono, sources.note)

    terminal = (sys.stdin.fileno(), sys.stdout.fileno())
    glyphs = ASCII if arguments.ascii else glyphs_for(sys.stdout.encoding, os.environ)
    loop = LiveLoop(terminal, console, sys.stdout.encoding, glyphs, scene, lambda: clock().mono, pipe)
    return loop.run(UiState(mouse=not arguments.no_mouse))
