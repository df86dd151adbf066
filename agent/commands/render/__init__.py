"""`coldplate render`: writes what is generated: documents, rule files and dashboards."""

from __future__ import annotations

import argparse

from agent.commands.render.documents import add_to as add_documents
from agent.commands.render.fleet_files import add_dashboards, add_rules
from agent.lib.commandline import INVALID, Parser

HELP = "write the metrics reference, a configuration file, rule files or dashboards"
DESCRIPTION = "Write what is generated from the metric catalogue, the rules or the configuration."
EXAMPLES = (
    ("coldplate render config-file --output coldplate.yaml", "a configuration file to start from"),
    ("coldplate render rules --output /etc/prometheus/rules", "the agent's rules, for a Prometheus server"),
)
EXIT_STATUSES = {0: "written", 1: "standard output could not be written", **INVALID}


def add_arguments(parser: Parser) -> None:
    """What to write; each has options of its own."""
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for add in (add_documents, add_rules, add_dashboards):
        add(kinds)


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for. Raises UserError."""
    status: int = arguments.render(arguments)
    return status
