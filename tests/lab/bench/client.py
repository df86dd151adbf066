"""A scraper as Prometheus is one: a connection for each scrape, and the headers that Prometheus sends.

`python -m tests.lab.bench.client PORT` scrapes ten times a second, in a process of its own. Each scrape is a line at
once: the monotonic second at which it began, and its latency in seconds.
"""

import os
import random
import sys
import time
import zlib
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from statistics import quantiles
from typing import NamedTuple

from tests.lab.bench.processes import prefer

Address = tuple[str, int]

OPENMETRICS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""Accept, as Prometheus 2.42 sends it."""
TEXT = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""Accept, as Prometheus sent it before it knew OpenMetrics."""

SHORTEST, LONGEST = 0.005, 0.020
"""Seconds between two scrapes of the paced client."""
PRIORITY = 6
"""Higher than the daemon's: what is measured is the daemon, and not when a scraper is woken up."""
GIVEN_UP = 10.0
"""Seconds that a scrape counts that fails: Prometheus waits that long."""


class Answer(NamedTuple):
    """One scrape. `seconds` from before the connection to the last byte."""

    seconds: float
    text: str


def scrape(
    address: Address,
    path: str = "/metrics",
    accept: str = OPENMETRICS,
    gzip: bool = True,
    method: str = "GET",
    timeout: float = 10.0,
) -> Answer:
    """One page over a new connection. Raises OSError, and ValueError for an answer that is not 200."""
    headers = {
        "User-Agent": "Prometheus/2.42.0",
        "Accept": accept,
        "Accept-Encoding": "gzip" if gzip else "identity",
        "X-Prometheus-Scrape-Timeout-Seconds": "10",
    }
    began = time.perf_counter()
    try:
        with closing(HTTPConnection(*address, timeout=timeout)) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read()
    except HTTPException as error:
        raise ConnectionError(f"{address[0]}:{address[1]}: {error!r}") from error
    took = time.perf_counter() - began
    if response.status != 200:
        raise ValueError(f"{address[0]}:{address[1]} answered {response.status}")
    return Answer(took, (zlib.decompress(body, 31) if response.getheader("content-encoding") else body).decode())


def paced(address: Address, count: int, rng: random.Random) -> list[float]:
    """Latencies of that many scrapes, each some milliseconds after the one before it ended."""
    taken = []
    for _ in range(count):
        time.sleep(rng.uniform(SHORTEST, LONGEST))
        taken.append(scrape(address).seconds)
    return taken


def highest_hundredth(values: Sequence[float]) -> float:
    """The 99th percentile; of a single scrape, which took all of the time there was, its own."""
    return values[0] if len(values) == 1 else quantiles(values, n=100, method="inclusive")[98]


def values_of(page: str) -> dict[str, float]:
    """Values by name and labels as they stand on the page: enough to count and to look some up."""
    lines = (line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def scrape_on(address: Address) -> None:
    """Scrape until whoever started this is gone."""
    parent, due = os.getppid(), time.monotonic()
    while os.getppid() == parent:
        time.sleep(max(0.0, due - time.monotonic()))
        began, took = time.monotonic(), GIVEN_UP
        with suppress(OSError, ValueError):
            took = scrape(address, accept=TEXT).seconds
        print(f"{began:.3f} {took:.6f}", flush=True)
        due = max(due + 0.1, time.monotonic())


if __name__ == "__main__":
    prefer(os.getpid(), PRIORITY)
    scrape_on(("127.0.0.1", int(sys.argv[1])))
