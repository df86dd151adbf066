"""`make drill`: the real daemon under one fault after the other.

Exit status 0 if every target was met, 1 if one was missed or a fault could not be tried.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.lab.bench.report import Progress, description, guarded
from tests.lab.bench.rig import QUICK, ROOT, Pace, Rig
from tests.lab.drill import reliability
from tests.lab.drill.sequence import in_turn


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.drill", description="Try the daemon under every fault.")
    parser.add_argument("--only", action="append", metavar="WORDS", help="only faults with these words in their title")
    parser.add_argument("--short", action="store_true", help="faults last 2 s; writes no document")
    parsed = parser.parse_args(arguments)
    progress = Progress()
    progress.say(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    with Rig.temporary(QUICK if parsed.short else Pace(), progress) as rig:
        chosen = parsed.only or [""]
        measured = [*in_turn(rig, lambda title: any(words in title for words in chosen))]
    print(reliability.plain(measured))
    missed = [found for found in measured if found.missed()]
    print(f"\n{len(measured) - len(missed)} of {len(measured)} met their targets\n{description()}")
    if not (parsed.short or parsed.only):
        reliability.write(measured, description())
        print(f"written to {reliability.DOCUMENT.relative_to(ROOT)}")
    return 1 if missed or not measured else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
