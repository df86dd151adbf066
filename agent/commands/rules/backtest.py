"""`coldplate rules backtest`: which alerts there would have been in the time of recordings."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from agent.commands.rules.playing import UnreadableRulesError, load_files, play
from agent.lib.commandline import INVALID, Parser
from agent.wiring.command_line import add_config_file, folder_of, read_file

if TYPE_CHECKING:
    from agent.config.schema import Config
    from agent.recording.recording_reader import Recording
    from alerts.backtest.play import NodePlay
    from alerts.engine import Ruleset

EXAMPLES = (
    ("coldplate rules backtest run.coldplate", "which alerts the configured rules would have had"),
    ("coldplate rules backtest run.coldplate --rules new.yml --against builtin", "how they differ from the pack's"),
)
EXIT_STATUSES = {0: "played", 1: "a recording or a rule file cannot be read; the others were played", **INVALID}
EXIT_UNREADABLE = 1


def add_arguments(parser: Parser) -> None:
    """The recordings, the rules, and what to compare them with."""
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING", help="file of coldplate record, or of "
                        "the flight recorder; each node is played by itself")  # fmt: skip
    for name, words in (
        ("rules", "rule files to play instead of the configured ones, or 'builtin': the pack that is shipped"),
        ("against", "an earlier version of the rules: tell what fires with one of them only, earlier or later"),
    ):
        parser.add_argument(f"--{name}", nargs="+", action="extend", metavar="FILE", help=words)
    parser.add_argument("--pending", action="store_true", help="list alerts as well that never came to fire")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    add_config_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Play the recordings and print what the rules say. Raises ConfigError."""
    from agent.commands.rules import backtest_output
    from agent.lib import logs
    from agent.recording.file_records import RecordingError
    from alerts.backtest.span_differences import differences, labels_set_by

    logs.set_up("error", "logfmt", sys.stderr)
    config = read_file(arguments)
    try:
        versions = _versions(arguments, config)
    except UnreadableRulesError as error:
        _warn(str(error))
        return EXIT_UNREADABLE
    with ExitStack() as stack:
        recordings, status = _opened(arguments.recordings, stack)
        if not recordings:
            return status
        nodes: dict[str, NodePlay] = {}
        try:
            play(recordings, versions, config, nodes)
        except RecordingError as error:  # what was played until then is told
            _warn(str(error))
            status = EXIT_UNREADABLE
        problems = [problem for recording in recordings for problem in recording.problems]
    for problem in problems:
        _warn(problem)
    played = [nodes[name] for name in sorted(nodes)]
    new, *old = [[span for node in played for span in node.plays[number].spans()] for number in range(len(versions))]
    found = differences(old[0], new, labels_set_by(*versions)) if old else None
    write = backtest_output.write_json if arguments.json else backtest_output.write_text
    write(backtest_output.Backtest(played, new, found, versions[0], problems, arguments.pending))
    return status


def _versions(arguments: argparse.Namespace, config: Config) -> list[Ruleset]:
    """The rules that are asked for, and those to compare them with. Raises ConfigError and UnreadableRulesError."""
    from agent.wiring.alerting import load_rules

    rules = load_files(arguments.rules, config) if arguments.rules else load_rules(config, folder_of(arguments))
    return [rules, load_files(arguments.against, config)] if arguments.against else [rules]


def _opened(paths: list[Path], stack: ExitStack) -> tuple[list[Recording], int]:
    """Those that can be read; the exit status tells whether one cannot."""
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import Recording

    recordings, status = [], 0
    for path in paths:
        try:
            recordings.append(stack.enter_context(Recording(path)))
        except RecordingError as error:
            _warn(str(error))
            status = EXIT_UNREADABLE
    return recordings, status


def _warn(text: str) -> None:
    print(f"coldplate rules backtest: {text}", file=sys.stderr)
