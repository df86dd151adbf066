"""Feeds the main process's side what a worker gone mad may say, and measures by how many MiB the process grew.

`grown` is called in a process of its own for each strategy, so that each begins with the memory of a fresh one.
"""

import gc
import logging
import os
import random
from pathlib import Path

from agent.backends.nvml.probe import metric_requests
from agent.backends.protocol import ChannelError, LaneSample
from agent.catalogue import BY_NAME
from agent.model import LANES, Gap, Gpu, GpuIdentity, Instant, Lane, NvLink, Reason, Series, Xid
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from agent.worker.supervisor import Supervisor, WorkerOptions
from agent.worker.worker_messages import (
    CHANNELS,
    EVENTS,
    MAX_LINE,
    SERIES_OF_LANE,
    TEXT,
    Hello,
    Refusal,
    encode,
    encode_events,
    encode_gaps,
    encode_identity,
    encode_series,
)
from exporters.encoder import Encoder, Format
from tests.worker.fake_process import FakeProcess

ROUNDS = 6
DICE = random.Random(7)


class Mouth(FakeProcess):
    """A worker that says what a strategy puts into its mouth."""

    def lines(self, now: float) -> list[bytes]:
        self.orders.clear()  # they are no part of what is measured
        return [line[:MAX_LINE] for line in super().lines(now)]


