"""The command line of what make needs first; every mistake and shortage ends in one line, without a traceback."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.bring.archive import Archive, ShortageError
from tests.lab.bring.deployers import Deployers
from tests.lab.bring.environment import Environment
from tests.lab.bring.programs import PACKAGERS, NewestPrometheus, Programs
from tests.lab.bring.wheels import Wheelhouse

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Others that set up the same checkout wait. The folder itself is locked: nothing is left behind."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another make that sets up this checkout ...", flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _strict() -> bool:
    return os.environ.get("CI") == "true"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """0 where all is there; 1 with one line that says what is missing and how to get it."""
    archive = Archive(root / ".programs" / "apt")
    try:
        with alone(root):
            match arguments:
                case ["environment", extra, *named]:
                    Environment(root, archive).provide(extra, named=bool(named))
                    return 0
                case ["wheels", machine]:
                    environment = Environment(root, archive)
                    environment.provide("run", named=False)
                    Wheelhouse(root, root / ".programs" / "wheels", environment).provide(machine)
                    return 0
                case ["newest"]:
                    return NewestPrometheus(root / ".programs" / "newest").provide()
                case ["recent"]:
                    return NewestPrometheus(root / ".programs" / "newest").provide_programs(strict=_strict())
                case ["engines", *needed]:
                    return NewestPrometheus(root / ".programs" / "newest").provide_engines(
                        strict=bool(needed) or _strict()
                    )
                case ["deployers"]:
                    folder = root / ".programs"
                    return Deployers(root, folder, root / ".venv" / "bin" / "python").provide(strict=_strict())
                case ["rpm"]:
                    return Programs(root / ".programs", archive, PACKAGERS).provide(strict=True)
                case ["programs"]:
                    return Programs(root / ".programs", archive).provide(strict=_strict())
        print(
            "usage: tests/lab/bring environment run|dev|bench [named] | wheels MACHINE | programs | rpm | recent"
            " | newest | engines [needed] | deployers",
            file=sys.stderr,
        )
        return 2
    except ShortageError as shortage:
        print(f"coldplate: {shortage}", file=sys.stderr)
        return 1
    except OSError as error:  # a file system that is full, read-only or not ours
        print(
            f"coldplate: cannot set up {root}: {error}; it needs to be writable and to have 1 GB free", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 130
