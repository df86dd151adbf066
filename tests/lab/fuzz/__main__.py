"""Fuzzes the parsers of what others wrote: `make fuzz ARGS='--target promql --seconds 60 --seed 7'`.

Each target runs in a process of its own, which may not take more than some memory and is ended where an input keeps it
for long, so that a crash of a C library, a hang in it and a flood of memory are found like any exception. The status is
1 where something crashed; the input is then in tests/lab/fuzz/corpus/TARGET, to be committed with what mends it.
"""

import argparse
import random
import sys
from collections.abc import Sequence

from tests.lab.fuzz.search import search
from tests.lab.fuzz.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fuzz", description=__doc__)
    parser.add_argument("--target", nargs="+", default=list(TARGETS), choices=list(TARGETS), metavar="NAME",
                        help=f"default: all of {', '.join(TARGETS)}")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: another one each time")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")
    print(f"seed {options.seed}")
    crashed = False
    for name in options.target:
        outcome = search(TARGETS[name], options.seed, options.seconds)
        rate = outcome.executions / max(outcome.seconds, 0.001)
        found = f"{outcome.steps:7,} steps {len(outcome.crashes):3} crashes"
        print(f"{name:22} {outcome.executions:9,} {rate:7.0f}/s {found}", flush=True)
        for path, crash in outcome.crashes:
            crashed = True
            print(f"  {crash.where}: {crash.what}\n  {path}\n{crash.trace}", flush=True)
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
