"""A scraper in a process of its own: `python -m tests.lab.bench.patience PORT` scrapes ten times a second.

Each scrape is a line at once: the monotonic second at which it began, and its latency in seconds.
"""

from __future__ import annotations

import os
import sys
import time

from tests.lab.bench import client
from tests.lab.bench.processes import prefer

PRIORITY = 6
"""Higher than the daemon's: what is measured is the daemon, and not when a scraper is woken up."""
GIVEN_UP = 10.0
"""Seconds that a scrape counts that fails: Prometheus waits that long."""


def scrape(address: client.Address) -> float:
    try:
        return client.scrape(address, accept=client.TEXT).seconds
    except (OSError, ValueError):
        return GIVEN_UP


def main(port: int) -> None:
    """Scrape until whoever started this is gone."""
    parent, due = os.getppid(), time.monotonic()
    while os.getppid() == parent:
        time.sleep(max(0.0, due - time.monotonic()))
        print(f"{time.monotonic():.3f} {scrape(('127.0.0.1', port)):.6f}", flush=True)
        due = max(due + 0.1, time.monotonic())


if __name__ == "__main__":
    prefer(os.getpid(), PRIORITY)
    main(int(sys.argv[1]))
