"""`coldplate report`: what recordings say about a run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.lib.commandline import INVALID, takes_colour, warn
from agent.lib.wording import UserError
from agent.wiring.command_line import DEFAULT_FILE, add_config_file, folder_of, read_file

if TYPE_CHECKING:
    from agent.config.schema import Config
    from agent.recording.report.observation import Judgement
    from agent.recording.report.report_card import TextStyle
    from agent.recording.report.run_facts import RecordedRun
    from agent.wiring.recorded_alerts import RecordedPlay

HELP = "say what recordings show about a run"
DESCRIPTION = (
    "Read recordings of one run, of one node or of several, and say which alerts the rules have in it, how each GPU "
    "was used and what was lost. Files that are cut or damaged are read as far as they are whole, with a warning that "
    "names file and place."
)
EXAMPLES = (
    ("coldplate report run.coldplate", "the alerts that fire, and the figures of each GPU"),
    ("coldplate report node-*.coldplate --html run.html", "the nodes of a job as one run, and a page with plots"),
    ("coldplate report --compare before.coldplate after.coldplate", "two runs side by side"),
)
EXIT_STATUSES = {
    0: "a report was made; warnings name what was damaged",
    1: "nothing could be read, or the page not be written; one line says why",
    **INVALID,
}

_warn = partial(warn, "report")

WIDEST = 100
"""Columns that the card uses of a wide terminal: longer lines of text are hard to read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="a recording; several are read as one run")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="set two runs of one file each side by side")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots that needs no network; - is the output")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, in base units")
    parser.add_argument(
        "--rules",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="rule files to evaluate instead of the configured ones with advice; 'builtin' is the pack, 'advice' its "
        "optional file",
    )
    add_config_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Raises UserError for arguments that do not go together, and ConfigError."""
    if arguments.compare:
        if arguments.files or arguments.html is not None:
            raise UserError("--compare takes two files, and neither others nor --html")
        return _compare(arguments)
    if not arguments.files:
        where = ", before --rules" if arguments.rules else ""
        raise UserError(f"give a recording{where}; see coldplate report --help")
    if arguments.html == "-" and arguments.json:
        raise UserError("--html - and --json both write to the output; name a file for the page")
    return _report(arguments)


def _report(arguments: argparse.Namespace) -> int:
    from agent.recording.recording_reader import distinct_files
    from agent.recording.report.html_report import html_report
    from agent.recording.report.observation import recorded_observations, without_repeated
    from agent.recording.report.report_card import report_card
    from agent.recording.report.report_document import report_document

    files, page = distinct_files(arguments.files, _warn), arguments.html
    rules = _rules(arguments)
    gathered = _read_files(files) if rules is not None else None
    if rules is None or gathered is None:
        return 1
    judgement = _judge_files(files, rules)
    recorded = without_repeated(recorded_observations(gathered), judgement.observations)
    if page is not None and not _write_page(page, html_report(gathered, judgement, recorded)):
        return 1
    if arguments.json:
        _print_document(report_document(gathered, judgement, recorded))
    elif page != "-":
        print("\n".join(report_card(gathered, judgement, recorded, _style())))
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from agent.recording.report.comparison import comparison_card, comparison_document

    runs: list[RecordedRun] = []
    judgements: list[Judgement] = []
    for file in arguments.compare:
        rules = _rules(arguments)
        gathered = _read_files([file]) if rules is not None else None
        if rules is None or gathered is None:
            return 1
        runs.append(gathered)
        judgements.append(_judge_files([file], rules))
    if arguments.json:
        _print_document(comparison_document(runs[0], runs[1], judgements))
    else:
        print("\n".join(comparison_card(runs[0], runs[1], judgements, _style())))
    return 0


def _print_document(document: dict[str, Any]) -> None:
    import json

    print(json.dumps(document, indent=1, allow_nan=False))


def _write_page(name: str, page: str) -> bool:
    """Write the page; whether that succeeded."""
    if name == "-":
        print(page, end="")
        return True
    try:
        Path(name).write_text(page, encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        _warn(f"--html: {name}: cannot be written: {getattr(error, 'strerror', None) or error}")
        return False
    return True


def _style() -> TextStyle:
    from agent.recording.report.report_card import TextStyle

    width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST) if sys.stdout.isatty() else 80
    return TextStyle(width, colour=takes_colour(sys.stdout))


def _read_files(files: Sequence[Path | str]) -> RecordedRun | None:
    """Return what the files say, with a warning for each that cannot be read; None if none can."""
    from agent.lib.clock import clock
    from agent.lib.commandline import Progress
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import open_recordings
    from agent.recording.report.run_reader import read_run

    unreadable: list[str] = []
    with open_recordings(files, unreadable.append) as recordings:
        for problem in unreadable:
            _warn(problem)
        if not recordings:
            return None
        try:
            with Progress("reading", 0, lambda: clock().mono) as progress:
                gathered = read_run(recordings, progress.reached)
        except RecordingError as error:
            _warn(str(error))
            return None
        for problem in gathered.problems:
            _warn(problem)
        gathered.problems = unreadable + gathered.problems
        return gathered


def _rules(arguments: argparse.Namespace) -> RecordedPlay | None:
    """Return the rules, ready to be played; None with a warning if their files cannot be read. Raises ConfigError."""
    from agent.lib import logs
    from agent.wiring.recorded_alerts import RecordedPlay, load_files, load_with_advice
    from alerts.rulefile import RuleFileError

    logs.set_up("error", "logfmt", sys.stderr)
    config = _config(arguments)
    try:
        if arguments.rules:
            return RecordedPlay([load_files(arguments.rules, config)], config)
        return RecordedPlay([load_with_advice(config, folder_of(arguments))], config)
    except (RuleFileError, ValueError) as error:
        _warn(str(error))
        return None


def _config(arguments: argparse.Namespace) -> Config:
    """Return the configuration; the defaults where the node's own is not for this user. Raises ConfigError."""
    from agent.config.schema import Config

    if arguments.config_file is None and _is_closed(DEFAULT_FILE):
        _warn(f"{DEFAULT_FILE}: this user cannot read it: the rules are those of the pack, without changes of the site")
        return Config()
    return read_file(arguments)


def _is_closed(path: Path) -> bool:
    """Return whether there is a file, or a folder on the way to it, that this user may not read."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, os.R_OK)


def _judge_files(files: Sequence[Path | str], rules: RecordedPlay) -> Judgement:
    """Return what the rules say of the files, which have been read once: what is wrong with them is already printed."""
    from contextlib import suppress

    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import open_recordings

    with open_recordings(files) as recordings, suppress(RecordingError):
        rules.play(recordings)
    return rules.judgement()