class Bench:
    """The main process's side: from the pipe to the page."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.mouth = Mouth(1)
        self.lives = 0
        self.supervisor = Supervisor(WorkerOptions("nvml"), self._start)
        self.sampler = Sampler(Settings(), Inventory(None), "nvml")
        self.encoder = Encoder()
        self.taken = 0
        """Messages that got through."""
        self.edition = 0
        self.layouts: dict[tuple[int, Lane], int] = {}
        self.sizes: dict[tuple[int, Lane], int] = {}

    def _start(self, argument: str) -> Mouth:
        self.mouth = Mouth(1)
        self.lives += 1
        return self.mouth

    def say(self, *lines: bytes) -> None:
        self.mouth.said += lines

    def turn(self, seconds: float = 1.0) -> None:
        self.now += seconds
        for message in self.supervisor.receive(self.now):
            if isinstance(message, Hello):
                self.taken += 1
                self.sampler.enlist(message.channels, message.unidentified, self.now)
            elif isinstance(message, LaneSample):
                self.taken += 1
                self.sampler.take_lane(message)
            elif isinstance(message, ChannelError):
                self.sampler.take_error(message)
            elif not isinstance(message, Refusal):
                self.taken += 1
                self.sampler.take_xids(message)
        self.supervisor.step(self.now)
        self.snapshot = self.sampler.snapshot(Instant(self.now, 1e9 + self.now), LoopFacts())
        self.page = self.encoder.render(self.snapshot, Format.TEXT, 0.0)

    def hello(self, identities: list[GpuIdentity]) -> None:
        line = encode("hello", "nvml", [encode_identity(each.gpu.uuid, each) for each in identities], [])
        self.say(line, line)

    def lane(self, channel: int, lane: Lane, series: list[Series]) -> None:
        """A layout and a sample by it."""
        self.edition += 1
        self.say(encode("layout", channel, lane.value, self.edition, encode_series(series)))
        self.layouts[channel, lane], self.sizes[channel, lane] = self.edition, len(series)
        self.sample(channel, lane)

    def sample(self, channel: int, lane: Lane, gaps: int = 0) -> None:
        """A sample by the layout that was said last, and by these editions."""
        editions = [self.layouts[channel, lane], gaps]
        values = [0.5] * self.sizes[channel, lane]
        self.say(encode("sample", channel, lane.value, editions, self.now + 0.5, 0.01, 7, values))


def identities(count: int, life: int = 0) -> list[GpuIdentity]:
    return [
        GpuIdentity(Gpu(str(n), f"GPU-{life:08x}-{n:04x}"), f"{life:04x}:{n:02x}:00.0", f"S{n}", "H100")
        for n in range(count)
    ]


def usual(identity: GpuIdentity) -> dict[Lane, list[Series]]:
    """Every series that NVML can give of a GPU with 18 links."""
    lanes: dict[Lane, list[Series]] = {Lane.FAST: [], Lane.SLOW: [], Lane.COLD: []}
    for want in metric_requests():
        if want.metric.labels and not want.labels:
            continue
        labels = tuple(zip(want.metric.labels, want.labels, strict=True)) if want.metric.labels else ()
        entities = [NvLink(identity.gpu, link) for link in range(18)] if want.per_link else [identity.gpu]
        lanes[want.metric.lane] += [Series(want.metric, entity, labels) for entity in entities]
    return lanes


def node(bench: Bench, count: int) -> None:
    """A worker that is well, on a node of so many GPUs."""
    bench.turn()
    gpus = identities(count)
    bench.hello(gpus)
    bench.turn()
    for channel, identity in enumerate(gpus):
        for lane, series in usual(identity).items():
            bench.lane(channel, lane, series)
    for _ in range(3):
        bench.turn()


def churn(bench: Bench) -> None:
    """Other label values each time, as many as a lane may have."""
    row = BY_NAME["coldplate_gpu_mig_memory_used_bytes"]
    for channel, identity in enumerate(identities(8)):
        series = [
            Series(row, identity.gpu, (("mig_uuid", f"{DICE.random()}" * 12), ("gpu_instance", str(n))))
            for n in range(SERIES_OF_LANE // 2)
        ]
        bench.lane(channel, Lane.SLOW, series)


def lives(bench: Bench) -> None:
    """Another node each time that the worker starts, and it ends at once."""
    bench.hello(identities(CHANNELS, 1 + DICE.randrange(2**16)))
    bench.turn()
    bench.mouth.ended = 1
    for _ in range(12):
        bench.turn()


def texts(bench: Bench) -> None:
    """Gaps with reasons as long as they may be."""
    rows = [BY_NAME[name] for name in ("coldplate_gpu_power_watts", "coldplate_gpu_sm_active_ratio")]
    for channel, identity in enumerate(identities(8)):
        for lane in LANES:
            gaps = [Gap(DICE.choice(rows), identity.gpu, DICE.choice(list(Reason)), f"{DICE.random():.18f}" * 25)] * 300
            bench.edition += 1
            bench.say(encode("gaps", channel, lane.value, bench.edition, encode_gaps(gaps)))
            bench.sample(channel, lane, gaps=bench.edition)
        bench.say(encode("error", channel, "fast", bench.now + 0.6, "lost", f"{DICE.random()}" * (TEXT // 20)))


def events(bench: Bench) -> None:
    """XID errors of every code, of GPUs that are there and of others."""
    bench.edition += 1
    devices = [each.gpu.uuid for each in identities(8)] + [f"GPU-{DICE.random()}" for _ in range(100)]
    rows = [Xid(DICE.choice(devices), DICE.randrange(2**31), 1e9 + bench.now, "nvml", "x" * 100) for _ in range(EVENTS)]
    bench.say(encode_events(bench.edition, rows))


def largest(bench: Bench) -> None:
    """A node of more GPUs than there are, with all that they can have."""
    if bench.lives == 1:
        bench.mouth.ended = 1
        bench.turn()
        bench.turn()
        node(bench, CHANNELS)


STRATEGIES = {each.__name__: each for each in (churn, lives, texts, events, largest)}


def resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def grown(strategy: str) -> tuple[float, int]:
    """Return the growth in MiB, and how many messages were taken."""
    logging.disable(logging.CRITICAL)
    bench = Bench()
    node(bench, 8)
    before, highest = resident(), 0.0
    for _ in range(ROUNDS if strategy != "largest" else 3):
        STRATEGIES[strategy](bench)
        bench.turn()
        highest = max(highest, resident() - before)
    return highest, bench.taken
