"""A real Prometheus with chosen samples in it, asked over its HTTP API; and the samples."""

import json
import math
import random
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from alerts.promql import STALE, Labels, Storage, make_labels
from tests.protobuf import varint
from tests.servers import prometheus

# One second past a multiple of five: no step of a subquery falls on a sample, where 2.x and 3.x differ.
START = 1_700_000_001.0
SPACING = 15.0
COUNT = 81

Samples = Mapping[Labels, list[tuple[float, float]]]


def series(name: str, labels: dict[str, str], values: list[float | None]) -> tuple[Labels, list[tuple[float, float]]]:
    """One series on the grid; None is a missing sample."""
    times = (START + SPACING * index for index in range(len(values)))
    return make_labels(labels, name), [
        (at, value) for at, value in zip(times, values, strict=False) if value is not None
    ]


def _histogram() -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
    for gpu in range(2):
        for index, bound in enumerate(("0.1", "0.5", "1", "+Inf")):
            counts = [1000.0 + step * (index + 1) * (gpu + 2) for step in range(COUNT)]
            yield series("latency_bucket", {"gpu": str(gpu), "le": bound}, list(counts))


def samples() -> Samples:
    """Gauges, counters with resets, gaps, endings, NaN and infinities."""
    dice = random.Random(7)
    made = list(_histogram())
    for gpu in range(8):
        own = {"gpu": str(gpu), "node": f"n{gpu // 4}"}
        job = {"job_id": "a" if gpu < 5 else "b"}
        made.append(series("util", own, [round(dice.random(), 3) for _ in range(COUNT)]))
        made.append(series("temp", own, [float(40 + gpu + step % 7) for step in range(COUNT)]))
        made.append(series("job_info", own | job, [1.0] * COUNT))
        total = 1e6
        energy: list[float | None] = []
        for step in range(COUNT):
            total = 5e5 if step == 30 + gpu else total + dice.randrange(100, 300)
            energy.append(None if gpu == 3 and step % 6 == 2 else total)
        made.append(series("energy_total", own, energy))
    made.append(series("limit", {"node": "n0"}, [0.5] * COUNT))
    made.append(series("limit", {"node": "n1"}, [0.25] * COUNT))
    made.append(series("odd", {"kind": "nan"}, [math.nan] * COUNT))
    made.append(series("odd", {"kind": "inf"}, [math.inf] * COUNT))
    made.append(series("odd", {"kind": "minus"}, [-math.inf] * COUNT))
    made.append(series("odd", {"kind": "mixed"}, [math.nan if i % 3 else float(i) for i in range(COUNT)]))
    made.append(series("odd", {"kind": "zero"}, [0.0] * COUNT))
    made.append(series("odd", {"kind": "negative"}, [-2.5 - i / 8 for i in range(COUNT)]))
    made.append(series("ends", {"how": "gap"}, [float(i) for i in range(50)]))
    made.append(series("ends", {"how": "marker"}, [*map(float, range(50)), STALE]))
    made.append(series("ends", {"how": "returns"}, [1.0] * 40 + [STALE] + [None] * 10 + [2.0] * 30))
    return dict(made)


def filled(of: Samples) -> Storage:
    """The samples in our own storage."""
    storage = Storage()
    for labels, points in of.items():
        for at, value in points:
            storage.append(labels, at, value)
    return storage


def _field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def _write_request(of: Samples) -> bytes:
    """A remote-write request in protobuf; each sample its own entry, in the order of time."""
    body = b""
    for labels, points in of.items():
        pairs = b"".join(_field(1, _field(1, n.encode()) + _field(2, v.encode())) for n, v in labels)
        for at, value in points:
            sample = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(round(at * 1000))
            pairs += _field(2, sample)
        body += _field(1, pairs)
    return body


def _snappy(body: bytes) -> bytes:
    """Snappy's framing without its compression: literals only."""
    out = varint(len(body))
    for start in range(0, len(body), 60_000):
        part = body[start : start + 60_000]
        out += bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part
    return out


class Oracle:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def write(self, of: Samples) -> None:
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        # Samples of one request are taken series by series: write in slices of time, for none may be too old.
        request = urllib.request.Request(f"{self.url}/api/v1/write", _snappy(_write_request(of)), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()

    def ask(self, query: str, at: float) -> object:
        """The result in Prometheus's JSON, or the text of its error."""
        body = urllib.parse.urlencode({"query": query, "time": f"{at:.3f}"}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query", body, timeout=10) as answer:
                # A text in a query may be no UTF-8, and Prometheus gives its bytes as they are.
                return json.loads(answer.read().decode(errors="replace"))["data"]
        except urllib.error.HTTPError as error:
            with error:
                return str(json.load(error)["error"])


@contextmanager
def running(executable: str, folder: Path, settings: str = "") -> Iterator[Oracle]:
    """Start a Prometheus that scrapes nothing and takes remote writes; `settings` are more of its configuration."""
    config = "global:\n  evaluation_interval: 1m\n" + settings
    options = ("--log.level=error", "--web.enable-remote-write-receiver")
    with prometheus(config, folder, executable, *options) as url:
        yield Oracle(url)
