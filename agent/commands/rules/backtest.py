"""`coldplate rules backtest`: list the alerts that rules would have had in the time of recordings."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.commandline import INVALID, Parser, warn
from agent.wiring.command_line import add_config_file, folder_of, read_file

_warn = partial(warn, "rules backtest")

if TYPE_CHECKING:
    from agent.config.schema import Config
    from alerts.engine import Ruleset


EXAMPLES = (
    ("coldplate rules backtest run.coldplate", "which alerts the configured rules would have had"),
    ("coldplate rules backtest run.coldplate --rules new.yml --against builtin", "how they differ from the pack's"),
)
EXIT_STATUSES = {
    0: "played, and nothing of the recordings is missing",
    1: "a recording or a rule file cannot be read, or a recording is damaged; the rest was played",
    **INVALID,
}
EXIT_UNREADABLE = 1


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "recordings",
        nargs="+",
        type=Path,
        metavar="RECORDING",
        help="file of coldplate record, or of the flight recorder; each node is played by itself",
    )
    for name, words in (
        ("rules", "rule files to play instead of the configured ones, or 'builtin': the pack that is shipped"),
        ("against", "an earlier version of the rules: list what fires with one of them only, earlier or later"),
    ):
        parser.add_argument(f"--{name}", nargs="+", action="extend", metavar="FILE", help=words)
    parser.add_argument("--pending", action="store_true", help="also list alerts that stayed pending")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    add_config_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Play the recordings and print what the rules say. Raises ConfigError."""
    from agent.commands.rules import backtest_output
    from agent.lib import logs
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import distinct_files, open_recordings
    from agent.wiring.recorded_alerts import RecordedPlay
    from alerts.backtest.span_differences import differences, labels_set_by
    from alerts.rulefile import RuleFileError

    logs.set_up("error", "logfmt", sys.stderr)
    config = read_file(arguments)
    try:
        versions = _versions(arguments, config)
    except (RuleFileError, ValueError) as error:
        _warn(str(error))
        return EXIT_UNREADABLE
    paths = distinct_files(arguments.recordings, _warn)
    with open_recordings(paths, _warn) as recordings:
        if not recordings:
            return EXIT_UNREADABLE
        status = 0 if len(recordings) == len(paths) else EXIT_UNREADABLE
        replayed = RecordedPlay(versions, config)
        try:
            replayed.play(recordings)
        except RecordingError as error:  # report what was played until then
            _warn(str(error))
            status = EXIT_UNREADABLE
        problems = [problem for recording in recordings for problem in recording.problems]
    for problem in problems:
        _warn(problem)
        status = EXIT_UNREADABLE
    played = [replayed.nodes[name] for name in sorted(replayed.nodes)]
    new, *old = [[span for node in played for span in node.plays[number].spans()] for number in range(len(versions))]
    compared = differences(old[0], new, labels_set_by(*versions)) if old else None
    write = backtest_output.write_json if arguments.json else backtest_output.write_text
    write(backtest_output.Backtest(played, new, compared, versions[0], problems, arguments.pending,
                                   replayed.judgement()))  # fmt: skip
    return status


def _versions(arguments: argparse.Namespace, config: Config) -> list[Ruleset]:
    """Return the rules that are asked for, and those to compare them with. Raises ConfigError, and as `load_files`."""
    from agent.wiring.alerting import load_rules
    from agent.wiring.recorded_alerts import load_files

    rules = load_files(arguments.rules, config) if arguments.rules else load_rules(config, folder_of(arguments))
    return [rules, load_files(arguments.against, config)] if arguments.against else [rules]
