"""`coldplate render rules`: the rules that the agent evaluates, as files for a Prometheus server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.render.out_directory import add_directory, refuse_no_directory
from agent.lib.commandline import INVALID
from agent.lib.wording import UserError
from agent.wiring.command_line import add_config_file, folder_of, read_file

if TYPE_CHECKING:
    from alerts.rulefile import RuleFile

MARK = "# Written by coldplate render rules; change the configuration instead."
"""The first line of every file that `render` writes; only files that start with it are overwritten."""
SHARD_INTERVAL = "15s"
"""How often a shard evaluates at most: as often as it scrapes."""


def add_to(kinds: Any) -> None:
    """Its parser."""
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
    from agent.wiring.alerting import load_files

    config = read_file(arguments)
    if arguments.runbook_base is not None:
        try:
            base_url(arguments.runbook_base)
        except ValueError as error:
            raise UserError(f"--runbook-base: {error}") from error
        changed = msgspec.structs.replace(config.rules, runbook_base=arguments.runbook_base)
        config = msgspec.structs.replace(config, rules=changed)
    return render(_for_servers(load_files(config, folder_of(arguments)), arguments), arguments.output)


def _for_servers(files: Sequence[RuleFile], arguments: argparse.Namespace) -> Sequence[RuleFile]:
    """The files as they are asked for. Raises UserError."""
    from alerts import durations, server_files

    shard, least = arguments.for_shard, arguments.min_interval
    if shard:
        files = server_files.of_a_shard(files)
        least = least or SHARD_INTERVAL
    if least is None:
        return files
    try:
        return server_files.at_most_every(durations.parse(least), files)
    except ValueError as error:
        raise UserError(f"--min-interval: {error}") from error


def render(files: Sequence[RuleFile], out: Path) -> int:
    """Writes rule files into a directory, one for each source, and prints their names. The exit status.

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
            print(f"{out / name}: {file.rule_count} rules from {file.path}")
        left = [path for path in sorted(out.iterdir()) if path.name not in targets and _is_ours(path)]
    except OSError as error:
        raise UserError(f"--output: {error.filename or out}: {error.strerror}") from error
    for path in left:
        print(f"{path}: left over from an earlier run; remove it, or a server loads it as well", file=sys.stderr)
    return 0


def _names(files: Sequence[RuleFile]) -> list[str]:
    """A name for each file: its own, with a number if that name is taken."""
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
