"""Measure what a fleet costs its servers, for docs/dev/scale.md: `python -m tests.lab.fleet.scale_study`.

For each number of nodes a real Prometheus scrapes canned pages (canned_site.py) and evaluates the whole pack and the
rules of a shard, so that all that they record is there. Then each rule is asked for alone, at that moment: what
counts is the processor time of the server, by the kernel's account, which hardly depends on who shares the machine.
Last, a vmagent and a VictoriaMetrics scrape the same.
"""

from __future__ import annotations

import argparse
import math
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
FLEET_RULES = ROOT / "packaging" / "prometheus" / "fleet.rules.yml"
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
        disk, memory = on_disk(folder / "prometheus"), server.resident
        moment = time.time()
        (folder / "prometheus.yml").write_text("{}")
        reload(server)
        time.sleep(3)
        pack, of_a_shard = taken(server, whole, moment), taken(server, shard, moment)
        engines.running.pop("prometheus").process.kill()
        store, scraper, took = stored(engines, site)
        return Figures(
            nodes, samples / INTERVAL_SECONDS, series, memory, ingesting, disk, pack, of_a_shard,
            store.resident, took[0], scraper.resident, took[1],
        )  # fmt: skip


def stored(engines: Engines, site: Engine) -> tuple[Engine, Engine, tuple[float, float]]:
    """The same nodes under vmagent and VictoriaMetrics; the processor time of store and scraper, in cores."""
    config = engines.folder / "vmagent.yml"
    config.write_text(scraping(site.url, f"{INTERVAL_SECONDS}s"))
    store = engines.store("store")
    keep = f"-remoteWrite.urlRelabelConfig={FLEET / 'vmagent' / 'keep.yml'}"
    scraper = engines.scraper("scraper", config, f"-remoteWrite.url={store.url}/api/v1/write", keep)
    time.sleep(3 * INTERVAL_SECONDS)
    before, at = (store.cpu, scraper.cpu), time.monotonic()
    time.sleep(STORE_SECONDS)
    span = time.monotonic() - at
    return store, scraper, ((store.cpu - before[0]) / span, (scraper.cpu - before[1]) / span)


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
    return int(any(math.isnan(each.samples) for each in figures))


SLOWEST = 12
SHARD = 6400
"""Nodes of the shard for which evaluation is judged."""
MIB = 2**20
Times = dict[tuple[str, str], float]
"""Processor seconds of an evaluation, by the rule's group and name; of an alert with several levels, of all of them."""


class Figures(NamedTuple):
    nodes: int
    samples: float
    series: int
    memory: int
    ingesting: float
    disk: float
    whole: Times
    shard: Times
    store_memory: int
    store_cpu: float
    scraper_memory: int
    scraper_cpu: float


def table(figures: Sequence[Figures], load: float) -> str:
    """Three tables: the servers, the groups of rules, and the slowest rules."""

    def row(what: str, tell: Callable[[Figures], str]) -> tuple[str, ...]:
        return what, *map(tell, figures)

    rows = (
        row("samples a page", lambda it: f"{it.samples * 15 / it.nodes:.0f}"),
        row("samples a second", lambda it: f"{it.samples:,.0f}"),
        row("series of Prometheus, with what rules record", lambda it: f"{it.series:,}"),
        row("its memory, MiB", lambda it: f"{it.memory / MIB:,.0f}"),
        row("its memory, KiB a series", lambda it: f"{it.memory / 1024 / it.series:.1f}"),
        row("its log on disk, MiB after four minutes", lambda it: f"{it.disk / MIB:,.0f}"),
        row("processor of scraping, cores", lambda it: f"{it.ingesting:.2f}"),
        row("memory of VictoriaMetrics, MiB", lambda it: f"{it.store_memory / MIB:,.0f}"),
        row("processor of VictoriaMetrics, cores", lambda it: f"{it.store_cpu:.2f}"),
        row("memory of vmagent, MiB", lambda it: f"{it.scraper_memory / MIB:,.0f}"),
        row("processor of vmagent, cores", lambda it: f"{it.scraper_cpu:.2f}"),
    )
    evaluated = "Processor seconds of one evaluation of each group. The last column is the last size, carried in "
    evaluated += f"proportion to {SHARD:,} nodes.\n"
    return "\n".join([
        f"Profile `lean`, each node scraped every 15 s. Load average of the machine at the end: {load:.1f}.\n",
        markdown(("", *(f"{each.nodes:,} nodes" for each in figures)), rows),
        evaluated,
        _groups("The whole pack", figures, lambda it: it.whole),
        _groups("A shard's rules", figures, lambda it: it.shard),
        "The slowest rules of both, with the last size:\n",
        _slowest(figures[-1]),
    ])  # fmt: skip


def _groups(title: str, figures: Sequence[Figures], times: Callable[[Figures], Times]) -> str:
    sums: list[defaultdict[str, float]] = []
    for each in figures:
        spent: defaultdict[str, float] = defaultdict(float)
        for (group, _), took in times(each).items():
            spent[group] += took
            spent["all"] += took
        sums.append(spent)
    last, scale = sums[-1], SHARD / figures[-1].nodes
    rows = [(f"`{group}`", *(f"{spent[group]:.3f}" for spent in sums), f"{last[group] * scale:.2f}")
            for group in sorted(last, key=lambda name: -last[name])]  # fmt: skip
    return markdown((title, *(f"{each.nodes:,}" for each in figures), f"{SHARD:,}, extrapolated"), rows)


def _slowest(figures: Figures) -> str:
    every = [(took, "whole", *rule) for rule, took in figures.whole.items()]
    every += [(took, "shard", *rule) for rule, took in figures.shard.items()]
    slowest = sorted(every)[-1 : -SLOWEST - 1 : -1]
    rows = ((f"`{name}`", f"{kind}, `{group}`", f"{took:.3f}") for took, kind, group, name in slowest)
    return markdown(("rule", "of", "seconds"), rows)


if __name__ == "__main__":
    sys.exit(main())
