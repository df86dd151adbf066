"""The directory that several kinds of files are written into."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from agent.lib.wording import UserError


def add_directory(parser: argparse.ArgumentParser) -> None:
    """The option that names it, which must be given."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="directory for the files; it is created if missing"
    )


def refuse_no_directory(out: Path) -> None:
    """Raises UserError for a path where something else is."""
    if os.path.exists(out) and not os.path.isdir(out):  # noqa: PTH110, PTH112 - unlike Path's, these never raise
        raise UserError(f"--output: {out} is not a directory; name one (it is created if missing)")
