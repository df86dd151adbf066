"""Breaks the code in a copy of the checkout, one place at a time, and sees which tests notice.

`make mutate ARGS='--sample 150 --seed 7 --only agent/rack'`, or `python -m tests.mutation`. The first time, all tests
are run once to record which line each runs; later only those that have changed. The same seed draws the same mutants of
the same code. The status is 0 where the score is reached, 1 where it is not, 2 where nothing could be tried.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutation import mutants
from tests.mutation.checkout_copy import PLACE, CheckoutCopy, CopyError
from tests.mutation.mutants import Mutant, mutants_of, reviewed
from tests.mutation.recording import TestMap, record, test_files
from tests.mutation.trial import Court, Verdict

PACKAGES = ("agent", "alerts")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
SURVIVORS = PLACE / "survivors.json"
COUNTS = PLACE / "counts.json"


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=500, help="mutants to try (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the sample; default: another one each time")
    parser.add_argument("--only", nargs="+", default=list(PACKAGES), metavar="PATH", help="folders or files to break")
    parser.add_argument("--score", type=float, default=95.0, help="percent that must be killed (%(default)s)")
    parser.add_argument(
        "--budget", type=float, default=300.0, help="seconds of tests that are asked about one mutant (%(default)s)"
    )
    parser.add_argument("--survivors", action="store_true", help="try again those that survived the last time")
    parser.add_argument("--record", action="store_true", help="record anew what each test runs")
    parser.add_argument("--processes", type=int, default=2, help="while recording; one else (%(default)s)")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell without job control had us ignore the first
        signal.signal(number, signal.default_int_handler)
    copy = CheckoutCopy()
    try:
        copy.refresh()
        known = recorded(copy, options)
        drawn = draw(copy, options)
    except KeyboardInterrupt:
        return 130
    except (CopyError, OSError, ValueError) as error:
        print(f"tests.mutation: {error}", file=sys.stderr)
        return 2
    if not drawn:
        print("tests.mutation: there is nothing to break", file=sys.stderr)
        return 2
    print(f"seed {options.seed}: {len(drawn)} mutants of {' '.join(options.only)}", flush=True)
    return try_all(drawn, Court(copy, known, options.budget), options)


def recorded(copy: CheckoutCopy, options: argparse.Namespace) -> TestMap:
    """What each test runs, brought up to date."""
    known = TestMap(copy)
    missing = test_files(copy) if options.record else known.stale()
    if missing:
        print(f"recording what {len(missing)} files of tests run ...", flush=True)
        record(copy, missing, options.processes)
        known = TestMap(copy)
    return known


def draw(copy: CheckoutCopy, options: argparse.Namespace) -> list[Mutant]:
    """The sample, or the survivors of the last one, without those that are listed as equivalent."""
    again = {tuple(each) for each in json.loads(SURVIVORS.read_text())} if options.survivors else None
    names = [str(path.relative_to(copy.root)) for package in PACKAGES for path in (copy.root / package).rglob("*.py")]
    wanted = sorted(
        name for name in names if any(name == only or name.startswith(f"{only.rstrip('/')}/") for only in options.only)
    )
    if again is not None:
        found = [
            each for name in wanted if name in {path for path, *_ in again} for each in mutants_of(copy.root, name)
        ]
        return [each for each in found if (each.path, *each.diff()) in again]
    excused = set(reviewed(EQUIVALENT))
    places = [(name, number) for name, total in counted(copy, wanted).items() for number in range(total)]
    random.Random(options.seed).shuffle(places)
    drawn: list[Mutant] = []
    files: dict[str, list[Mutant]] = {}
    for name, number in places:
        if len(drawn) == options.sample:
            break
        if name not in files:
            files[name] = mutants_of(copy.root, name)
        if (name, files[name][number].diff()) not in excused:
            drawn.append(files[name][number])
    return drawn


def counted(copy: CheckoutCopy, names: Sequence[str]) -> dict[str, int]:
    """How many mutants each file has. Finding them takes a minute, so what was counted is kept."""
    known: dict[str, int] = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    counts = {}
    for name in names:
        content = (copy.root / name).read_bytes() + Path(mutants.__file__).read_bytes()
        total = hashlib.sha256(content).hexdigest()
        if total not in known:
            known[total] = len(mutants_of(copy.root, name))
        counts[name] = known[total]
    COUNTS.write_text(json.dumps(known))
    return counts


def try_all(drawn: Sequence[Mutant], court: Court, options: argparse.Namespace) -> int:
    tried: list[tuple[Mutant, Verdict]] = []
    began = time.monotonic()
    try:
        for number, mutant in enumerate(drawn, 1):
            verdict = court.judge(mutant)
            tried.append((mutant, verdict))
            took = time.monotonic() - began
            print(f"[{number}/{len(drawn)} {took:.0f} s] {verdict.outcome:8} {mutant.path}:{mutant.line}  {verdict.by}")
            if verdict.outcome == "survived":
                print("\n".join(f"    {row}" for row in mutant.diff()))
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted: what follows is of those that were tried")
    return report(tried, len(drawn), options)


def report(tried: Sequence[tuple[Mutant, Verdict]], drawn: int, options: argparse.Namespace) -> int:
    """Print the score and the survivors, and keep the latter for `--survivors`; the status."""
    counts = Counter(verdict.outcome for _, verdict in tried)
    survived = [(mutant, verdict) for mutant, verdict in tried if verdict.outcome == "survived"]
    SURVIVORS.write_text(json.dumps([(mutant.path, *mutant.diff()) for mutant, _ in survived]))
    for mutant, verdict in survived:
        print(f"\n{mutant.path}:{mutant.line}  ({verdict.by})", *mutant.diff(), sep="\n  ")
    if not tried:
        return 2
    score = 100 * (len(tried) - len(survived)) / len(tried)
    print(
        f"\nseed {options.seed}: {len(tried)} mutants of {drawn}, {counts['killed']} killed, "
        f"{counts['timeout']} timed out, {len(survived)} survived; score {score:.1f} %, wanted {options.score:g} %"
    )
    if len(tried) < drawn:
        return 130
    return 0 if score >= options.score else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
