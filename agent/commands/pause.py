"""`coldplate pause`: has the running agent release the driver for a while."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.commandline import warn
from agent.lib.wording import UserError
from agent.wiring.command_line import add_config_file, read_file

if TYPE_CHECKING:
    from agent.daemon import pausing

HELP = "have the running agent release the driver for a while"
DESCRIPTION = (
    "Have the agent that runs on this node release the GPU driver, so that it can be unloaded or a GPU be reset, and "
    "wait until it has. Everything else is still served, and no alert fires because of it."
)
EXAMPLES = (
    ("coldplate pause --for 10m && nvidia-smi --gpu-reset -i 3", "reset a GPU that the agent would keep in use"),
    ("coldplate pause --end", "reopen the driver at once"),
)
EXIT_STATUSES = {
    0: "the driver is released, or with --end reopened",
    1: "it is not; one line says why",
    2: "the command line or the configuration is invalid, or there is no way to ask the agent; one line says why",
}
ACTS = True

_fail = partial(warn, "pause")

ANSWER_SECONDS = 5.0
"""Seconds in which a running agent sees the request."""
RELEASE_SECONDS = 15.0
"""Seconds in which it ends its worker, or finds that it cannot: 5 s until SIGTERM becomes SIGKILL, and some more."""
POLL_SECONDS = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--for",
        dest="length",
        default="10m",
        metavar="D",
        help="reopen the driver after this time, such as 90s or 2h, from 10s to 1d (default %(default)s)",
    )
    action.add_argument("--end", action="store_true", help="reopen the driver now")


def run(arguments: argparse.Namespace) -> int:
    """Ask, and wait for the answer. Raises UserError."""
    from agent.config.quantities import duration_between
    from agent.config.schema import parse_value
    from agent.daemon import pausing
    from agent.wiring.identity import state_file

    seconds = parse_value("--for", duration_between, arguments.length, "10s", "1d")
    path = state_file(read_file(arguments), pausing.REQUEST)
    if path is None:
        raise UserError(
            "no state directory to ask the agent through: run this as root or as the agent's user, "
            "and with its --config.file if that sets state_dir"
        )
    try:
        return _end(path.parent) if arguments.end else _pause(path.parent, seconds)
    except pausing.PauseError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(
            f"{error.filename or path}: {error.strerror}; run this as root or as the agent's user"
        ) from error


def _pause(folder: Path, seconds: float) -> int:
    from agent.daemon import pausing
    from agent.lib.clock import clock
    from agent.lib.wording import utc

    until = float(round(clock().wall + seconds))
    pausing.write_request(folder, pausing.PauseRequest(until, pausing.boot_of(Path("/proc"))))

    def answer() -> pausing.PauseAnswer | None:
        latest = pausing.read_answer(folder)
        return latest if latest is not None and latest.until == until else None

    if sys.stderr.isatty():
        print("waiting for the agent to release the driver ...", file=sys.stderr)
    if not _until(lambda: answer() is not None, ANSWER_SECONDS):
        pausing.withdraw_request(folder)
        return _fail(f"no agent with the state directory {folder} answers: nothing was released")

    def has_released() -> bool:
        last_answer = answer()
        return last_answer is not None and last_answer.pid is None

    if not _until(has_released, RELEASE_SECONDS):
        last_answer = answer()
        pid = "its worker" if last_answer is None else f"its worker (process {last_answer.pid})"
        return _fail(
            f"the agent cannot release the driver: {pid} does not end, probably because it sleeps in the driver; "
            f"the request stands until {utc(until)}, coldplate pause --end withdraws it"
        )
    print(f"the driver is released until {utc(until)}; coldplate pause --end reopens it")
    return 0


def _end(folder: Path) -> int:
    from agent.daemon import pausing

    if pausing.read_request(folder) is None:
        print("there is no pause to end")
        return 0
    pausing.withdraw_request(folder)
    if not _until(lambda: pausing.read_answer(folder) is None, ANSWER_SECONDS):
        return _fail(f"no agent with the state directory {folder} answers: it opens the driver when it starts")
    print("the agent reopens the driver")
    return 0


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds; whether it does."""
    from agent.lib.clock import clock

    end = clock().mono + seconds
    while not holds():
        if clock().mono >= end:
            return False
        time.sleep(POLL_SECONDS)
    return True
