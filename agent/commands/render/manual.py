"""`coldplate render man`: manual pages, one for each command, from the same source as the help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent.commands.render.out_directory import refuse_no_directory
from agent.lib.commandline import INVALID
from agent.lib.user_error import UserError


def add_to(kinds: Any) -> None:
    """Its parser."""
    parser = kinds.add_parser(
        "man",
        help="write the manual pages",
        description="Write the manual pages of coldplate and all its commands. make install installs them.",
        examples=(
            ("coldplate render man | man -l -", "read all of them"),
            ("coldplate render man --out ~/.local/share/man/man1", "for one user, for man coldplate-run and its like"),
        ),
        exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write a file for each page into this directory, and print their names"
    )
    parser.set_defaults(render=render)


def render(arguments: argparse.Namespace) -> int:
    """Write the pages. Raises UserError."""
    from agent.commands.render.manual_page import pages
    from agent.lib.command_tree import tree_of
    from agent.lib.durable import replace_file

    made = pages(tree_of(arguments.whole()))
    out: Path | None = arguments.out
    if out is None:
        sys.stdout.write("".join(made.values()))
        return 0
    refuse_no_directory(out)
    try:
        for name, text in made.items():
            replace_file(out / name, text.encode())
            print(out / name)
    except OSError as error:
        raise UserError(f"--out: {error.filename or out}: {error.strerror}") from error
    return 0
