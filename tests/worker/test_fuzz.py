"""Whatever becomes of a worker's lines, the page stays true, and the GPUs are back when it is over.

A real worker speaks; its lines are dropped, doubled, cut, swapped, turned and forged on their way. COLDPLATE_FUZZ is
the number of seeds to try.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.daemon.hub import Hub
from agent.daemon.sampling import SamplingLoop
from agent.model import Instant, Kind, Snapshot
from agent.sampler.presence import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from agent.worker.supervisor import Supervisor, WorkerOptions
from agent.worker.worker_process import ChildProcess
from exporters.encoder import Encoder, Format
from tests.servers import need

SEEDS = int(os.environ.get("COLDPLATE_FUZZ", "1"))
MUTATED = 2.0
"""Seconds of mutation."""
ATOMS: list[Any] = [
    None, True, -1, 0, 1, 10**30, 1e308, float("nan"), "", "fast", "x" * 5000, "\x00", 'a"b', "{", [], {}, [[]],
]  # fmt: skip


class Mutator(ChildProcess):
    """A worker whose lines are spoilt while `spoil` is set."""

    def __init__(self, argument: str, dice: random.Random, share: float, spoil: threading.Event) -> None:
        super().__init__(argument)
        self._dice, self._share, self._spoil = dice, share, spoil
        self._seen: list[bytes] = []
        self._asked = 0
        self.spoilt = 0

    def lines(self, now: float) -> list[bytes]:
        lines = super().lines(now)
        if not self._spoil.is_set():
            return lines
        if self._asked < 4:
            self._asked += 1
            self.order(b"0 anew\n")  # so that everything is said again, and spoilt
        self._seen = (self._seen + lines)[-500:]
        out: list[bytes] = []
        for line in lines:
            if self._dice.random() >= self._share:
                out.append(line)
                continue
            self.spoilt += 1
            out += self._spoilt(line, out)
        return out

    def _spoilt(self, line: bytes, out: list[bytes]) -> list[bytes]:
        """What comes in the place of a line: less, more, another one, or a forged one."""
        dice = self._dice
        place = dice.randrange(len(line) + 1)
        turned = bytearray(line)
        for _ in range(dice.randint(1, 3)):
            turned[dice.randrange(len(turned))] ^= 1 << dice.randrange(8)
        noise = dice.randbytes(dice.randint(0, 2000)).replace(b"\n", b"")
        ways: list[list[bytes]] = [
            [], [line, line], [line[:place]], [line[place:]], [line[:place], line[place:]], [bytes(turned)],
            [dice.choice(self._seen), line], [line + dice.randbytes(50), noise], self._forged(line),
        ]  # fmt: skip
        if dice.random() < 0.1 and out:
            return [line, out.pop()]  # they change places
        return dice.choice(ways)

    def _forged(self, line: bytes) -> list[bytes]:
        """A message that some part of was changed before it got its checksum."""
        try:
            tree = json.loads(self._dice.choice(self._seen)[9:])
        except ValueError:
            return [line]
        node = tree
        while isinstance(node, list) and node:
            place = self._dice.randrange(len(node))
            if isinstance(node[place], list) and node[place] and self._dice.random() < 0.8:
                node = node[place]
                continue
            node[place] = self._dice.choice([*ATOMS, self._dice.choice(node), self._dice.randrange(10)])
            break
        body = json.dumps(tree).encode()
        return [b"%08x %b" % (crc32(body), body), line]


class Rig:
    """An engine on a real worker, and what is wrong with its pages."""

    def __init__(self, seed: int, share: float, scenario: str) -> None:
        self.dice = random.Random(seed)
        self.spoil = threading.Event()
        self.workers: list[Mutator] = []
        self.wrong: list[str] = []
        self.pages = 0
        self.page = b""
        self._encoder = Encoder()
        options = WorkerOptions("synthetic", scenario, time.monotonic(), log_level="error")

        def start(argument: str) -> Mutator:
            self.workers.append(Mutator(argument, self.dice, share, self.spoil))
            return self.workers[-1]

        self.hub = Hub()
        self.hub.follow("looking at the page", self._look)
        sampler = Sampler(Settings(fast=0.2, slow=0.6, cold=1.2), Inventory(None), "synthetic")
        self.engine = SamplingLoop(sampler, Supervisor(options, start), [], self._clock, hub=self.hub)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _clock(self) -> Instant:
        return Instant(time.monotonic(), time.time())

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _look(self, snapshot: Snapshot) -> None:
        try:
            self._take(snapshot)
        except BaseException as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _take(self, snapshot: Snapshot) -> None:
        self.pages += 1
        self.page = self._encoder.render(snapshot, Format.TEXT, 0.0)
        if self.pages % 6 == 0:
            self.wrong += faults(snapshot, self.page)

    def value(self, name: str) -> dict[str, float]:
        snapshot = self.hub.latest
        if snapshot is None:
            return {}
        return {
            dict(each.series.all_labels).get("uuid", ""): each.value
            for each in snapshot.readings
            if each.metric.name == name
        }

    def well(self) -> bool:
        """Whether all eight GPUs, and no others, gave a sample within the last second, in every lane."""
        ages = self.value("coldplate_gpu_sample_age_seconds")
        return (
            list(self.value("coldplate_gpu_up").values()) == [1] * 8
            and len(ages) == 8
            and max(ages.values()) < 1.0
            and len(self.value("coldplate_gpu_power_limit_watts")) == 8
            and len(self.value("coldplate_gpu_ecc_errors_total")) == 8
            and b'reason="timeout"' not in self.page
        )

    def until(self, holds: Callable[[], bool], seconds: float) -> float:
        began = time.monotonic()
        while not holds():
            assert not self.wrong, self.wrong[:5]
            assert time.monotonic() - began < seconds, self.page.decode()[:3000]
            time.sleep(0.05)
        return time.monotonic() - began

    def close(self) -> None:
        self.engine.stop()
        self.thread.join(10)
        self.engine.close(time.sleep)


def faults(snapshot: Snapshot, page: bytes) -> list[str]:
    found = []
    lines = [line.rpartition(" ")[0] for line in page.decode().splitlines() if not line.startswith("#")]
    if len(set(lines)) != len(lines):
        found.append("a duplicate series")
    for reading in snapshot.readings:
        lowest, highest = reading.metric.span
        if not lowest <= reading.value <= highest or abs(reading.value) > 1e18:
            found.append(f"{reading.series!r} is {reading.value!r}")
        if reading.metric.kind is Kind.INFO and reading.value != 1:
            found.append(f"{reading.series!r} is {reading.value!r}")
    try:
        for _ in text_string_to_metric_families(page.decode()):
            pass
    except Exception as error:
        found.append(f"the page cannot be parsed: {error}")
    return found


@pytest.fixture
def rigs() -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(seed: int, share: float, scenario: str = "healthy-training") -> Rig:
        made.append(Rig(seed, share, scenario))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.mark.parametrize("share", [0.05, 0.3], ids=["now and then", "all the time"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_worker_whose_lines_are_spoilt(rigs: Callable[..., Rig], seed: int, share: float) -> None:
    rig = rigs(1000 * seed + round(100 * share), share)
    rig.until(rig.well, 30)
    counters = totals(rig.page)
    rig.spoil.set()
    until = time.monotonic() + MUTATED
    rig.until(lambda: time.monotonic() > until, 60)
    rig.spoil.clear()
    rig.until(rig.well, 30)  # a worker that was ended is to start again meanwhile
    assert sum(worker.spoilt for worker in rig.workers) > 0
    assert rig.wrong == []
    assert len(rig.workers) == 1  # it heals by itself: another process is for one that goes on and on
    fell = [name for name, value in totals(rig.page).items() if value < counters.get(name, 0)]
    assert fell == []
    promtool = need("promtool", left_out="what was tried before: the page was held against the client library alone")
    checked = subprocess.run([promtool, "check", "metrics"], input=rig.page, capture_output=True, check=False)
    assert checked.returncode in (0, 3), checked.stderr.decode()  # 3: advice on names


def totals(page: bytes) -> dict[str, float]:
    found = {}
    for line in page.decode().splitlines():
        series, _, value = line.rpartition(" ")
        if "_total" in series and not line.startswith("#") and "xid" not in series:
            found[series] = float(value)
    return found
