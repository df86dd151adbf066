"""Finds the rule files that a configuration names: the pack that is shipped, files, and patterns of files.

A name that leads to no file is an error, never a warning: alerts that nobody loaded look like a healthy node.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from alerts import rulefile
from alerts.rulefile import RuleFile, RuleFileError
from alerts.yamlnodes import Problem

BUILTIN = "builtin"

_SHIPPED = Path(__file__).resolve().parent / "rules"


def builtin_files() -> list[Path]:
    """The rule files of the pack that is shipped."""
    return sorted(_SHIPPED.glob("*.yml"))


def find(entry: str, base: Path | None) -> list[Path]:
    """The files that an entry names: `builtin`, a file, or a pattern; relative to `base` if there is one.

    Raises ValueError where there is none.
    """
    if entry == BUILTIN:
        return builtin_files()
    path = Path(entry) if base is None else base / entry
    if path.is_file():
        return [path]
    if path.is_dir():
        raise ValueError(f"{entry!r} is a directory; name its files, such as {str(Path(entry) / '*.yml')!r}")
    pattern = entry if base is None or Path(entry).is_absolute() else f"{glob.escape(str(base))}/{entry}"
    names = sorted(glob.glob(pattern))  # noqa: PTH207 the pattern may be absolute, and Path.glob refuses that
    found = [each for each in map(Path, names) if each.is_file()]
    if not found:
        remedy = f"name a rule file, a pattern such as 'rules/*.yml', or {BUILTIN!r}"
        raise ValueError(f"{entry!r} matches no file ({path}); {remedy}")
    return found


def load_all(entries: Iterable[str], base: Path | None, default_step: float) -> tuple[RuleFile, ...]:
    """The rules of all files that the entries name, each file once, in the order of the entries.

    Raises ValueError for an entry that names no file, and RuleFileError with all that is wrong with all files.
    """
    paths: dict[Path, Path] = {}
    for entry in entries:
        for path in find(entry, base):
            paths.setdefault(path.resolve(), path)
    loaded: list[RuleFile] = []
    problems: list[Problem] = []
    for path in paths.values():
        try:
            loaded.append(rulefile.load(path, default_step=default_step))
        except RuleFileError as error:
            problems.extend(error.problems)
    if problems:
        raise RuleFileError(problems)
    return tuple(loaded)
