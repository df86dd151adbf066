"""The command line: which places and users, one after the other, and the table at the end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.lab.bare.machine import Machine, Roots
from tests.lab.bare.outcome import Outcome, table
from tests.lab.bare.place import BareRoot, Checkout, Here, installed, why_no_root_can_be_entered
from tests.lab.bring.archive import Archive, ShortageError
from tests.lab.bring.wheels import PYTHONS

ROOT = Path(__file__).resolve().parents[3]
SUITES = ("bookworm", "trixie", "sid")
USERS = ("root", "user")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/lab/bare", description="Run the project on unprepared machines.")
    what = parser.add_subparsers(dest="what", required=True)
    roots = what.add_parser("roots", help="in bare Debian roots")
    roots.add_argument("--suites", nargs="+", default=SUITES, metavar="SUITE")
    roots.add_argument("--as", dest="users", nargs="+", default=USERS, choices=USERS)
    roots.add_argument("--mirror", help="a Debian mirror; by default the one in this machine's apt sources")
    pythons = what.add_parser("pythons", help="here, with every Python from 3.10 to 3.14 that is found")
    pythons.add_argument("--pythons", nargs="+", metavar="PATH", help="these, in place of those that are found")
    for each in (roots, pythons):
        each.add_argument("--tests", default="", help="arguments for pytest, such as '-k host'")
    return parser.parse_args(arguments)


def tell_skipped(why: str, tried: int = 0) -> None:
    """What was not tried may not be taken for a success."""
    shout(f"test-bare: SKIPPED: {f'only {tried} of them were tried' if tried else 'NOTHING was tried'}: {why}")


def shout(told: str) -> None:
    print(f"\n{'!' * 80}\n{told}\n{'!' * 80}", file=sys.stderr, flush=True)


def tell_missing(found: Collection[str]) -> None:
    """Say which supported Pythons are not among those that were found."""
    missing = [each for each in PYTHONS if each not in found]
    if missing:
        shout(f"test-all: SKIPPED: NOTHING was tried with Python {', '.join(missing)}: not on the PATH, nor with pyenv")


def places(chosen: argparse.Namespace, folder: Path) -> Sequence[BareRoot | Here]:
    machine = Machine.found()
    if chosen.what == "pythons":
        return [Here(Path(each), folder) for each in chosen.pythons or installed().values()]
    roots = Roots(folder, Archive(folder.parent / "apt"), chosen.mirror)
    return [BareRoot(roots, suite, user, folder, machine) for suite in chosen.suites for user in chosen.users]


def main(arguments: Sequence[str]) -> int:
    """0 where all that could be tried passed and nothing was left out that could be had."""
    chosen = options(arguments)
    if chosen.what == "roots" and (why := why_no_root_can_be_entered()):
        tell_skipped(why)
        return 0  # nobody can help it here, unlike what is missing below
    folder = ROOT / ".programs" / "bare"
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    try:
        checkout = Checkout(ROOT)
        print(f"trying {checkout.title}", flush=True)
        for place in places(chosen, folder):
            print(f"\n== {place.title}", flush=True)
            outcomes.append(place.run(checkout, chosen.tests))
            print(outcomes[-1].words(), flush=True)
    except ShortageError as shortage:
        tell_skipped(str(shortage), len(outcomes))
        return 1
    finally:
        if outcomes:
            print(f"\n{table(outcomes)}", flush=True)
        if chosen.what == "pythons" and not chosen.pythons:
            tell_missing(installed())
    return int(not all(each.good for each in outcomes))
