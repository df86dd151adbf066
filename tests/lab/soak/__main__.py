"""`make soak`: whether anything grows in a daemon that runs for long, while all around it comes and goes.

Exit status 0 if nothing grew beyond its limit, 1 if something did or could not be tried.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.lab.bench.report import Progress, description, guarded
from tests.lab.bench.rig import ROOT, Pace, Rig
from tests.lab.drill.reliability import DOCUMENT
from tests.lab.soak import growth
from tests.lab.soak.accelerated import accelerated
from tests.lab.soak.churn import in_real_time
from tests.lab.soak.growth import Soaked

SECONDS, HOURS = 5400.0, 12.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.soak", description="See whether anything grows.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the real daemon at a lane of 100 ms")
    parser.add_argument("--hours", type=float, default=HOURS, help="of a node's time, faster than it passes")
    parser.add_argument("--dry", action="store_true", help="write no document")
    parsed = parser.parse_args(arguments)
    progress, found = Progress(), dict[str, Soaked]()
    if parsed.hours:
        progress.say(f"{parsed.hours:g} h of a node's time in this process ...")
        found["at accelerated time"] = accelerated(progress, int(parsed.hours * 3600))
    if parsed.seconds:
        with Rig.temporary(Pace(), progress) as rig:
            found["in real time"] = in_real_time(rig, parsed.seconds)
    for name, soaked in found.items():
        print(growth.plain(name, soaked), end="\n\n")
        if not parsed.dry:
            growth.write(name, soaked, description())
    print(description() if parsed.dry else f"{description()}\nwritten to {DOCUMENT.relative_to(ROOT)}")
    return 1 if any(each.missed() for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
