"""`coldplate compat-check`: which queries of dashboards and rule files find data on coldplate, and which do not."""

import argparse
import sys
from pathlib import Path

from agent.lib.commandline import takes_colour, warn

HELP = "which queries of dashboards and rules find data on coldplate"
DESCRIPTION = (
    "Read Grafana dashboards (JSON) and rule files of Prometheus or Kubernetes (YAML), and report for each query "
    "whether coldplate has its metrics: under its own names, under those of another exporter that "
    "metrics.compatibility serves, or not; and what to query instead. A query that coldplate's own rules could not "
    "have is listed as unread. Nothing is asked of a server."
)
EXAMPLES = (
    ("coldplate compat-check dashboard.json", "each panel and variable of a dashboard"),
    ("coldplate compat-check --json site/*.yml", "the same of rule files, for a program"),
)
EXIT_STATUSES = {
    0: "every query finds data, if the profiles are served that are named at the end",
    1: "at least one finds none, or is not read",
    2: "a file cannot be read, or the command line is invalid; one line says why",
}
EXIT_NONE, EXIT_UNREADABLE = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="dashboard or rule file")
    parser.add_argument("--json", action="store_true", help="print verdicts as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check each file; one that cannot be read does not keep the others from being checked."""
    from agent.commands.compat_check import query_verdicts

    files = query_verdicts.check_files(arguments.files)
    if arguments.json:
        print(query_verdicts.document(files))
    else:
        for line in query_verdicts.lines(files, takes_colour(sys.stdout)):
            print(line)
    sys.stdout.flush()
    for file in files:
        if file.problem:
            warn("compat-check", file.problem)
    if any(file.problem for file in files):
        return EXIT_UNREADABLE
    return 0 if all(query.finds_data for file in files for query in file.queries) else EXIT_NONE
