"""`coldplate rules check`: promtool's command of that name, without Prometheus. And `coldplate rules backtest`: what
rules would have said in the time of a recording.

Results and exit statuses are those of promtool: 0 on success, 1 if a file fails. Successes
go to standard output, failures to standard error. `coldplate render rules` is the inverse: it writes the rules that the
agent evaluates as files for a Prometheus server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.commands.rules import backtest
from agent.config.words import PROFILES
from agent.lib.commandline import INVALID, Parser

if TYPE_CHECKING:
    from alerts.rulefile import RuleCount

HELP = "check Prometheus rule files, and play them over recordings"
DESCRIPTION = (
    "Check Prometheus rule files, and play them over recordings, as the daemon evaluates them. "
    "Unit tests of rules are promtool's: promtool test rules."
)
EXAMPLES = (("coldplate rules check site/*.yml", "whether the daemon would load these files"), backtest.EXAMPLES[0])
EXIT_STATUSES = {0: "nothing is wrong", 1: "a file is", **INVALID}


def add_arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="check whether rule files can be loaded",
        description="Check whether rule files can be loaded, and report what is wrong with those that cannot. "
        "Results and exit statuses are those of promtool check rules.",
        examples=(("coldplate rules check site/*.yml", "whether the daemon would load these files"),),
        exit_statuses={0: "all files are valid", 1: "at least one is not", **INVALID},
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="rule file")
    check.add_argument(
        "--profile",
        choices=PROFILES,
        default="default",
        help="metrics.profile of the pages that a server scrapes, to warn of metrics not in them (default default)",
    )
    backtest.add_arguments(
        actions.add_parser(
            "backtest",
            help="play rules over recordings",
            description="List the alerts that there would have been in the time of recordings: when they were pending, "
            "fired and ended. Rules are evaluated as the daemon does it, and faster than it happened.",
            examples=backtest.EXAMPLES,
            exit_statuses=backtest.EXIT_STATUSES,
        )
    )


def run(arguments: argparse.Namespace) -> int:
    """Check or test each file, or play recordings; the exit status. Raises ConfigError."""
    if arguments.action == "backtest":
        return backtest.run(arguments)
    from alerts.rulefile import RuleCount

    count = RuleCount()
    verdicts = [_check(path, arguments.profile, count) for path in arguments.files]
    return 0 if all(verdicts) else 1


def _check(path: Path, profile: str, count: RuleCount) -> bool:
    from alerts import packs, rulefile

    print(f"Checking {path}", flush=True)
    try:
        rules = rulefile.load(path, count=None if packs.is_shipped(path) else count, handed=True)
    except rulefile.RuleFileError as error:
        return _fail(f"  {problem}" for problem in error.problems)
    from agent.catalogue.groups import Profile
    from agent.commands.rules.rule_lint import lint_file, too_long_ranges

    refused = [f"  {problem}" for problem in too_long_ranges(rules)]
    if refused:
        return _fail(refused)
    for warning in (*rules.warnings, *lint_file(rules, Profile[profile.upper()])):
        print(f"  WARNING: {warning}")
    print(f"  SUCCESS: {rules.rule_count} rules found\n")
    return True


def _fail(lines: Iterable[str]) -> bool:
    sys.stdout.flush()
    print("  FAILED:", *lines, sep="\n", file=sys.stderr, flush=True)
    print(flush=True)
    return False
