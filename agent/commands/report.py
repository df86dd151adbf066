"""`coldplate report`: what recordings say about a run."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.lib.commandline import INVALID, takes_colour, warn
from agent.lib.wording import UserError

if TYPE_CHECKING:
    from agent.recording.report.report_card import TextStyle
    from agent.recording.report.report_document import AlertReport
    from agent.recording.report.run_facts import RecordedRun
    from alerts.backtest.play import NodePlay

HELP = "say what recordings show about a run"
DESCRIPTION = (
    "Read recordings of one run, of one node or of several, and say how each GPU was used, what was lost and why. "
    "Files that are cut or damaged are read as far as they are whole, with a warning that names file and place."
)
EXAMPLES = (
    ("coldplate report run.coldplate", "what stands out, and the figures of each GPU"),
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
        help="play these rule files over the recordings, or 'builtin': the pack that is shipped; "
        "otherwise the alerts are those that were recorded",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Raises UserError for arguments that do not go together."""
    if arguments.compare:
        if arguments.files or arguments.html is not None or arguments.rules:
            raise UserError("--compare takes two files, and neither others nor --html or --rules")
        return _compare(*arguments.compare, as_json=arguments.json)
    if not arguments.files:
        where = ", before --rules" if arguments.rules else ""
        raise UserError(f"give a recording{where}; see coldplate report --help")
    if arguments.html == "-" and arguments.json:
        raise UserError("--html - and --json both write to the output; name a file for the page")
    return _report(arguments.files, arguments.html, arguments.rules, as_json=arguments.json)


def _report(names: Sequence[str], page: str | None, rules: list[str] | None, *, as_json: bool) -> int:
    from agent.recording.recording_reader import distinct_files
    from agent.recording.report.html_report import html_report
    from agent.recording.report.performance_observations import all_observations
    from agent.recording.report.report_card import report_card
    from agent.recording.report.report_document import recorded_alerts, report_document

    files = distinct_files(names, _warn)
    gathered = _gathered(files)
    played = _played(files, rules) if rules else None
    if gathered is None or (rules and played is None):
        return 1
    found, alerts = all_observations(gathered), played or recorded_alerts(gathered)
    if page is not None and not _write_page(page, html_report(gathered, found, alerts)):
        return 1
    if as_json:
        _print_document(report_document(gathered, found, alerts))
    elif page != "-":
        print("\n".join(report_card(gathered, found, alerts, _style())))
    return 0


def _compare(one: str, other: str, *, as_json: bool) -> int:
    from agent.recording.report.comparison import comparison, comparison_card, comparison_document

    first, second = _gathered([one]), _gathered([other])
    if first is None or second is None:
        return 1
    if as_json:
        _print_document(comparison_document(first, second, comparison(first, second)))
    else:
        print("\n".join(comparison_card(first, second, _style())))
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


def _gathered(files: Sequence[Path | str]) -> RecordedRun | None:
    """Return what the files say, with a warning for each that cannot be read; None if none can."""
    from agent.lib.clock import clock
    from agent.lib.commandline import Progress
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import open_recordings
    from agent.recording.report.run_reader import read_run

    with open_recordings(files, _warn) as recordings:
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
        return gathered


def _played(files: Sequence[Path | str], rules: Sequence[str]) -> AlertReport | None:
    """Return the alerts that these rules have in the recordings; None where they cannot be read."""
    from agent.commands.rules.backtest import load_files, replay_recordings
    from agent.config.schema import Config
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import open_recordings
    from agent.recording.report.report_document import played_alerts
    from alerts.rulefile import RuleFileError

    nodes: dict[str, NodePlay] = {}
    try:
        versions = [load_files(rules, Config())]
        with open_recordings(files) as recordings:  # why some cannot be read is already printed
            replay_recordings(recordings, versions, Config(), nodes)
    except (RuleFileError, ValueError) as error:
        _warn(str(error))
        return None
    except RecordingError:
        pass  # and this: report what was played until then
    spans = [span for node in nodes.values() for span in node.plays[0].spans() if span.fired_at is not None]
    last = max((node.last for node in nodes.values()), default=0.0)
    return played_alerts((span.node, span.labels, span.fired_at or 0.0, span.ended_at or last) for span in spans)
