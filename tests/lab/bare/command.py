"""The command line: which places and users, one after the other, and the table at the end."""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from tests.lab.bare.machine import Roots
from tests.lab.bare.outcome import Outcome, table
from tests.lab.bare.place import Checkout, tried, why_no_root_can_be_entered
from tests.lab.bring.archive import Archive, ShortageError

ROOT = Path(__file__).resolve().parents[3]
SUITES = ("bookworm", "trixie", "sid")
USERS = ("root", "user")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/lab/bare", description="Run the project in bare Debian roots.")
    parser.add_argument("--suites", nargs="+", default=SUITES, metavar="SUITE")
    parser.add_argument("--as", dest="users", nargs="+", default=USERS, choices=USERS)
    parser.add_argument("--mirror", help="a Debian mirror; by default the one in this machine's apt sources")
    parser.add_argument("--tests", default="", help="arguments for pytest, such as '-k host'")
    return parser.parse_args(arguments)


def tell_skipped(why: str, tried: int = 0) -> None:
    """What was not tried may not be taken for a success."""
    told = f"test-bare: SKIPPED: {f'only {tried} of them were tried' if tried else 'NOTHING was tried'}: {why}"
    print(f"\n{'!' * 80}\n{told}\n{'!' * 80}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """0 where all that could be tried passed and nothing was left out that could be had."""
    chosen = options(arguments)
    if why := why_no_root_can_be_entered():
        tell_skipped(why)
        return 0  # nobody can help it here, unlike what is missing below
    folder = ROOT / ".programs" / "bare"
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    try:
        checkout = Checkout(ROOT)
        print(f"trying {checkout.title}", flush=True)
        roots = Roots(folder, Archive(folder.parent / "apt"), chosen.mirror)
        for suite, user in product(chosen.suites, chosen.users):
            print(f"\n== {suite} as {user}", flush=True)
            outcomes.append(tried(roots, suite, user, checkout, chosen.tests))
            print(outcomes[-1].words(), flush=True)
    except ShortageError as shortage:
        tell_skipped(str(shortage), len(outcomes))
        return 1
    finally:
        if outcomes:
            print(f"\n{table(outcomes)}", flush=True)
    return int(not all(each.good for each in outcomes))
