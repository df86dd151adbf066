"""`coldplate once`: one sample of every lane, to standard output or to a file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.commandline import INVALID
from agent.lib.wording import UserError
from agent.wiring.command_line import CommandLineOptions, add_sources, read_config, read_options

if TYPE_CHECKING:
    from agent.config.schema import Config
    from agent.model import Snapshot

HELP = "take one sample and print it"
DESCRIPTION = (
    "Take one sample of every lane and print it. Takes slightly longer than one fast interval, "
    "and up to 30 s while a management controller does not answer."
)
EXAMPLES = (
    ("coldplate once", "everything that the daemon would serve, in Prometheus's text format"),
    ("coldplate once --format json", "the same with what is missing and why"),
    ("coldplate once --textfile /var/lib/node_exporter/coldplate.prom", "for node_exporter's textfile collector"),
)
EXIT_STATUSES = {0: "a sample was taken", 1: "--backend names a family of devices, and none was found", **INVALID}

UP = "coldplate_gpu_up"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sources(parser, "warn")
    parser.add_argument(
        "--format", choices=("text", "openmetrics", "json"), default="text", help="what to print (default %(default)s)"
    )
    parser.add_argument(
        "--textfile",
        type=Path,
        metavar="FILE",
        help="write the sample to FILE for node_exporter's textfile collector, atomically",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one sample. Raises UserError."""
    from agent.lib import logs

    if arguments.textfile is not None and arguments.textfile.suffix != ".prom":
        raise UserError(f"--textfile: {arguments.textfile}: node_exporter reads only files whose name ends with .prom")
    if arguments.textfile is not None and arguments.format != "text":
        raise UserError(f"--format: {arguments.format} is not what --textfile writes; leave one of them out")
    config = read_config(arguments)
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
    return sample_once(config, read_options(arguments), arguments.format, arguments.textfile)


def sample_once(config: Config, options: CommandLineOptions, style: str, textfile: Path | None) -> int:
    """Take the sample and print it as `style`: text, openmetrics or json. The exit status. Raises UserError."""
    from agent.daemon.hub import Hub
    from agent.wiring.identity import node_name
    from agent.wiring.peering import providers_of_one_run
    from agent.wiring.replaying import clock_of
    from agent.wiring.sources import make_sampling_loop
    from agent.wiring.start_checks import check
    from agent.wiring.web_serving import neighbours_of, with_neighbours
    from exporters.pages import age_of

    selection = check(config)
    clock = clock_of(config)
    providers = providers_of_one_run(config, options.folder, clock().wall)
    sampling = make_sampling_loop(config, options, Hub(), providers, now=clock, is_my_turn=lambda _: True)
    try:
        whole = sampling.once()
    finally:
        sampling.stop()
        sampling.close(time.sleep)
    status = _devices(config, whole)
    snapshot = selection.apply(whole)
    neighbours = neighbours_of(config) if style != "json" else None
    if neighbours is not None:
        snapshot = with_neighbours(snapshot, whole, neighbours)
    if textfile is not None:
        _write_textfile(snapshot, textfile)
        return status
    sys.stdout.write(_page(snapshot, style, age_of(snapshot, clock().mono), node_name(config)).decode())
    return status


def _page(snapshot: Snapshot, style: str, age: float, node: str) -> bytes:
    from exporters.encoder import Encoder, Format
    from exporters.snapshot_json import success

    if style == "json":
        return success(snapshot, age, node, {})
    return Encoder().render(snapshot, Format.OPENMETRICS if style == "openmetrics" else Format.TEXT, age)


def _devices(config: Config, snapshot: Snapshot) -> int:
    """Log why no GPU was found, if one was expected. The exit status: 1 if a family of devices was named."""
    import logging

    from agent.wiring.sources import family_of

    devices = config.backends.devices
    if devices in ("synthetic", "replay", "none") or any(reading.metric.name == UP for reading in snapshot):
        return 0
    details = [report.detail for report in snapshot.reports if report.backend == family_of(config) and report.detail]
    log = logging.getLogger("coldplate.once")
    log.warning("no GPU in this sample: %s", details[0] if details else "the driver reports none")
    return 0 if devices == "auto" else 1


def _write_textfile(snapshot: Snapshot, path: Path) -> None:
    from exporters.collector import write_textfile

    try:
        write_textfile(snapshot, path)
    except OSError as error:
        raise UserError(f"--textfile: {path}: {error.strerror}") from error
