"""The words for log lines, and their options on the command line, in a file that costs nothing to import."""

from __future__ import annotations

import argparse

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("logfmt", "json")


def add_log_options(parser: argparse.ArgumentParser, level: str = "info") -> None:
    """`--log.level`, with its default, and `--log.format`."""
    parser.add_argument(
        "--log.level",
        dest="log_level",
        choices=LEVELS,
        default=level,
        help="lowest level of log lines to print (default %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        choices=FORMATS,
        default="logfmt",
        help="format of log lines (default %(default)s)",
    )
