"""The encoder beside prometheus_client, on the same snapshot: the same content, in what share of the time?

prometheus_client is given families that are ready, so that only its own work is timed; the encoder has
seen the series before, as it has in a daemon. `python -m tests.lab.bench.encoder` measures, in a process of
its own, with the packages as they are installed; `beside_prometheus_client` starts it.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.lab.bench.report import CannotRunError, Line, Section, Verdict, at_most, count, milliseconds, times
from tests.lab.bench.rig import ROOT, Rig

if TYPE_CHECKING:  # the agent and its peer are imported in the child process alone
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as ClientMetric

    from agent.model import Snapshot
    from exporters.encoder import Format

Render = Callable[["CollectorRegistry"], bytes]
Read = Callable[[str], Iterable["ClientMetric"]]

LIMIT = 1 / 10
CLIENT_GZIP = 9
"""The level that prometheus_client's servers use."""


def beside_prometheus_client(rig: Rig) -> Section:
    """Ratios of CPU time, medians of repeats in turns."""
    rig.progress.say("encoder: the same snapshot with prometheus_client ...")
    environment = {**rig.environment, "PYTHONPATH": f"{rig.site}:{ROOT}"}
    command = [sys.executable, "-m", "tests.lab.bench.encoder", str(rig.sysfs), str(rig.pace.repeats)]
    done = subprocess.run(command, env=environment, cwd=rig.directory, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise CannotRunError(f"the encoder could not be measured:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    lines = []
    for form in ("openmetrics", "text"):
        ours, theirs = found[form]["ours"], found[form]["theirs"]
        page, whole = ours["render"] / theirs["render"], sum(ours.values()) / sum(theirs.values())
        lines += [
            at_most(f"{form}, rendered and gzipped, of prometheus_client's", whole, LIMIT, times),
            Line("  rendering alone", times(page)),
            Line("  rendering, gzip", f"{milliseconds(ours['render'])}, {milliseconds(ours['gzip'])}"),
            Line("  the first page, before anything is kept", times(found[form]["first"] / theirs["render"])),
            Line("  size of the gzipped page, of prometheus_client's", times(found[form]["size"])),
            _equality(form, found[form]),
        ]
    return Section(
        f"The encoder beside prometheus_client, {found['series']:,} series, {rig.pace.repeats} repeats", tuple(lines)
    )


def _equality(form: str, found: dict[str, int]) -> Line:
    same, total = found["equal"], found["samples"]
    verdict = Verdict.MET if same == total else Verdict.MISSED
    return Line(f"  {form}: samples that its parser reads the same", f"{count(same)} of {count(total)}", "all", verdict)


def main(sysfs: str, repeats: int) -> int:
    """Measure; the figures go to standard output as JSON."""
    from prometheus_client import exposition as text
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as read_text

    from exporters.encoder import Format

    snapshot = _snapshot(Path(sysfs))
    result: dict[str, object] = {
        "openmetrics": _measure(snapshot, Format.OPENMETRICS, openmetrics.generate_latest, read_openmetrics, repeats),
        "text": _measure(snapshot, Format.TEXT, text.generate_latest, read_text, repeats),
        "series": len(snapshot.readings) + 1,
    }
    print(json.dumps(result))
    return 0


def _snapshot(sysfs: Path) -> Snapshot:
    """The node, through the agent's own sources and sampler."""
    from agent.config.reading import parse
    from agent.daemon.hub import Hub
    from agent.wiring.command_line import CommandLineOptions
    from agent.wiring.sources import make_sampling_loop

    config = parse("backends: {devices: nvml}", "the benchmark's configuration")
    sampling = make_sampling_loop(config, CommandLineOptions(sysfs=sysfs), Hub(), {})
    try:
        return sampling.once()
    finally:
        sampling.stop()
        sampling.close(time.sleep)


def _measure(snapshot: Snapshot, fmt: Format, peer: Render, read: Read, repeats: int) -> dict[str, object]:
    """One format: seconds of CPU time, and how much of both pages is the same."""
    from agent.model import Frame
    from exporters.encoder import Encoder
    from exporters.pages import compress

    encoder = Encoder()
    first, page = _timed(lambda: encoder.render(snapshot, fmt, 0.0))
    registry = _ready(snapshot)
    their_page = peer(registry)
    # Other values than before, in other objects, as at each sample.
    frames = tuple(Frame(layout, tuple(value + 1 for value in values)) for layout, values in snapshot.frames)
    other = replace(snapshot, frames=frames)
    works = {
        "render": lambda: encoder.render(other, fmt, 0.0),
        "gzip": lambda: compress(page),
        "their render": lambda: peer(registry),
        "their gzip": lambda: gzip.compress(their_page, CLIENT_GZIP),
    }
    taken = _in_turns(repeats, works)
    ours_read, theirs_read = _samples(read(page.decode())), _samples(read(their_page.decode()))
    return {
        "ours": {"render": taken["render"], "gzip": taken["gzip"]},
        "theirs": {"render": taken["their render"], "gzip": taken["their gzip"]},
        "first": first,
        "size": len(compress(page)) / len(gzip.compress(their_page, CLIENT_GZIP)),
        "equal": len(ours_read & theirs_read),
        "samples": len(ours_read | theirs_read),
    }


def _ready(snapshot: Snapshot) -> CollectorRegistry:
    """A registry whose families cost nothing to collect."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from exporters.collector import SnapshotCollector

    families = list(SnapshotCollector(lambda: snapshot, lambda: snapshot.at.mono).collect())

    class Ready(Collector):
        def collect(self) -> Iterable[ClientMetric]:
            return families

    registry = CollectorRegistry()
    registry.register(Ready())
    return registry


def _timed(work: Callable[[], bytes]) -> tuple[float, bytes]:
    began = time.thread_time()
    made = work()
    return time.thread_time() - began, made


def _in_turns(repeats: int, works: dict[str, Callable[[], bytes]]) -> dict[str, float]:
    """Median CPU time of each, one after the other, again and again: a slow moment hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(_timed(work)[0])
    return {name: median(seconds) for name, seconds in taken.items()}


def _samples(families: Iterable[ClientMetric]) -> set[tuple[object, ...]]:
    """Every sample with what its family says of it."""
    return set(_rows(families))


def _rows(families: Iterable[ClientMetric]) -> Iterator[tuple[object, ...]]:
    for family in families:
        about = (family.name, family.type, family.unit, family.documentation)
        for sample in family.samples:
            yield (*about, sample.name, frozenset(sample.labels.items()), sample.value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
