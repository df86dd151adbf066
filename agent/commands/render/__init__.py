"""`coldplate render`: writes what is generated: documents, and rule files and dashboards with the names of a site."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.render.alertmanager_files import add_alertmanager
from agent.commands.render.documents import add_documents
from agent.commands.render.output_directory import add_directory, begins_with, report_leftovers, write_files
from agent.commands.render.runbook_files import add_runbooks
from agent.lib.commandline import INVALID, Parser
from agent.lib.wording import UserError, counted
from agent.wiring.command_line import add_config_file, folder_of, read_file

if TYPE_CHECKING:
    from agent.config.schema import Config
    from alerts.rulefile import RuleFile

HELP = "write rule files, dashboards, an Alertmanager's configuration, runbooks or documents"
DESCRIPTION = "Write what is generated from the metric catalogue, the rules or the configuration."
EXAMPLES = (
    ("coldplate render config-file --output coldplate.yaml", "a configuration file to start from"),
    ("coldplate render rules --output /etc/prometheus/rules", "the agent's rules, for a Prometheus server"),
)
EXIT_STATUSES = {0: "written", 1: "standard output could not be written", **INVALID}


def add_arguments(parser: Parser) -> None:
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for add in (add_documents, add_rules, add_dashboards, add_alertmanager, add_runbooks):
        add(kinds)


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for. Raises UserError."""
    status: int = arguments.render(arguments)
    return status


MARK = "# Written by coldplate render rules; change the configuration instead."
"""The first line of every file that `render` writes; only files that start with it are overwritten."""
SHARD_INTERVAL = "15s"
"""How often a shard evaluates at most: as often as it scrapes."""


def add_rules(kinds: Any) -> None:
    parser = kinds.add_parser(
        "rules",
        help="write the rules that the agent evaluates and the boards read, for a Prometheus server",
        description="Write the rule files with the configuration's changes, for a Prometheus server, and the rules of "
        "the Fleet dashboard, which only a server evaluates.",
        examples=(
            ("coldplate render rules --output /etc/prometheus/rules", "what this node's agent evaluates"),
            ("coldplate render rules --min-interval 15s --output rules", "no group more often than a server scrapes"),
            ("coldplate render rules --for-shard --output rules", "what compares agents, for a shard of a fleet"),
        ),
        exit_statuses={0: "written", **INVALID},
    )
    parser.set_defaults(render=render_rules)
    add_directory(parser)
    add_runbook_links(parser)
    parser.add_argument(
        "--min-interval", metavar="DURATION", help="evaluate no group more often (with --for-shard 15s)"
    )
    parser.add_argument(
        "--for-shard", action="store_true", help="leave out the pack's files about a single node: its agent has them"
    )


def add_runbook_links(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where links to runbooks lead: below a URL, or to the agents, by http or https."""
    parser.add_argument(
        "--runbook-base", metavar="URL", help="base URL of the pack's runbooks (default rules.runbook_base)"
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        metavar="FILE",
        help="the agents' file with TLS: if it has any, links to them begin with https (default web.config_file)",
    )
    add_config_file(parser)


def _read_with_base(arguments: argparse.Namespace) -> Config:
    """Return the configuration with the base URL that is given. Raises UserError."""
    import msgspec

    from agent.config.checks import base_url
    from agent.config.schema import parse_value

    config = read_file(arguments)
    if arguments.runbook_base is None:
        return config
    parse_value("--runbook-base", base_url, arguments.runbook_base)
    changed = msgspec.structs.replace(config.rules, runbook_base=arguments.runbook_base)
    return msgspec.structs.replace(config, rules=changed)


def render_rules(arguments: argparse.Namespace) -> int:
    """Write the rules of the configuration. The exit status. Raises UserError."""
    from agent.wiring.alerting import load_files
    from alerts import packs, rulefile

    config = _read_with_base(arguments)
    files = (*load_files(config, folder_of(arguments)), rulefile.load(packs.FLEET_RULES))
    return render_rule_files(_for_servers(files, arguments), arguments.output)


def _for_servers(files: Sequence[RuleFile], arguments: argparse.Namespace) -> Sequence[RuleFile]:
    """Return the files as they are asked for. Raises UserError."""
    from agent.config.schema import parse_value
    from alerts import durations, server_files

    shard, least = arguments.for_shard, arguments.min_interval
    if shard:
        files = server_files.of_a_shard(files)
        least = least or SHARD_INTERVAL
    if least is None:
        return files
    seconds = parse_value("--min-interval", durations.parse, least)
    return parse_value("--min-interval", server_files.at_most_every, seconds, files)


def render_rule_files(files: Sequence[RuleFile], out: Path) -> int:
    """Write rule files into a directory, one for each source; print their names, return the exit status.

    Raises UserError, before anything is written, if a file of that name was not written by this command.
    """
    from alerts.server_files import write

    targets = dict(zip(_names(files), files, strict=True))
    texts = {name: f"{MARK}\n# From {file.path}\n{write(file)}" for name, file in targets.items()}
    is_ours = begins_with(MARK)
    write_files(
        out, texts, is_ours, lambda name: f": {counted(targets[name].rule_count, 'rule')} from {targets[name].path}"
    )
    report_leftovers(out, targets, is_ours)
    return 0


def _names(files: Sequence[RuleFile]) -> list[str]:
    """Return a name for each file: its own, with a number if that name is taken."""
    names: list[str] = []
    for file in files:
        path = Path(file.path)
        name, number = path.name, 1
        while name in names:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names.append(name)
    return names


_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*|")


def add_dashboards(kinds: Any) -> None:
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
    parser.set_defaults(render=render_dashboards)
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
    add_runbook_links(parser)


def render_dashboards(arguments: argparse.Namespace) -> int:
    """Write the dashboards into the directory, print their names, and return the exit status. Raises UserError."""
    from dashboards.relabel import PREFIX, SiteNames, dashboards

    prefix = PREFIX if arguments.prefix is None else arguments.prefix
    if not _PREFIX.fullmatch(prefix):
        raise UserError(f"--prefix: {prefix!r} cannot start a metric name; use letters, digits and _")
    site = SiteNames(_labels(arguments.label), prefix, arguments.datasource, _runbooks(_read_with_base(arguments)))
    write_files(arguments.output, dict(dashboards(site)), _is_board)
    return 0


def _runbooks(config: Config) -> str:
    """Return how links to runbooks begin, by the configuration of the agents."""
    from agent.config.checks import base_url
    from agent.wiring.identity import serves_tls
    from dashboards.relabel import AGENTS

    if config.rules.runbook_base is not None:
        return base_url(config.rules.runbook_base)
    return AGENTS.replace("http://", "https://") if serves_tls(config) else AGENTS


def _is_board(path: Path) -> bool:
    """Return True if a file is one of our dashboards, by the name that it has in Grafana."""
    import json

    try:
        board = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(board, dict) and str(board.get("uid", "")).startswith("coldplate-")


def _labels(renames: list[str]) -> dict[str, str]:
    from dashboards.relabel import LABELS

    labels: dict[str, str] = {}
    for rename in renames:
        ours, equals, yours = rename.partition("=")
        if not equals or not _LABEL.fullmatch(yours):
            raise UserError(f"--label: {rename!r} must be OLD=NEW with a label name, such as instance=host")
        if ours not in LABELS:
            raise UserError(f"--label: {ours!r} cannot be renamed; use one of {', '.join(LABELS)}")
        if labels.setdefault(ours, yours) != yours:
            raise UserError(f"--label: {ours} has two new names, {labels[ours]} and {yours}; give one")
    return labels
