"""`coldplate render metrics` and its like: one generated text, to standard output or into a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent.lib.commandline import INVALID
from agent.lib.user_error import UserError

KINDS = {
    "metrics": ("the reference of all metrics, in Markdown", "docs/metrics.md"),
    "migrating": ("the guide for moving from other exporters, in Markdown", "docs/migrating.md"),
    "scenarios": ("the reference of the synthetic scenarios, in Markdown", "docs/scenarios.md"),
    "xids": ("the reference of XIDs, their actions and alerts, in Markdown", "docs/xids.md"),
    "configuration": ("the reference of the configuration's keys, in Markdown", "docs/configuration.md"),
    "config-file": ("a configuration file with every default", "/etc/coldplate/coldplate.yaml"),
}


def add_to(kinds: Any) -> None:
    """A parser for each of them."""
    for name, (what, example) in KINDS.items():
        parser = kinds.add_parser(
            name,
            help=f"write {what}",
            description=f"Write {what}.",
            examples=((f"coldplate render {name} --out {example}", what),),
            exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
        )
        parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of standard output")
        parser.set_defaults(render=render)


def render(arguments: argparse.Namespace) -> int:
    """Write the text that is asked for. Raises UserError."""
    from agent.config import reference
    from agent.lib.textfile import CONFIGURATION, ReadError, read_text

    what, out = arguments.what, arguments.out
    if out is None:
        sys.stdout.write(_document(what))
        return 0
    try:
        text = reference.splice(read_text(out, CONFIGURATION)) if what == "configuration" else _document(what)
        out.write_text(text, encoding="utf-8")
    except ReadError as error:
        raise UserError(f"--out: {error}") from error
    except ValueError as error:
        raise UserError(f"--out: {out}: {error}") from error
    except OSError as error:
        raise UserError(f"--out: {out}: {error.strerror}") from error
    return 0


def _document(what: str) -> str:
    from agent.config import reference

    if what == "configuration":
        return reference.table()
    if what == "config-file":
        return reference.default_file()
    if what == "migrating":
        from exporters import migration_document

        return migration_document.render()
    if what == "scenarios":
        from agent.backends.synthetic import scenario_document

        return scenario_document.render()
    if what == "xids":
        from alerts import xid_document

        return xid_document.render()
    from exporters.metrics_document import render

    return render()
