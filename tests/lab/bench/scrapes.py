"""What a scrape costs beside node_exporter, which collects when it is asked; what a page costs that nobody asks for."""

import random
import time
from statistics import median

from tests.lab.bench import client
from tests.lab.bench.processes import cpu_seconds, thread_cpu
from tests.lab.bench.report import Line, Section, at_most, milliseconds, times
from tests.lab.bench.rig import Daemon, Rig

LATENCY = 1 / 5
CPU = 1 / 10
FRESH = 0.0015
"""Seconds of CPU time."""
IDLE = 0.01
"""Share of a scrape's CPU time that the serving thread may use for a snapshot nobody scraped: a wake-up, no page."""


def beside_node_exporter(rig: Rig) -> Section:
    """Turns of paced scrapes: first one program, then the other, several times.

    In turns, so that neither waits for the other's work, which would be to node_exporter's credit.
    """
    rng, pace = random.Random(1), rig.pace
    latencies: tuple[list[float], ...] = ([], [])
    costs = [0.0, 0.0]
    with rig.node_exporter() as (peer, peer_address), rig.coldplate() as daemon:
        rig.wait(min(pace.warm, 4.0), "scrapes: coldplate and node_exporter settle")
        programs = [(daemon.pids, daemon.address), ((peer,), peer_address)]
        for _, address in programs:
            client.paced(address, 5, rng)
        for number in range(pace.rounds):
            rig.progress.say(f"scrapes: {pace.scrapes} each, paced, round {number + 1} of {pace.rounds} ...")
            for which, (pids, address) in enumerate(programs):
                before = cpu_seconds(pids)
                latencies[which].extend(client.paced(address, pace.scrapes, rng))
                costs[which] += (cpu_seconds(pids) - before) / pace.scrapes / pace.rounds
        sizes = [len(client.values_of(client.scrape(address).text)) for _, address in programs]
    (our50, their50), (our99, their99) = map(median, latencies), map(client.highest_hundredth, latencies)
    lines = (
        at_most("p99 of the latency, of node_exporter's", our99 / their99, LATENCY, times),
        Line("p50 of the latency, of node_exporter's", times(our50 / their50)),
        at_most("CPU for a scrape, of node_exporter's, sampling included", costs[0] / costs[1], CPU, times),
        Line(
            "  p50, p99",
            f"{milliseconds(our50)}, {milliseconds(our99)} against {milliseconds(their50)}, {milliseconds(their99)}",
        ),
        Line("  CPU for a scrape", f"{milliseconds(costs[0])} against {milliseconds(costs[1])}"),
        Line("  series on a page", f"{sizes[0]:,} against {sizes[1]:,}"),
    )
    pause = f"{client.SHORTEST * 1000:.0f} to {client.LONGEST * 1000:.0f} ms"
    return Section(f"Scrapes as Prometheus makes them, {len(latencies[0])} each in turns, {pause} apart", lines)


def once_a_second(rig: Rig) -> Section:
    """The serving thread's CPU time while nobody scrapes, and while each snapshot is scraped once.

    A page is made in the thread that serves it. If that thread uses no CPU time while snapshots are
    made, then no page was made of them.
    """
    seconds = rig.pace.unscraped
    with rig.node_exporter() as (peer, peer_address), rig.coldplate() as daemon:
        rig.wait(min(rig.pace.warm, 4.0), "unscraped pages: coldplate settles")
        first = client.values_of(daemon.page())["coldplate_ticks_total"]
        time.sleep(0.5)
        threads = thread_cpu(daemon.pids[0])
        rig.wait(seconds, "unscraped pages: nobody scrapes")
        quiet = _spent(daemon, threads)
        snapshots = client.values_of(daemon.page())["coldplate_ticks_total"] - first
        time.sleep(0.5)
        number = max(4, int(seconds))
        rig.progress.say(f"unscraped pages: {number} scrapes, one a second ...")
        threads, began = thread_cpu(daemon.pids[0]), time.monotonic()
        peer_cpu, ours, theirs = cpu_seconds([peer]), list[float](), list[float]()
        for scraped in range(number):
            ours.append(client.scrape(daemon.address).seconds)
            time.sleep(0.5)
            theirs.append(client.scrape(peer_address).seconds)
            time.sleep(max(0.0, began + (scraped + 1) * 1.01 - time.monotonic()))
        busy, peer_cost = _spent(daemon, threads), (cpu_seconds([peer]) - peer_cpu) / number
    server = max(busy, key=lambda thread: busy[thread] - quiet.get(thread, 0.0))
    page, unscraped = busy[server] / number, quiet.get(server, 0.0) / max(1.0, snapshots)
    p99 = client.highest_hundredth(ours) / client.highest_hundredth(theirs)
    lines = (
        at_most(f"serving thread, unscraped, for each of {snapshots:.0f} snapshots", unscraped / page, IDLE, times),
        at_most("CPU for a scrape that renders: that thread's", page, FRESH, milliseconds),
        Line(
            "  latency of a scrape that renders, p50, highest",
            f"{milliseconds(median(ours))}, {milliseconds(max(ours))}",
        ),
        at_most("latency of a scrape that renders, of node_exporter's, p99", p99, LATENCY, times),
        Line("  p50", times(median(ours) / median(theirs))),
        Line("CPU of a scrape that renders, of node_exporter's", times(page / peer_cost)),
    )
    title = f"A page that nobody asks for is not made; {number} scrapes, one a second, each of a fresh page"
    return Section(title, lines)


def _spent(daemon: Daemon, before: dict[int, float]) -> dict[int, float]:
    """CPU time of each thread of the main process since `before`."""
    return {thread: used - before.get(thread, 0.0) for thread, used in thread_cpu(daemon.pids[0]).items()}
