"""`coldplate render runbooks`: the pages at `/runbooks/` of an agent, as files for a web server that outlives nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent.commands.render.output_directory import add_directory, write_files
from agent.lib.commandline import INVALID


def add_runbooks(kinds: Any) -> None:
    parser = kinds.add_parser(
        "runbooks",
        help="write the runbooks as pages for a web server, for rules.runbook_base",
        description="Write the runbooks as static pages. Serve the directory by any web server, and set "
        "rules.runbook_base to its address: links in alerts then lead there, also while a node or its agent is down.",
        examples=(("coldplate render runbooks --output /srv/www/gpu-runbooks", "a page for each alert, and an index"),),
        exit_statuses={0: "written", **INVALID},
    )
    parser.set_defaults(render=render_runbooks)
    add_directory(parser)


def render_runbooks(arguments: argparse.Namespace) -> int:
    """Write the pages into the directory, print their names, and return the exit status. Raises UserError."""
    from alerts import packs
    from exporters.runbook_pages import SITE_GENERATOR, site_files

    def is_page(path: Path) -> bool:
        return SITE_GENERATOR in path.read_text(encoding="utf-8", errors="replace")

    write_files(arguments.output, site_files(packs.runbooks()), is_page)
    return 0
