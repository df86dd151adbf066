"""`coldplate render`: writes what is generated: documents, and rule files and dashboards with the names of a site."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.lib.commandline import INVALID, Parser
from agent.lib.wording import UserError, counted
from agent.wiring.command_line import add_config_file, folder_of, read_file

if TYPE_CHECKING:
    from alerts.rulefile import RuleFile

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


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add the option that names it, which must be given."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="directory for the files; it is created if missing"
    )


def refuse_no_directory(out: Path) -> None:
    """Raise UserError for a path where something else is."""
    if os.path.exists(out) and not os.path.isdir(out):  # noqa: PTH110, PTH112 - unlike Path's, these never raise
        raise UserError(f"--output: {out} is not a directory; name one (it is created if missing)")


MARK = "# Written by coldplate render rules; change the configuration instead."
"""The first line of every file that `render` writes; only files that start with it are overwritten."""
SHARD_INTERVAL = "15s"
"""How often a shard evaluates at most: as often as it scrapes."""


def add_rules(kinds: Any) -> None:
    parser = kinds.add_parser(
        "rules",
        help="write the rules that the agent evaluates, for a Prometheus server",
        description="Write the rule files with the configuration's changes, for a Prometheus server.",
        examples=(
            ("coldplate render rules --output /etc/prometheus/rules", "what this node's agent evaluates"),
            ("coldplate render rules --min-interval 15s --output rules", "no group more often than a server scrapes"),
            ("coldplate render rules --for-shard --output rules", "what compares agents, for a shard of a fleet"),
        ),
        exit_statuses={0: "written", **INVALID},
    )
    parser.set_defaults(render=render_rules)
    add_directory(parser)
    parser.add_argument(
        "--runbook-base", metavar="URL", help="base URL of the pack's runbooks (default rules.runbook_base)"
    )
    parser.add_argument(
        "--min-interval", metavar="DURATION", help="evaluate no group more often (with --for-shard 15s)"
    )
    parser.add_argument(
        "--for-shard", action="store_true", help="leave out the pack's files about a single node: its agent has them"
    )
    add_config_file(parser)


def render_rules(arguments: argparse.Namespace) -> int:
    """Write the rules of the configuration. The exit status. Raises UserError."""
    import msgspec

    from agent.config.checks import base_url
    from agent.config.schema import parse_value
    from agent.wiring.alerting import load_files

    config = read_file(arguments)
    if arguments.runbook_base is not None:
        parse_value("--runbook-base", base_url, arguments.runbook_base)
        changed = msgspec.structs.replace(config.rules, runbook_base=arguments.runbook_base)
        config = msgspec.structs.replace(config, rules=changed)
    return render_rule_files(_for_servers(load_files(config, folder_of(arguments)), arguments), arguments.output)


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
    from agent.lib.state_files import replace_file
    from alerts.server_files import write

    targets = dict(zip(_names(files), files, strict=True))
    try:
        _refuse_foreign(out, targets)
        for name, file in targets.items():
            text = f"{MARK}\n# From {file.path}\n{write(file)}"
            replace_file(out / name, text.encode())
            print(f"{out / name}: {counted(file.rule_count, 'rule')} from {file.path}")
        left = [path for path in sorted(out.iterdir()) if path.name not in targets and _is_ours(path)]
    except OSError as error:
        raise UserError(f"--output: {error.filename or out}: {error.strerror}") from error
    for path in left:
        print(f"{path}: left over from an earlier run; remove it, or a server loads it as well", file=sys.stderr)
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


def _refuse_foreign(out: Path, names: Iterable[str]) -> None:
    refuse_no_directory(out)
    for name in names:
        path = out / name
        if os.path.exists(path) and not _is_ours(path):  # noqa: PTH110 - unlike Path's, it never raises
            raise UserError(f"--output: {path} was not written by this command; move it, or name another directory")


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(len(MARK) + 2).rstrip("\r\n") == MARK


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


def render_dashboards(arguments: argparse.Namespace) -> int:
    """Write the dashboards into the directory, print their names, and return the exit status. Raises UserError."""
    from agent.lib.state_files import replace_file
    from dashboards.relabel import PREFIX, SiteNames, dashboards

    out: Path = arguments.output
    refuse_no_directory(out)
    prefix = PREFIX if arguments.prefix is None else arguments.prefix
    if not _PREFIX.fullmatch(prefix):
        raise UserError(f"--prefix: {prefix!r} cannot start a metric name; use letters, digits and _")
    try:
        for name, text in dashboards(SiteNames(_labels(arguments.label), prefix, arguments.datasource)):
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
