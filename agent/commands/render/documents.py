"""`coldplate render metrics` and `render config-file`: one generated text, to standard output or into a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent.lib.commandline import INVALID
from agent.lib.wording import UserError

KINDS = {
    "metrics": ("the reference of all metrics, in Markdown", "docs/metrics.md"),
    "config-file": ("a configuration file with every default", "/etc/coldplate/coldplate.yaml"),
}


def add_to(kinds: Any) -> None:
    """Add a parser for each of them."""
    for name, (what, example) in KINDS.items():
        parser = kinds.add_parser(
            name,
            help=f"write {what}",
            description=f"Write {what}.",
            examples=((f"coldplate render {name} --output {example}", what),),
            exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
        )
        parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of standard output")
        parser.set_defaults(render=render)


def render(arguments: argparse.Namespace) -> int:
    """Write the text that is asked for. Raises UserError."""
    text, out = _document(arguments.what), arguments.output
    if out is None:
        sys.stdout.write(text)
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {out}: {error.strerror}") from error
    return 0


def _document(what: str) -> str:
    if what == "config-file":
        from agent.config.default_file import default_file

        return default_file()
    from exporters.metrics_document import render

    return render()
