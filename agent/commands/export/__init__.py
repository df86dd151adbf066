"""`coldplate export`: recordings in formats that other programs read."""

from __future__ import annotations

import argparse
import io
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agent.lib.commandline import INVALID, Parser, warn
from agent.lib.wording import shown, size
from agent.wiring.command_line import add_config_file, read_file

if TYPE_CHECKING:
    from agent.commands.export.export_formats import ExportSelection, SelectedSnapshots
    from agent.config.schema import Config
    from agent.lib.commandline import Progress
    from agent.model import Labels
    from agent.recording.recording_reader import Recording

HELP = "write recordings as OpenMetrics, CSV or JSON"
DESCRIPTION = (
    "Write recordings in a format that other programs read: openmetrics has timestamps, for promtool tsdb "
    "create-blocks-from openmetrics; csv has a row for each value, csv-wide one for each snapshot and a column for "
    "each series; json has a line for each value."
)
EXAMPLES = (
    ("coldplate export run.coldplate -o run.om", "timestamps and all, for a Prometheus server"),
    (
        "coldplate export run.coldplate -o run.csv --metrics 'coldplate_gpu_power_*' --step 15s",
        "some of it, for a notebook",
    ),
)
EXIT_STATUSES = {
    0: "written, and nothing of the recordings is missing",
    1: "a recording cannot be read or is damaged (what is whole was written), nothing is selected, or the output "
    "cannot be written; a line says why",
    **INVALID,
}
FORMATS = ("openmetrics", "csv", "csv-wide", "json")
SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
EXIT_FAILED = 1
_fail = partial(warn, "export")
BUFFER = 2**20
"""Bytes that are written to the file at a time."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "recordings",
        nargs="+",
        type=Path,
        metavar="RECORDING",
        help="file of coldplate record, or of the flight recorder",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="file to write, a new one (default standard output)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="how to write it (default by the suffix of OUT: .csv, .json, .jsonl; else openmetrics)",
    )
    parser.add_argument(
        "--metrics", nargs="+", default=[], metavar="NAME", help="only these metrics; patterns with * are taken"
    )
    parser.add_argument(
        "--step", default="0s", metavar="D", help="one snapshot per interval, such as 15s (default all)"
    )
    for name, words in (("start", "from this time on"), ("end", "until this time")):
        parser.add_argument(
            f"--{name}", metavar="TIME", help=f"only {words}, such as 2026-11-21T08:00:00Z or 1795248000"
        )
    add_config_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the file. Raises ConfigError."""
    from agent.recording.file_records import RecordingError
    from agent.recording.recording_reader import distinct_files, open_recordings

    config = read_file(arguments)
    style = arguments.format or SUFFIXES.get("" if arguments.output is None else arguments.output.suffix, "openmetrics")
    selection = _selection(arguments)
    paths = distinct_files(arguments.recordings, _fail)
    with open_recordings(paths, _fail) as recordings:
        if not recordings:
            return EXIT_FAILED
        status = 0 if len(recordings) == len(paths) else EXIT_FAILED
        try:
            is_empty = _write(recordings, selection, style, arguments.output, config)
        except RecordingError as error:
            return _fail(str(error))
        except OSError as error:
            if arguments.output is None:
                raise
            return _fail(f"{arguments.output}: {error.strerror or error}; what is there is not complete")
        problems = dict.fromkeys(problem for recording in recordings for problem in recording.problems)
        for problem in problems:
            _fail(problem)
    return EXIT_FAILED if is_empty or problems else status


def _write(
    recordings: list[Recording], selection: ExportSelection, style: str, out: Path | None, config: Config
) -> bool:
    """Write the file; return True if nothing was selected for it. Raises RecordingError and OSError."""
    from agent.commands.export.export_formats import SelectedSnapshots
    from agent.lib.clock import clock
    from agent.lib.commandline import Progress
    from agent.lib.wording import utc
    from agent.recording.recording_file import create_file

    with Progress("exporting", 0, lambda: clock().mono) as progress:
        snapshots = SelectedSnapshots(recordings, selection, lambda wall: progress.step(lambda: utc(wall)))
        if out is None:
            _write_text(snapshots, style, sys.stdout, config)
        else:
            file = io.BufferedWriter(_GrowingFile(create_file(out), progress), BUFFER)
            with io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as text:
                _write_text(snapshots, style, text, config)
    if out is not None and snapshots.is_empty:
        out.unlink(missing_ok=True)  # the name is free for another try
    elif out is not None:
        read = sum(recording.path.stat().st_size for recording in recordings)
        print(f"{out}: {size(out.stat().st_size)}, from {size(read)} of recordings", file=sys.stderr)
    _explain_selection(snapshots, selection, "" if out is None else "; no file is left")
    return snapshots.is_empty


def _explain_selection(snapshots: SelectedSnapshots, selection: ExportSelection, outcome: str) -> None:
    """Name each pattern that selected nothing, and say whether anything was selected."""
    is_bounded = selection.start > float("-inf") or selection.end < float("inf")
    place = "between --start and --end " if is_bounded else ""
    if not snapshots.has_snapshots:
        _fail(f"nothing is selected: the recordings have no snapshot {place}".rstrip() + outcome)
        return
    for pattern in snapshots.unmatched_patterns():
        _fail(f"--metrics: {shown(pattern)} selects nothing: no recording has such a metric {place}".rstrip())
    if snapshots.is_empty:
        _fail(f"nothing is selected: the recordings have no such series {place}".rstrip() + outcome)


class _GrowingFile(io.FileIO):
    """A file that says how large it is while it is written."""

    def __init__(self, descriptor: int, progress: Progress) -> None:
        super().__init__(descriptor, "wb")
        self._progress = progress

    def write(self, data: Any) -> int:
        self._progress.grown(lambda: f"{size(self.tell())} written")
        return super().write(data)


def _write_text(snapshots: SelectedSnapshots, style: str, out: TextIO, config: Config) -> None:
    from msgspec.structs import replace

    from agent.commands.export import export_formats
    from agent.wiring.identity import target_labels

    def targets(node: str) -> Labels:
        return target_labels(replace(config, node=replace(config.node, name=node)))

    if style == "openmetrics":
        export_formats.write_openmetrics(snapshots, targets, out)
    else:
        writers = {
            "csv": export_formats.write_long,
            "csv-wide": export_formats.write_wide,
            "json": export_formats.write_json_lines,
        }
        writers[style](snapshots, out)


def _selection(arguments: argparse.Namespace) -> ExportSelection:
    """Return what the command line asks for. Raises ConfigError."""
    from agent.commands.export.export_formats import ExportSelection
    from agent.config.quantities import duration, moment
    from agent.config.schema import ConfigError, parse_value

    step = parse_value("--step", duration, arguments.step)
    start = parse_value("--start", moment, arguments.start) if arguments.start is not None else float("-inf")
    end = parse_value("--end", moment, arguments.end) if arguments.end is not None else float("inf")
    if end < start:
        raise ConfigError("--end: is before --start")
    return ExportSelection(tuple(arguments.metrics), start, end, step)
