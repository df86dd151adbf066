"""What sampling costs while nobody scrapes: once a second beside nvitop-exporter, ten times a second; and memory."""

import time
from collections.abc import Sequence
from itertools import product
from statistics import fmean, median

from tests.lab.bench import client
from tests.lab.bench.processes import MIB, cpu_seconds, proportional_memory
from tests.lab.bench.report import (
    CannotRunError,
    Line,
    Section,
    Verdict,
    at_least,
    at_most,
    count,
    mebibytes,
    milliseconds,
    percent,
    times,
)
from tests.lab.bench.rig import Rig, traffic

AGAINST_NVITOP = 0.5
SERIES = 1_200
SERIES_AGAINST_NVITOP = 2.0
FAST_LANE = 3.0
PART = 15.0
"""Seconds of a part whose figure is shown as well, to see how far one figure can be trusted: one slow lane's period."""
TICK = 0.1
AGES = 60


def every_second(rig: Rig) -> Section:
    """Coldplate and nvitop-exporter at the same time, each sampling the same eight GPUs once a second.

    At the same time, because then a noisy neighbour and the processor's clock are the same for both; at
    about a hundredth of a core each they do not get into each other's way. One coldplate is as it is shipped, with
    every rule; a second one evaluates none, which shows what sampling alone takes.
    """
    with (
        traffic(rig.sysfs),
        rig.nvitop() as (peer, peer_address),
        rig.coldplate(judging=False) as daemon,
        rig.coldplate() as judge,
    ):
        rig.wait(rig.pace.settle, "CPU at 1 s: coldplate and nvitop-exporter settle")
        parts = _shares(rig, rig.pace.sampling, "CPU at 1 s: all unscraped", judge.pids, daemon.pids, [peer])
        series = client.values_of(daemon.page())
        theirs = len(client.values_of(client.scrape(peer_address).text))
    judged, ours, other = map(fmean, zip(*parts, strict=True))
    ratios = [without_rules / nvitop for _, without_rules, nvitop in parts]
    lines = (
        at_most("CPU, main + worker, as shipped, of nvitop-exporter's", judged / other, AGAINST_NVITOP, times),
        Line("  CPU of a core", f"{percent(judged)} against {percent(other)}"),
        Line("the same without rules", f"{times(ours / other)}, {percent(ours)}"),
        Line(f"  lowest and highest of {len(parts)} parts", f"{min(ratios):.3g} to {max(ratios):.3g} x"),
        at_least("series", len(series), SERIES, count),
        at_least("series, of nvitop-exporter's", len(series) / theirs, SERIES_AGAINST_NVITOP, times),
        *_soundness(series),
    )
    return Section(f"Sampling once a second, unscraped, {rig.pace.sampling:.0f} s, all at the same time", lines)


def ten_times_a_second(rig: Rig) -> Section:
    """The fast lane at its shortest period; the ages are read after the CPU time, since a scrape costs CPU time.

    With and without rules one after the other, lest they slow each other.
    """
    with traffic(rig.sysfs), rig.coldplate("100ms") as daemon:
        rig.wait(rig.pace.warm, "CPU at 100 ms with rules: coldplate settles")
        with_rules = _shares(rig, rig.pace.fast / 2, "CPU at 100 ms with rules: unscraped", daemon.pids)
    with traffic(rig.sysfs), rig.coldplate("100ms", judging=False) as daemon:
        rig.wait(rig.pace.warm, "CPU at 100 ms: coldplate settles")
        parts = _shares(rig, rig.pace.fast, "CPU at 100 ms: unscraped", daemon.pids[:1], daemon.pids[1:])
        rig.progress.say("ages of the GPUs' samples, 8 s ...")
        pages = []
        for number in range(AGES):
            pages.append(client.values_of(daemon.page()))
            time.sleep(TICK + 0.007 * (number % 10))
    ((judged,), (main, worker)) = (map(fmean, zip(*each, strict=True)) for each in (with_rules, parts))
    last = pages[-1]
    served, missed = last["coldplate_ticks_total"], last["coldplate_ticks_missed_total"]
    ages = [age for page in pages for age in _gpu_ages(page)]
    lines = (
        at_most("CPU of a core, main + worker, as shipped", judged, FAST_LANE, percent),
        Line("the same without rules", percent(main + worker)),
        Line("  main, worker", f"{percent(main)}, {percent(worker)}"),
        Line("  CPU for one sample of the whole node", milliseconds((main + worker) / 100 * TICK)),
        Line("ticks missed", f"{missed:.0f} of {served + missed:.0f}"),
        Line(
            "age of a GPU's sample on the page, median, highest",
            f"{milliseconds(median(ages))}, {milliseconds(max(ages))}",
        ),
        *_soundness(last),
    )
    return Section(f"Sampling every 100 ms, unscraped, {rig.pace.fast:.0f} s", lines)


