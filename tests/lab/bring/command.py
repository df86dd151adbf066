"""The command line of what make needs first; every mistake and shortage ends in one line, without a traceback."""

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.bring.archive import Archive, ShortageError, newest_sources
from tests.lab.bring.deployers import provide_deployers
from tests.lab.bring.environment import Environment
from tests.lab.bring.programs import ENGINES, PACKAGERS, RECENT_ONES, Programs, provide_scripts
from tests.lab.bring.wheels import Wheelhouse

ROOT = Path(__file__).resolve().parents[3]
USAGE = (
    "environment run|dev|bench [named] | wheels MACHINE | programs | rpm | recent | newest"
    " | engines [needed] | deployers"
)


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


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """0 where all is there; 1 with one line that says what is missing and how to get it."""
    programs = root / ".programs"
    archive, newest = Archive(programs / "apt"), Archive(programs / "newest" / "apt", newest_sources)
    environment = Environment(root, archive)
    strict = os.environ.get("CI") == "true"
    try:
        with alone(root):
            match arguments:
                case ["environment", extra, *named]:
                    environment.provide(extra, named=bool(named))
                    return 0
                case ["wheels", machine]:
                    environment.provide("run", named=False)
                    Wheelhouse(root, programs / "wheels", environment).provide(machine)
                    return 0
                case ["deployers"]:
                    return provide_deployers(root, environment, strict=strict)
                case ["programs"]:
                    return Programs(programs, archive).provide(strict=strict)
                case ["rpm"]:
                    return Programs(programs, archive, PACKAGERS).provide(strict=True)
                case ["recent"]:
                    return Programs(programs / "newest", newest, RECENT_ONES).provide(strict=strict)
                case ["engines", *needed]:
                    return Programs(programs / "newest", newest, ENGINES).provide(strict=bool(needed) or strict)
                case ["newest"]:
                    provide_scripts(programs / "newest" / "scripts", newest)
                    return Programs(programs / "newest", newest, RECENT_ONES).provide(strict=True)
        print(f"usage: tests/lab/bring {USAGE}", file=sys.stderr)
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
