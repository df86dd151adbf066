"""`coldplate record`: records the node while a command runs, or until it is stopped."""

import argparse
import os
from pathlib import Path

from agent.lib.commandline import warn
from agent.lib.wording import UserError
from agent.wiring.command_line import add_sources

HELP = "record the node while a command runs, or until stopped, into a file"
MAKER = "coldplate record"
"""The maker that its recordings name."""
LEFT_OUT = "alerts, and the power of the rack's other nodes"
DESCRIPTION = (
    "Record all that the agent can see of this node into one file, while COMMAND runs, or without one until Ctrl-C or "
    "for --duration. Needs no privilege, no daemon and no configuration; a file is read if --config.file names it. "
    f"Left out is what needs a running agent: {LEFT_OUT}."
)
EXAMPLES = (
    ("coldplate record -o run.coldplate -- python train.py", "record the node while a program runs"),
    ("coldplate record --duration 10m", "record ten minutes of the node"),
    ("coldplate record --info run.coldplate", "print a summary of a recording"),
    ("coldplate record --copy a.coldplate b.coldplate -o both.coldplate", "make one of two, without names"),
)
EXIT_STATUSES = {
    0: "recorded, or what COMMAND ended with",
    1: "without COMMAND: nothing was recorded, or the recording failed; with --info or --copy: a file is no recording",
    2: "the command line or, without COMMAND, the configuration is invalid; one line says why",
    125: "the recording cannot begin, or the configuration is invalid, and COMMAND was not started",
    126: "COMMAND cannot be run",
    127: "COMMAND was not found; with COMMAND every other status is its own, 128 + N if signal N ended it",
}

SWITCH, DELAY, DURATION, KEY = (f"COLDPLATE_RECORD{suffix}" for suffix in ("", "_DELAY", "_DURATION", "_KEY"))
"""Environment variables: whether to record and where to, after how long, for how long, and the key of pseudonyms."""
YES, NO = frozenset({"1", "yes", "true", "on"}), frozenset({"", "0", "no", "false", "off"})
OWN_FAILURE = 125
"""Exit status beside a command where the failure is ours, as timeout(1) has it."""
RANKS = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID",
         "LOCAL_RANK")  # fmt: skip
"""Variables in which launchers number the tasks of a job on one node, from 0."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delay", metavar="TIME", help="begin after this long, such as 5m")
    parser.add_argument("--duration", metavar="TIME", help="record for this long; the command runs on")
    parser.add_argument(
        "--interval", metavar="TIME", default="1s", help="time between two samples (default %(default)s)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write, or a folder (default ./coldplate-NODE-TIME.coldplate)",
    )
    parser.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="replace UUIDs, serials, host, user and job names by pseudonyms (default: yes)",
    )
    parser.add_argument(
        "--if-env",
        action="store_true",
        help=f"record only if {SWITCH} is set, and in one task of each node; otherwise become the command",
    )
    parser.add_argument(
        "--allow-no-gpu",
        action="store_true",
        help="record a node without GPUs as well (default: no file, COMMAND runs)",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--info", nargs="+", type=Path, metavar="FILE", help="print what is in recordings, and exit")
    group.add_argument(
        "--copy", nargs="+", type=Path, metavar="FILE", help="write recordings into one, redacted unless --no-redact"
    )
    add_sources(parser, "error", "none")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="what to run")


def run(arguments: argparse.Namespace) -> int:
    """Record, or what else was asked for. Raises UserError."""
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if arguments.info:
        from agent.commands.record.recording_info import print_info

        return print_info(arguments.info)
    if arguments.copy:
        from agent.commands.record.recording_info import copy_recordings

        return copy_recordings(arguments.copy, arguments.output, _key() if arguments.redact else None)
    from agent.commands.record.recorded_command import exec_command

    if arguments.if_env and not _is_asked():
        return exec_command(words)
    from agent.commands.record.session import record

    key = _key() if arguments.redact else None
    try:
        return record(arguments, words, os.environ.get(SWITCH, ""), key)
    except UserError as error:
        if arguments.if_env:
            complain(f"not recording: {error}")  # a launcher of jobs must not break them
            return exec_command(words)
        if not words:
            raise
        complain(str(error))
        return OWN_FAILURE  # every other status is the command's


def _is_asked() -> bool:
    """Return whether the environment asks for a recording, and this is the first task of the node."""
    is_requested = os.environ.get(SWITCH, "").strip().lower() not in NO
    return is_requested and all(os.environ.get(rank, "0") == "0" for rank in RANKS)


def _key() -> bytes:
    """Return the key of pseudonyms: the same on a job's nodes if its launch sets one, else for this recording."""
    return os.environb.get(KEY.encode()) or os.urandom(32)


def complain(text: str) -> None:
    """Print a line on standard error, which may be closed."""
    warn("record", text)