def _shares(rig: Rig, seconds: float, what: str, *programs: Sequence[int]) -> list[list[float]]:
    """For each part of these seconds, the percentage of a core that each program, given by its processes, used."""
    count, parts = max(1, round(seconds / PART)), []
    for number in range(count):
        began, before = time.monotonic(), [cpu_seconds(pids) for pids in programs]
        rig.wait(seconds / count, f"{what}, part {number + 1} of {count}")
        took = time.monotonic() - began
        parts.append([100 * (cpu_seconds(pids) - used) / took for pids, used in zip(programs, before, strict=True)])
    return parts


def _gpu_ages(page: dict[str, float]) -> list[float]:
    """Seconds from each GPU's reading to the making of the page."""
    since = page["coldplate_sample_age_seconds"]
    return [age + since for name, age in page.items() if name.startswith("coldplate_gpu_sample_age_seconds{")]


def _soundness(series: dict[str, float]) -> tuple[Line, ...]:
    """What would make the figures worthless: an agent that did not do its work."""
    gpus = sum(value for name, value in series.items() if name.startswith("coldplate_gpu_up{"))
    ports = sum(1 for name in series if name.startswith("coldplate_infiniband_port_data_received_bytes_total{"))
    rejected = {name: value for name, value in series.items() if name.startswith("coldplate_readings_rejected_total")}
    if (gpus, ports) != (8, 8):
        raise CannotRunError(f"the daemon reads {gpus:.0f} GPUs and {ports} ports instead of 8 and 8")
    why = "".join(f" {name.partition('{')[2].rstrip('}')}" for name, value in rejected.items() if value)
    lost = sum(rejected.values())
    verdict = Verdict.MISSED if lost else Verdict.MET
    return (Line("  readings and messages refused as garbage", count(lost) + why, "0", verdict),)


MEMORY_LIMIT = 40.0
SCRAPES = 100
PATHS = ("/", "/api/v1/snapshot", "/-/ready")


def resident(rig: Rig) -> Section:
    """PSS of main and worker, settled, scraped in text and OpenMetrics, plain and gzipped, other pages once."""
    with rig.coldplate() as daemon:
        rig.wait(rig.pace.warm, "memory: coldplate settles")
        rig.progress.say(f"memory: {SCRAPES} scrapes in four formats ...")
        kinds = list(product((client.OPENMETRICS, client.TEXT), (True, False)))
        for number in range(SCRAPES):
            accept, gzip = kinds[number % len(kinds)]
            client.scrape(daemon.address, accept=accept, gzip=gzip)
            time.sleep(0.1)
        for path in PATHS:
            client.scrape(daemon.address, path, "*/*")
        time.sleep(1.0)
        main, worker = (proportional_memory(pid) / MIB for pid in daemon.pids)
    lines = (
        at_most("PSS, main + worker", main + worker, MEMORY_LIMIT, mebibytes),
        Line("  main, worker", f"{mebibytes(main)}, {mebibytes(worker)}"),
    )
    return Section(f"Memory, after {SCRAPES} scrapes in text and OpenMetrics, plain and gzipped", lines)
