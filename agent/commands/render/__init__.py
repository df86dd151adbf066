"""`coldplate render`: writes what is generated: documents, rule files and dashboards."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent.commands.render.fleet_files import add_dashboards, add_rules
from agent.lib.commandline import INVALID, Parser
from agent.lib.wording import UserError

HELP = "write the metrics reference, a configuration file, rule files or dashboards"
DESCRIPTION = "Write what is generated from the metric catalogue, the rules or the configuration."
EXAMPLES = (
    ("coldplate render config-file --output coldplate.yaml", "a configuration file to start from"),
    ("coldplate render rules --output /etc/prometheus/rules", "the agent's rules, for a Prometheus server"),
)
EXIT_STATUSES = {0: "written", 1: "standard output could not be written", **INVALID}


def add_arguments(parser: Parser) -> None:
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for add in (add_documents, add_rules, add_dashboards):
        add(kinds)


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for. Raises UserError."""
    status: int = arguments.render(arguments)
    return status


DOCUMENTS = {
    "metrics": ("the reference of all metrics, in Markdown", "docs/metrics.md"),
    "config-file": ("a configuration file with every default", "/etc/coldplate/coldplate.yaml"),
}


def add_documents(kinds: Any) -> None:
    for name, (what, example) in DOCUMENTS.items():
        parser = kinds.add_parser(
            name,
            help=f"write {what}",
            description=f"Write {what}.",
            examples=((f"coldplate render {name} --output {example}", what),),
            exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
        )
        parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of standard output")
        parser.set_defaults(render=_render_document)


def _render_document(arguments: argparse.Namespace) -> int:
    """Write the text that is asked for. Raises UserError."""
    if arguments.what == "config-file":
        from agent.config.default_file import default_file as make
    else:
        from exporters.metrics_document import render as make
    text, out = make(), arguments.output
    if out is None:
        sys.stdout.write(text)
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {out}: {error.strerror}") from error
    return 0
