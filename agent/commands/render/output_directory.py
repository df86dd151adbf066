"""The directory that `coldplate render` writes into. Foreign files in it are never overwritten."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agent.lib.wording import UserError


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add the option that names it, which must be given."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="directory for the files; it is created if missing"
    )


def write_files(
    out: Path, files: Mapping[str, str], is_ours: Callable[[Path], bool], remark: Callable[[str], str] = lambda _: ""
) -> None:
    """Write texts by their names in `out`, and print each path, followed by the remark about the name.

    Raises UserError, before anything is written, if there is a file of one of the names, and not `is_ours`.
    """
    from agent.lib.state_files import replace_file

    try:
        refuse_foreign(out, files, is_ours)
        for name, text in files.items():
            replace_file(out / name, text.encode())
            print(f"{out / name}{remark(name)}")
    except OSError as error:
        raise UserError(f"--output: {error.filename or out}: {error.strerror}") from error


def refuse_foreign(out: Path, names: Iterable[str], is_ours: Callable[[Path], bool]) -> None:
    """Raise UserError if `out` is not a directory, or has a file of one of the names that is not ours."""
    if os.path.exists(out) and not os.path.isdir(out):  # noqa: PTH110, PTH112 - unlike Path's, these never raise
        raise UserError(f"--output: {out} is not a directory; name one (it is created if missing)")
    for name in names:
        path = out / name
        if os.path.lexists(path) and not (path.is_file() and is_ours(path)):
            raise UserError(
                f"--output: {path} was not written by this command, or was edited; move it, or name another directory"
            )


def report_leftovers(out: Path, names: Iterable[str], is_ours: Callable[[Path], bool]) -> None:
    """Print on standard error which files an earlier run wrote and this one did not."""
    written = set(names)
    for path in sorted(out.iterdir()):
        if path.name not in written and path.is_file() and is_ours(path):
            print(f"{path}: left over from an earlier run; remove it, or a server loads it as well", file=sys.stderr)


def begins_with(mark: str) -> Callable[[Path], bool]:
    """Return a test for files whose first line holds `mark`."""

    def is_ours(path: Path) -> bool:
        with path.open(encoding="utf-8", errors="replace") as file:
            return mark in file.readline(len(mark) + 80)

    return is_ours
