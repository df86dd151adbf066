"""`coldplate render rules`: the rules that the agent evaluates, as files for a Prometheus server."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.schema import ConfigError
from agent.lib.durable import replace_file

if TYPE_CHECKING:
    from alerts.rulefile import RuleFile

MARK = "# Written by coldplate render rules; change the configuration instead."
"""The first line of every file that `render` writes; only files that start with it are overwritten."""


def render(files: Sequence[RuleFile], out: Path) -> int:
    """Writes rule files into a directory, one for each source, and prints their names. The exit status.

    Raises ConfigError, before anything is written, if a file of that name was not written by this command.
    """
    from alerts.rulewriter import write

    targets = dict(zip(_names(files), files, strict=True))
    try:
        _refuse_foreign(out, targets)
        for name, file in targets.items():
            text = f"{MARK}\n# From {file.path}\n{write(file)}"
            replace_file(out / name, text.encode())
            print(f"{out / name}: {file.rule_count} rules from {file.path}")
        left = [path for path in sorted(out.iterdir()) if path.name not in targets and _is_ours(path)]
    except OSError as error:
        raise ConfigError(f"--out: {error.filename or out}: {error.strerror}") from error
    for path in left:
        print(f"{path}: left over from an earlier run; remove it, or a server loads it as well", file=sys.stderr)
    return 0


def _names(files: Sequence[RuleFile]) -> list[str]:
    """A name for each file: its own, with a number if that name is taken."""
    names: list[str] = []
    for file in files:
        path = Path(file.path)
        name, number = path.name, 1
        while name in names:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names.append(name)
    return names


def _refuse_foreign(out: Path, names: Iterable[str]) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {out} is not a directory; name one (it is created if missing)")
    for name in names:
        path = out / name
        if path.exists() and not _is_ours(path):
            raise ConfigError(f"--out: {path} was not written by this command; move it, or name another directory")


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(len(MARK) + 2).rstrip("\r\n") == MARK
