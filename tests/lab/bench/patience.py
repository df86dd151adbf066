"""Two scrapers in a process of their own, one asks once a second and the other ten times: how long they wait.

`python -m tests.lab.bench.patience PORT SECONDS` prints their latencies in seconds, as JSON. Without SECONDS there is
one, ten times a second until it is ended, and each scrape is a line at once: the monotonic second at which it
began, and its latency.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

from tests.lab.bench import client

PRIORITY = 6

GIVEN_UP = 10.0
"""Seconds that a scrape counts that fails: Prometheus waits that long."""


def scrape_every(address: client.Address, asked: bytes, period: float, seconds: float, taken: list[float]) -> None:
    """On a grid, whatever a scrape takes; one that is late does not make the others rarer than the grid allows."""
    began = time.monotonic()
    due = began + period / 2
    while due < began + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        taken.append(_scrape(address, asked))
        due = max(due + period, time.monotonic())


def _scrape(address: client.Address, asked: bytes) -> float:
    """How long it takes."""
    try:
        return client.scrape(address, asked).seconds
    except (OSError, ValueError):
        return GIVEN_UP


def follow(address: client.Address, parent: int) -> None:
    """Scrape ten times a second, and tell of each, until whoever started this is gone."""
    asked = client.request(address, client.TEXT)
    due = time.monotonic()
    while os.getppid() == parent:
        time.sleep(max(0.0, due - time.monotonic()))
        print(f"{time.monotonic():.3f} {_scrape(address, asked):.6f}", flush=True)
        due = max(due + 0.1, time.monotonic())


def prefer_this_process() -> None:
    """What is measured is the daemon, and not when a scraper is woken up."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))


def main(port: int, seconds: float) -> None:
    address = ("127.0.0.1", port)
    found: dict[str, list[float]] = {"slow": [], "fast": []}
    # Each has a format of its own: neither finds the page that the other has had made.
    plans = (
        ("slow", client.request(address, client.OPENMETRICS), 1.0),
        ("fast", client.request(address, client.TEXT), 0.1),
    )
    threads = [
        threading.Thread(target=scrape_every, args=(address, asked, period, seconds, found[name]))
        for name, asked, period in plans
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(found))


if __name__ == "__main__":
    prefer_this_process()
    if len(sys.argv) > 2:
        main(int(sys.argv[1]), float(sys.argv[2]))
    else:
        follow(("127.0.0.1", int(sys.argv[1])), os.getppid())
