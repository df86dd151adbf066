"""The memory of both processes, after scrapes in every format that is spoken."""

from __future__ import annotations

import time

from tests.lab.bench import client
from tests.lab.bench.processes import MIB, memory_of_their_own, proportional_memory
from tests.lab.bench.report import Line, Section, at_most, mebibytes
from tests.lab.bench.rig import Rig

LIMIT = 40.0
SCRAPES = 100
PATHS = ("/", "/api/v1/snapshot", "/-/ready")


def resident(rig: Rig) -> Section:
    """PSS of main and worker, settled, scraped in text and OpenMetrics, plain and gzipped, other pages once."""
    with rig.coldplate() as daemon:
        rig.wait(rig.pace.warm, "memory: coldplate settles")
        before = sum(map(proportional_memory, daemon.pids)) / MIB
        rig.progress.say(f"memory: {SCRAPES} scrapes in four formats ...")
        kinds = [
            client.request(daemon.address, accept, gzip)
            for accept in (client.OPENMETRICS, client.TEXT)
            for gzip in (True, False)
        ]
        for number in range(SCRAPES):
            client.scrape(daemon.address, kinds[number % len(kinds)])
            time.sleep(0.1)
        for path in PATHS:
            client.scrape(daemon.address, client.request(daemon.address, "*/*", path=path))
        time.sleep(1.0)
        main, worker = (proportional_memory(pid) / MIB for pid in daemon.pids)
        alone = memory_of_their_own(daemon.pids) / MIB
        series = len(client.values_of(daemon.page()))
    lines = (
        at_most("PSS, main + worker", main + worker, LIMIT, mebibytes),
        Line("  main, worker", f"{mebibytes(main)}, {mebibytes(worker)}"),
        Line("  before the first scrape", mebibytes(before)),
        at_most("as if no other process shared a page with them", alone, LIMIT, mebibytes),
        Line("  for each series on the page", f"{alone * 1024 / series:.1f} KiB"),
    )
    return Section(f"Memory, after {SCRAPES} scrapes in text and OpenMetrics, plain and gzipped", lines)
