"""Print the cost of judging one large job on a server, for docs/scale.md: `python -m tests.lab.fleet.jobs_study`.

As scale_study.py measures: a real Prometheus scrapes canned pages and evaluates the rules about jobs, then each rule is
asked for alone. All nodes work for one job, and nothing else runs on the server.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.deployment.fleet_files import FLEET, ROOT
from tests.lab.fleet.canned_site import INTERVAL_SECONDS
from tests.lab.fleet.engines import Engines
from tests.lab.fleet.scale_study import CONFIG, RULES_SECONDS, ask, load, reload, taken
from tests.lab.fleet.scale_table import Times

SIZES = (128, 512, 1024)
GPUS = 8
JOB_RULES = [FLEET / "rules" / f"jobs-{name}.rules.yml" for name in ("shard", "global")]


def measure(nodes: int) -> Times:
    """Processor seconds of each rule for a job of so many nodes."""
    with tempfile.TemporaryDirectory(prefix="coldplate-jobs-") as place, Engines(Path(place)) as engines:
        rules = Path(place) / "rules"
        rules.mkdir()
        words = [sys.executable, "-m", "tests.lab.fleet.canned_site", "--nodes", str(nodes), "--job-nodes", str(nodes)]
        site = engines.start("site", lambda port: [*words, "--port", str(port)], "/sd")
        config = CONFIG.format(interval=INTERVAL_SECONDS, rules=rules, site=site.url)
        server = engines.prometheus("prometheus", config, "--web.enable-lifecycle")
        load(server, rules, JOB_RULES)
        time.sleep(RULES_SECONDS)
        judged = ask(server, "sum(cluster_job:working_gpus:count)")
        assert judged == nodes * GPUS, f"{judged:.0f} GPUs are judged"
        moment = time.time()
        (engines.folder / "prometheus.yml").write_text("{}")
        reload(server)
        time.sleep(3)
        return taken(server, JOB_RULES, moment)


def table(measured: dict[int, Times], load_average: float) -> str:
    """Groups and the sum, in Markdown."""
    rows: defaultdict[str, list[float]] = defaultdict(list)
    for times in measured.values():
        sums: defaultdict[str, float] = defaultdict(float)
        for (group, _), took in times.items():
            sums[f"`{group}`"] += took
            sums["all"] += took
        for group, took in sums.items():
            rows[group].append(took)
    lines = [f"Load average of the machine at the end: {load_average:.1f}.\n"]
    lines.append(f"| One job of | {' | '.join(f'{nodes * GPUS:,} GPUs' for nodes in measured)} |")
    lines.append("|---|" + "---|" * len(measured))
    for group, cells in sorted(rows.items(), key=lambda row: -row[1][-1]):
        lines.append(f"| {group} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fleet.jobs_study")
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    os.environ["PYTHONPATH"] = str(ROOT)
    measured = {}
    for nodes in parser.parse_args().nodes:
        print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
        measured[nodes] = measure(nodes)
    print(table(measured, os.getloadavg()[1]))


if __name__ == "__main__":
    main()
