"""Measure what a fleet costs its servers, for docs/dev/scale.md: `python -m tests.lab.fleet.scale_study`.

For each number of nodes a real Prometheus scrapes canned pages (canned_site.py) and evaluates the whole pack and the
rules of a shard, so that all that they record is there. Then each rule is asked for alone, at that moment: what
counts is the processor time of the server, by the kernel's account, which hardly depends on who shares the machine.
Last, a vmagent and a VictoriaMetrics scrape the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from alerts import rulefile
from tests.deployment.fleet_files import FLEET, ROOT
from tests.lab.bench.report import markdown, put_between
from tests.lab.fleet.canned_site import INTERVAL_SECONDS, scraping
from tests.lab.fleet.engines import Engine, Engines

SIZES = (100, 400, 1600)
FLEET_RULES = ROOT / "alerts" / "server" / "fleet.rules.yml"
PAGE = ROOT / "docs" / "dev" / "scale.md"
BEGIN, END = "<!-- measured: made by `make bench-scale` -->", "<!-- measured: end -->"
RULES_SECONDS, STORE_SECONDS = 150, 60
LEAST_CPU_SECONDS, MOST_TIMES = 0.2, 15
"""A rule is asked for until the server has taken so long, or so often: the kernel counts in hundredths of a second."""


def measure(nodes: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="coldplate-scale-") as place, Engines(Path(place)) as engines:
        folder, rules = Path(place), Path(place) / "rules"
        rules.mkdir()
        site = engines.canned_site(nodes)
        config = scraping(site.url, f"{INTERVAL_SECONDS}s", f"{rules}/*.yml")
        server = engines.prometheus("prometheus", config, "--web.enable-lifecycle")
        time.sleep(2 * INTERVAL_SECONDS)
        cpu, at = server.cpu, time.monotonic()
        time.sleep(2 * INTERVAL_SECONDS)
        ingesting = (server.cpu - cpu) / (time.monotonic() - at)
        whole, shard = whole_pack(folder / "whole"), shard_rules(folder / "shard")
        load(server, rules, [*whole, *(path for path in shard if path.parent != folder / "shard")])
        time.sleep(RULES_SECONDS)
        series = int(ask(server, 'count({__name__=~".+"})'))
        samples = ask(server, "sum(scrape_samples_post_metric_relabeling)")
        memory = server.resident
        rows = {
            "samples a page": f"{samples / nodes:.0f}",
            "samples a second": f"{samples / INTERVAL_SECONDS:,.0f}",
            "series of Prometheus, with what rules record": f"{series:,}",
            "its memory, MiB": f"{memory / MIB:,.0f}",
            "its memory, KiB a series": f"{memory / 1024 / series:.1f}",
            "its log on disk, MiB after four minutes": f"{on_disk(folder / 'prometheus') / MIB:,.0f}",
            "processor of scraping, cores": f"{ingesting:.2f}",
        }
        moment = time.time()
        (folder / "prometheus.yml").write_text("{}")
        reload(server)
        time.sleep(3)
        pack, of_a_shard = taken(server, whole, moment), taken(server, shard, moment)
        engines.running.pop("prometheus").process.kill()
        return Figures(nodes, rows | stored(engines, site), pack, of_a_shard)


def stored(engines: Engines, site: Engine) -> dict[str, str]:
    """The same nodes under vmagent and VictoriaMetrics."""
    config = engines.folder / "vmagent.yml"
    config.write_text(scraping(site.url, f"{INTERVAL_SECONDS}s"))
    store = engines.store("store")
    keep = f"-remoteWrite.urlRelabelConfig={FLEET / 'vmagent' / 'keep.yml'}"
    scraper = engines.scraper("scraper", config, f"-remoteWrite.url={store.url}/api/v1/write", keep)
    time.sleep(3 * INTERVAL_SECONDS)
    programs, at = {"VictoriaMetrics": store, "vmagent": scraper}, time.monotonic()
    before = {name: program.cpu for name, program in programs.items()}
    time.sleep(STORE_SECONDS)
    rows = {}
    for name, program in programs.items():
        rows[f"memory of {name}, MiB"] = f"{program.resident / MIB:,.0f}"
        rows[f"processor of {name}, cores"] = f"{(program.cpu - before[name]) / (time.monotonic() - at):.2f}"
    return rows


def whole_pack(folder: Path) -> list[Path]:
    """What a single server loads, at an interval that lets it keep up while this is measured."""
    return [*rendered(folder, "--min-interval", "30s"), FLEET_RULES]


def shard_rules(folder: Path) -> list[Path]:
    """What a shard loads, as docs/fleet.md has it."""
    ours = [FLEET / "rules" / f"{name}.rules.yml" for name in ("shard", "relay")]
    return [*rendered(folder, "--for-shard"), FLEET_RULES, *ours]


def rendered(folder: Path, *options: str) -> list[Path]:
    command = [sys.executable, "-m", "agent.cli", "render", "rules", *options, "--output", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return sorted(folder.glob("*.yml"))


def load(server: Engine, rules: Path, files: list[Path]) -> None:
    for path in files:
        shutil.copy(path, rules / path.name)
    reload(server)


def reload(server: Engine) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/-/reload", method="POST"), timeout=120).close()


def taken(server: Engine, files: list[Path], moment: float) -> Times:
    """Processor seconds of one evaluation of each rule at that moment; its result is counted, and not stored."""
    found: Times = {}
    for path in files:
        for group in rulefile.load(path).groups:
            for rule in group.rules:
                key = (group.name, rule.name)
                found[key] = found.get(key, 0.0) + _evaluated(server, f"count({rule.expression})", moment)
    return found


def _evaluated(server: Engine, query: str, moment: float) -> float:
    before, times = server.cpu, 0
    while times < MOST_TIMES and server.cpu - before < LEAST_CPU_SECONDS:
        ask(server, f"{query} or vector(0)", moment)
        times += 1
    return (server.cpu - before) / times


def ask(server: Engine, query: str, moment: float | None = None) -> float:
    return float(server.ask(query, **({} if moment is None else {"time": f"{moment:.3f}"}))[0]["value"][1])


def on_disk(folder: Path) -> float:
    return float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fleet.scale_study")
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--print", action="store_true", help="print the table, and leave docs/dev/scale.md as it is")
    parsed = parser.parse_args()
    figures = []
    for nodes in parsed.nodes:
        print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
        figures.append(measure(nodes))
    text = table(figures, os.getloadavg()[1])
    print(text)
    if not parsed.print:
        put_between(PAGE, BEGIN, END, text)
    return 0


SLOWEST = 12
SHARD = 6400
"""Nodes of the shard for which evaluation is judged."""
MIB = 2**20
Times = dict[tuple[str, str], float]
"""Processor seconds of an evaluation, by the rule's group and name; of an alert with several levels, of all of them."""


