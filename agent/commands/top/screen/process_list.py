"""Draw the processes of one GPU."""

from __future__ import annotations

from rich.text import Text

from agent.commands.top.screen import value_format
from agent.commands.top.screen.node_view import GpuView, NodeView
from agent.commands.top.screen.text_layout import ABSENT, DIM, TextLayout, panel

MOST_PROCESSES = 8
"""Lines for processes: a job has one on each GPU, and rarely more than a few."""


def process_lines(node: NodeView, gpu: GpuView, look: TextLayout) -> list[Text]:
    """Return the list, those with the most memory first, or one line that says why there is no list."""
    if node.processes is None:
        return [look.line(("processes: shown by coldplate top --no-attach on the node itself", DIM))]
    listed = node.processes.get(gpu.row.gpu)
    if listed is None:
        return [look.line(("processes: the driver does not list them", DIM))]
    if not listed:
        return [look.line(("processes: none", DIM))]
    rows = [("PID", "USER", "MEMORY", "COMMAND")]
    rows += [(str(each.pid), each.user or ABSENT, _mebibytes(each.memory), each.command or ABSENT) for each in listed]
    lines = [
        look.line(f"  {pid:>8}  ", look.pad(user, 16), f" {memory:>10}  {command}")
        for pid, user, memory, command in rows
    ]
    return panel("PROCESSES", lines, MOST_PROCESSES + 3, look)  # with its title, the names and what is left out


def _mebibytes(memory: int | None) -> str:
    return value_format.plain(memory, 1 / 2**20, unit=" MiB")
