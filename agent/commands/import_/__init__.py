"""`coldplate import`: what other programs logged, as a recording."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.lib.commandline import INVALID, Parser, warn
from agent.lib.wording import counted
from agent.wiring.http_access import add_http_config, given_login

if TYPE_CHECKING:
    from agent.commands.import_.imported_sample import ImportedSample, ImportProblems

HELP = "make a recording of a log of nvidia-smi, or of a Prometheus server's past"
DESCRIPTION = (
    "Make a recording of what other programs logged: nvidia-smi --query-gpu=timestamp,index,uuid,... --format=csv, or "
    "a Prometheus server. What coldplate has no metric for is named and left out."
)
EXAMPLES = (
    ("coldplate import gpu.csv -o gpu.coldplate", "a log of nvidia-smi as a recording"),
    ("coldplate import one.csv -o gpu.coldplate --gpu 3", "a log of GPU 3 that does not name it"),
    (
        "coldplate import --prometheus http://prometheus:9090 --start 1795248000 --end 1795255200 -o run.coldplate",
        "two hours of all nodes that the server scraped",
    ),
)
EXIT_STATUSES = {0: "imported", 1: "nothing could be read or written", **INVALID}
_fail = partial(warn, "import")


def add_arguments(parser: Parser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("log", nargs="?", type=Path, metavar="LOG", help="file of nvidia-smi --query-gpu")
    source.add_argument("--prometheus", metavar="URL", help="Prometheus server to ask")
    add_http_config(parser)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="recording to write, a new file"
    )
    parser.add_argument("--node", metavar="NAME", help="name of the node of a log (default this one)")
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="with a server: from when on, such as 2026-11-21T08:00:00Z, or seconds since 1970",
    )
    parser.add_argument("--end", metavar="TIME", help="with a server: until when")
    parser.add_argument("--interval", metavar="D", help="with a server: time between two values (default 15s)")
    parser.add_argument(
        "--match",
        metavar="SELECTOR",
        default='{__name__=~"coldplate_.*|DCGM_FI_.*"}',
        help="with a server: which series (default %(default)s)",
    )
    parser.add_argument("--gpu", metavar="INDEX", help="with nvidia-smi: the GPU that a log without its index is about")
    parser.add_argument("--utc", action="store_true", help="nvidia-smi logged in UTC (default the local time zone)")


def run(arguments: argparse.Namespace) -> int:
    """Write the recording. Raises ConfigError."""
    from agent.commands.import_.imported_sample import ImportProblems, LogFormatError
    from agent.recording.file_records import RecordingError

    problems = ImportProblems(arguments.prometheus or str(arguments.log))
    try:
        count = _write(arguments, problems)
    except (LogFormatError, RecordingError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{arguments.log}: {error.strerror}")
    finally:
        for problem in problems.all():
            _fail(problem)
    if not count:
        return _fail(f"{problems.file}: nothing of it could be imported; no recording was written")
    print(f"{arguments.output}: {counted(count, 'snapshot')}")
    return 0


def _write(arguments: argparse.Namespace, problems: ImportProblems) -> int:
    """Return how many snapshots were written."""
    from agent.commands.import_.imported_sample import SnapshotMaker
    from agent.lib.clock import clock
    from agent.lib.commandline import Progress
    from agent.recording.file_records import RecordingHeader
    from agent.recording.recording_file import RecordingFile

    ticks = _ticks(arguments, problems)
    first = list(islice(ticks, 3))
    if not first:
        return 0
    period = _period(arguments, first)
    makers: dict[str, SnapshotMaker] = {}
    file: RecordingFile | None = None
    node, count = "", 0
    try:
        with Progress("importing", 0, lambda: clock().mono) as progress:
            for tick in chain(first, ticks):
                snapshot = makers.setdefault(tick.node, SnapshotMaker(period)).make(tick)
                progress.step()
                if snapshot is None:
                    problems.add(None, "times that go back are left out")
                    continue
                at = snapshot.at
                header = RecordingHeader(__version__, tick.node, at.wall, at.mono, period, f"import of {problems.file}")
                if file is None:
                    file = RecordingFile(arguments.output, header)
                elif tick.node != node:
                    file.continue_as(header, None)
                node, count = tick.node, count + 1
                file.add(snapshot)
    finally:
        if file is not None:
            file.close()
    return count


def _period(arguments: argparse.Namespace, first: list[ImportedSample]) -> float:
    """Return seconds between two snapshots: those of the query, or those between the first lines of the log."""
    if arguments.prometheus:
        return _interval(arguments)
    if len(first) < 2:
        return 1.0
    steps = [after.wall - before.wall for before, after in pairwise(first)]
    return max(round(min(steps), 1), 0.1)


def _ticks(arguments: argparse.Namespace, problems: ImportProblems) -> Iterator[ImportedSample]:
    """Yield what is imported. Raises ConfigError, LogFormatError and OSError."""
    import socket
    from datetime import timezone

    from agent.commands.import_ import nvidia_smi_log
    from agent.config.schema import ConfigError

    if arguments.prometheus:
        yield from _history_samples(arguments, problems)
        return
    if arguments.gpu is not None and not nvidia_smi_log.is_index(arguments.gpu):
        raise ConfigError("--gpu: must be the GPU's number on its node, such as 0")
    node = arguments.node or socket.gethostname()
    with arguments.log.open(encoding="utf-8", errors="replace", newline="") as lines:
        zone = timezone.utc if arguments.utc else None
        ticks = nvidia_smi_log.ticks(lines, zone, problems, arguments.gpu)
        yield from (tick._replace(node=node) for tick in ticks)


def _history_samples(arguments: argparse.Namespace, problems: ImportProblems) -> Iterator[ImportedSample]:
    from agent.commands.import_.prometheus_history import HistoryQuery, node_ticks
    from agent.config.quantities import moment
    from agent.config.schema import ConfigError, parse_value
    from agent.lib.clock import clock
    from agent.lib.http_target import HttpTarget

    if not (arguments.start and arguments.end):
        raise ConfigError("--prometheus: say with --start and --end which time to ask the server for")
    login = given_login(arguments) or {}
    target = parse_value("--prometheus", HttpTarget, arguments.prometheus, timeout=60.0, **login)
    start, end = (parse_value(f"--{name}", moment, getattr(arguments, name)) for name in ("start", "end"))
    if end < start:
        raise ConfigError("--end: is before --start")
    query = HistoryQuery(arguments.match, start, end, _interval(arguments))
    yield from node_ticks(target, query, lambda: clock().mono, problems)


def _interval(arguments: argparse.Namespace) -> float:
    from agent.config.quantities import duration
    from agent.config.schema import ConfigError, parse_value

    if arguments.interval is None:
        return 15.0
    seconds = parse_value("--interval", duration, arguments.interval)
    if seconds <= 0:
        raise ConfigError("--interval: must be more than 0s")
    return seconds
