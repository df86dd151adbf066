"""`make drill`: the real daemon under one fault after the other.

Exit status 0 if every target was met, 1 if one was missed or a fault could not be tried.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence

from tests.lab.bench.report import CannotRunError, Progress, description, stop_on_signals
from tests.lab.bench.rig import QUICK, ROOT, Pace, Rig
from tests.lab.drill import reliability
from tests.lab.drill.measured_fault import MeasuredFault
from tests.lab.drill.sequence import in_turn


def main(arguments: Sequence[str]) -> int:
    """Try what was asked for, print the table, and write it into the document."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.drill", description="Try the daemon under every fault.")
    parser.add_argument("--only", action="append", metavar="WORDS", help="only faults with these words in their title")
    parser.add_argument("--short", action="store_true", help="faults last 2 s; writes no document")
    parser.add_argument("--seed", type=int, help="for the moments at which it is killed; otherwise a new one")
    parsed = parser.parse_args(arguments)
    stop_on_signals()
    seed = random.SystemRandom().randrange(10_000) if parsed.seed is None else parsed.seed
    progress, measured = Progress(), list[MeasuredFault]()
    progress.say(f"seed {seed}; load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    try:
        with Rig(QUICK if parsed.short else Pace(), progress) as rig:
            measured.extend(in_turn(rig, lambda title: _is_chosen(title, parsed.only), seed))
    except KeyboardInterrupt:
        progress.say("stopped; every program that was started has been ended")
        return 130
    except CannotRunError as error:
        progress.say(f"could not run: {error}")
        return 1
    print(reliability.plain(measured))
    missed = [found for found in measured if found.missed()]
    print(f"\n{len(measured) - len(missed)} of {len(measured)} met their targets, seed {seed}\n{description()}")
    if not (parsed.short or parsed.only):
        reliability.write(measured, f"Seed {seed}. {description()}")
        print(f"written to {reliability.DOCUMENT.relative_to(ROOT)}")
    return 1 if missed or not measured else 0


def _is_chosen(title: str, words: Sequence[str] | None) -> bool:
    return words is None or any(word in title for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
