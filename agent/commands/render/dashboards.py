"""`coldplate render dashboards`: the Grafana dashboards as files, with a site's own names.

It needs neither Grafana nor grafanalib: the dashboards are part of the package.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from agent.commands.render.out_directory import add_directory, refuse_no_directory
from agent.lib.commandline import INVALID
from agent.lib.wording import UserError

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*|")


def add_to(kinds: Any) -> None:
    """Its parser."""
    parser = kinds.add_parser(
        "dashboards",
        help="write the Grafana dashboards",
        description="Write the Grafana dashboards as files, with a site's own names, and print theirs.",
        examples=(
            ("coldplate render dashboards --output dashboards", "as they ship"),
            (
                "coldplate render dashboards --output dashboards --label instance=host --datasource mimir",
                "as a site has it",
            ),
        ),
        exit_statuses={0: "written", **INVALID},
    )
    parser.set_defaults(render=render)
    add_directory(parser)
    group = parser.add_argument_group("for sites that relabel")
    group.add_argument("--datasource", metavar="UID", help="default data source of the dashboards")
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="rename a label, such as instance=host; OLD is cluster, instance, rack or job_id; may be repeated",
    )
    group.add_argument("--prefix", metavar="PREFIX", help="prefix of metric names instead of coldplate_")


def render(arguments: argparse.Namespace) -> int:
    """Writes the dashboards into the directory and prints their names. The exit status. Raises UserError."""
    from agent.lib.state_files import replace_file
    from dashboards.relabel import PREFIX, Relabelling, dashboards

    out: Path = arguments.output
    refuse_no_directory(out)
    prefix = PREFIX if arguments.prefix is None else arguments.prefix
    if not _PREFIX.fullmatch(prefix):
        raise UserError(f"--prefix: {prefix!r} cannot start a metric name; use letters, digits and _")
    try:
        for name, text in dashboards(Relabelling(_labels(arguments.label), prefix, arguments.datasource)):
            replace_file(out / name, text.encode())
            print(out / name)
    except OSError as error:
        raise UserError(f"--output: {error.filename or out}: {error.strerror}") from error
    return 0


def _labels(given: list[str]) -> dict[str, str]:
    from dashboards.relabel import LABELS

    labels: dict[str, str] = {}
    for each in given:
        ours, equals, yours = each.partition("=")
        if not equals or not _LABEL.fullmatch(yours):
            raise UserError(f"--label: {each!r} must be OLD=NEW with a label name, such as instance=host")
        if ours not in LABELS:
            raise UserError(f"--label: {ours!r} cannot be renamed; use one of {', '.join(LABELS)}")
        if labels.setdefault(ours, yours) != yours:
            raise UserError(f"--label: {ours} has two new names, {labels[ours]} and {yours}; give one")
    return labels
