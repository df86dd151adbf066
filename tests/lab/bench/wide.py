"""What one query over very many series costs, beside the same one over a hundredth of them.

`python -m tests.lab.bench.wide` measures, in a process of its own; `a_hundred_thousand` starts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from tests.lab.bench.report import CannotRunError, Line, Section, at_most, milliseconds, times
from tests.lab.bench.rig import ROOT, Rig

FEW, MANY = 1_000, 100_000
QUERIES = ("rate(m_total[5m])", "sum by (gpu) (rate(m_total[5m]))", "m_total")
LIMIT = 0.3
SAMPLES, SPACING = 20, 15.0


def a_hundred_thousand(rig: Rig) -> Section:
    """CPU time of evaluations, the least of repeats: the first one makes what is remembered of labels."""
    rig.progress.say(f"wide: queries over {MANY:,} series ...")
    command = [sys.executable, "-m", "tests.lab.bench.wide", str(3 if rig.pace.repeats < 25 else 7)]
    environment = {**rig.environment, "PYTHONPATH": f"{rig.site}:{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=rig.directory, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise CannotRunError(f"queries over many series could not be measured:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    lines = []
    for query in QUERIES:
        few, many = found[query]
        shown = at_most(query, many, LIMIT, milliseconds) if query == QUERIES[0] else Line(query, milliseconds(many))
        lines += [shown, Line(f"  of that over {FEW:,} series", times(many / few))]
    return Section(f"Queries over {MANY:,} series of {SAMPLES} samples", tuple(lines))


def main(repeats: int) -> int:
    """Measure; the figures go to standard output as JSON."""
    from alerts.promql import Storage, compile_query, make_labels
    from alerts.promql.budget import Budget, SampleLedger

    costs: dict[str, list[float]] = {query: [] for query in QUERIES}
    for count in (FEW, MANY):
        storage = Storage()
        for number in range(count):
            labels = {"gpu": str(number % 8), "instance": f"node{number // 8}:19400", "job": "coldplate", "x": "y"}
            labels_of_series = make_labels(labels, "m_total")
            for sample in range(SAMPLES):
                storage.append(labels_of_series, SPACING * sample, float(sample * number))
        for text in QUERIES:
            query, ledger = compile_query(text), SampleLedger()
            took = []
            for _ in range(repeats):
                budget = Budget(time.monotonic, ledger, seconds=600.0, samples=1e9)
                began = time.process_time()
                query.evaluate(storage, SPACING * (SAMPLES - 1) + 1, budget)
                took.append(time.process_time() - began)
            costs[text].append(min(took))
    print(json.dumps(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
