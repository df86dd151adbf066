"""`coldplate run`: the daemon, and how the C library keeps the memory of a process that runs for months."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.wording import counted
from agent.wiring.command_line import add_listening, add_sources, read_config, read_options

if TYPE_CHECKING:
    from agent.config.schema import Config
    from agent.wiring.command_line import CommandLineOptions

HELP = "sample the node and serve its metrics until stopped"
DESCRIPTION = "Sample the node and serve its metrics until stopped. SIGHUP reloads the configuration, SIGTERM stops it."
EXAMPLES = (
    ("coldplate run", "real GPUs if a driver is installed, on port 19400"),
    ("coldplate run --scenario straggler", "synthetic devices, one of which is slow: for drills and for trying rules"),
    ("coldplate run --config.file site.yaml --web.listen-address 127.0.0.1:19400", "another file, this node only"),
    ("coldplate run --config.check --config.file site.yaml", "whether an agent would start with this file"),
)
EXIT_STATUSES = {
    0: "stopped by SIGTERM or SIGINT; with --config.check, the configuration can be used",
    1: "a part of the agent failed permanently",
    2: "the command line or the configuration is invalid, an address cannot be listened on, or another agent "
    "uses the state directory; one line says why",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sources(parser, "info")
    parser.add_argument(
        "--config.check",
        dest="config_check",
        action="store_true",
        help="start nothing: check the configuration, its rules and the files that a start reads; say what is wrong",
    )
    add_listening(parser, ":19400", ": web.config_file")
    parser.add_argument(
        "--web.telemetry-path", dest="telemetry_path", metavar="PATH", help="path of the metrics (default /metrics)"
    )
    parser.add_argument(
        "--web.enable-lifecycle", dest="lifecycle", action="store_true", default=None, help="allow POST /-/reload"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Raises UserError."""
    from agent.daemon.reloading import Notifier
    from agent.lib import logs
    from agent.wiring.assembly import make_service

    first = [read_config(arguments)]
    options = read_options(arguments)
    if arguments.config_check:
        return _check(first[0], options)
    settle_heap()
    logs.set_up(options.log_level, options.log_format, sys.stderr)
    notifier = Notifier(os.environ)
    return make_service(options, lambda: first.pop() if first else read_config(arguments, again=True), notifier).run()


def _check(config: Config, options: CommandLineOptions) -> int:
    """Return what a start would refuse. Raises UserError."""
    from agent.wiring.assembly import dry_start

    rules = dry_start(config, options.folder)
    _check_state_directory(config)
    print(f"the configuration can be used; it has {counted(rules, 'rule')}")
    return 0


def _check_state_directory(config: Config) -> None:
    """Raise ConfigError if this user could not write the state directory of the configuration."""
    from agent.config.reading import placed

    if config.state_dir is None:
        return
    folder = Path(config.state_dir).absolute()
    existing = next((parent for parent in (folder, *folder.parents) if os.path.isdir(parent)), folder)  # noqa: PTH112
    if not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{folder} cannot be written by user {os.geteuid()}; name a directory of the agent's user"
        raise placed(config, f"state_dir: {problem}")


MMAP_THRESHOLD, TRIM_THRESHOLD, ARENA_MAX = -3, -1, -8
"""Numbers of mallopt(3), as glibc's malloc.h has them."""
LARGE = 128 * 1024


def settle_heap() -> None:
    """Give large buffers back when they are freed, and keep one heap for all threads; call it before there are any.

    glibc raises the size from which a buffer is mapped by itself with each such buffer that is freed, up to 32 MiB.
    From then on what is written every few seconds lies on the heap, between things that stay, which leaves holes. And
    it gives threads heaps of their own, although Python runs one at a time. Does nothing with another C library.
    """
    try:
        from ctypes import CDLL

        mallopt = CDLL(None).mallopt
    except (ImportError, OSError, AttributeError, MemoryError):
        return
    for option, value in ((ARENA_MAX, 1), (MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE)):
        mallopt(option, value)