class Figures(NamedTuple):
    """What a number of nodes takes; `rows` as the first table has them."""

    nodes: int
    rows: dict[str, str]
    whole: Times
    shard: Times


def table(figures: Sequence[Figures], load: float) -> str:
    """Three tables: the servers, the groups of rules, and the slowest rules."""
    rows = ((what, *(each.rows[what] for each in figures)) for what in figures[0].rows)
    evaluated = "Processor seconds of one evaluation of each group. The last column is the last size, carried in "
    evaluated += f"proportion to {SHARD:,} nodes.\n"
    return "\n".join(
        [
            f"Profile `lean`, each node scraped every 15 s. Load average of the machine at the end: {load:.1f}.\n",
            markdown(("", *(f"{each.nodes:,} nodes" for each in figures)), rows),
            evaluated,
            _groups("The whole pack", figures, lambda it: it.whole),
            _groups("A shard's rules", figures, lambda it: it.shard),
            "The slowest rules of both, with the last size:\n",
            _slowest(figures[-1]),
        ]
    )


def _groups(title: str, figures: Sequence[Figures], times: Callable[[Figures], Times]) -> str:
    sums: list[defaultdict[str, float]] = []
    for each in figures:
        spent: defaultdict[str, float] = defaultdict(float)
        for (group, _), took in times(each).items():
            spent[group] += took
            spent["all"] += took
        sums.append(spent)
    last, scale = sums[-1], SHARD / figures[-1].nodes
    rows = [
        (f"`{group}`", *(f"{spent[group]:.3f}" for spent in sums), f"{last[group] * scale:.2f}")
        for group in sorted(last, key=lambda name: -last[name])
    ]
    return markdown((title, *(f"{each.nodes:,}" for each in figures), f"{SHARD:,}, extrapolated"), rows)


def _slowest(figures: Figures) -> str:
    every = [(took, "whole", *rule) for rule, took in figures.whole.items()]
    every += [(took, "shard", *rule) for rule, took in figures.shard.items()]
    slowest = sorted(every)[-1 : -SLOWEST - 1 : -1]
    rows = ((f"`{name}`", f"{kind}, `{group}`", f"{took:.3f}") for took, kind, group, name in slowest)
    return markdown(("rule", "of", "seconds"), rows)


if __name__ == "__main__":
    sys.exit(main())
