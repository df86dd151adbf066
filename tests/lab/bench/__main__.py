"""`make bench`: coldplate beside its peers on this machine, as ratios of one run.

Exit status 0 if everything was measured, whether targets are met or not; 1 if something could not run.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from tests.lab.bench import rules, sampling, scrapes
from tests.lab.bench.report import CannotRunError, Line, Progress, Section, Verdict, description, guarded, peers, table
from tests.lab.bench.rig import QUICK, Pace, Rig

MEASUREMENTS: dict[str, Callable[[Rig], Section]] = {
    "sampling": sampling.every_second,
    "fast": sampling.ten_times_a_second,
    "memory": sampling.resident,
    "scrapes": scrapes.beside_node_exporter,
    "unscraped": scrapes.once_a_second,
    "rules": rules.whole_pack,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description="Measure coldplate and its peers.")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="measure this alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="take little time: tries the benchmark, proves nothing")
    parsed = parser.parse_args(arguments)
    progress = Progress()
    progress.say(f"setting up; load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    with Rig.temporary(QUICK if parsed.quick else Pace(), progress) as rig:
        sections = [_measure(name, rig) for name in parsed.only or MEASUREMENTS]
    print(table(sections))
    print(f"\n{description()}\n{peers()}")
    if parsed.quick:
        print("--quick: these figures prove nothing.")
    return 0 if all(section.complete for section in sections) else 1


def _measure(name: str, rig: Rig) -> Section:
    try:
        return MEASUREMENTS[name](rig)
    except CannotRunError as error:
        return Section(name, (Line("could not run", str(error), "", Verdict.NOT_RUN),))


if __name__ == "__main__":
    sys.exit(guarded(main))
