"""Searches for inputs that crash a target: mutates what reached new lines, and keeps what reaches more."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.lab.fuzz.coverage_map import CoverageMap, Step
from tests.lab.fuzz.mutating import Mutator
from tests.lab.fuzz.target import Target
from tests.lab.fuzz.trial import Crash, attempt

LONGEST = 16 * 1024
"""Most bytes of an input: bounds are for the targets' own tests, and a short input is quicker."""
TRIMS = 24
"""Most attempts at making an interesting input shorter, and seconds that they may take together."""
TRIM_SECONDS = 0.5


class Engine:
    """One search. The same seed and the same number of executions give the same inputs."""

    def __init__(self, target: Target, seed: int, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.coverage = CoverageMap()
        self.kept: list[bytes] = []
        self.found: list[bytes] = []
        """What reached something that the corpus does not."""
        self.crashes: dict[str, Crash] = {}
        self.executions = 0
        self._dice = random.Random(f"{seed} {target.name}")
        self._told: Callable[[bytes], object] = lambda _: None

    def tell(self, told: Callable[[bytes], object]) -> None:
        """Have a function called with each input before it is used, for what ends the process."""
        self._told = told

    def begin(self, more: Iterable[bytes] = ()) -> None:
        """Use the corpus, and inputs of an earlier search."""
        for _, data in self.target.corpus():
            self.use(data)
            self.kept.append(data)
        for data in more:
            if self.use(data):
                self.kept.append(data)
                self.found.append(data)

    def search(self, seconds: float, most: int = 1 << 62) -> None:
        """Go on for as many seconds, or executions."""
        mutator = Mutator(self._dice, [*self.target.words, *tokens(self.kept)], LONGEST)
        until = time.monotonic() + seconds
        last = self.executions + most
        while time.monotonic() < until and self.executions < last:
            data = mutator.changed(self._parent(), self.kept)
            new = self.use(data)
            if new:
                data = self._trimmed(data, new)
                self.kept.append(data)
                self.found.append(data)

    def use(self, data: bytes) -> set[Step]:
        """What the input reached for the first time; a crash is remembered once for each place."""
        self.executions += 1
        self._told(data)
        crash = attempt(
            self.target, data, self.folder, lambda: self.coverage.run(lambda: self.target.use(data, self.folder))
        )
        if crash is not None:
            known = self.crashes.get(crash.where)
            if known is None or len(data) < len(known.data):
                self.crashes[crash.where] = crash
            return set()
        return self.coverage.take()

    def _parent(self) -> bytes:
        """Rather one of the last ones, since what they reached has been tried least."""
        if self._dice.random() < 0.4:
            return self.kept[-1 - min(int(self._dice.expovariate(0.2)), len(self.kept) - 1)]
        return self._dice.choice(self.kept)

    def _trimmed(self, data: bytes, wanted: set[Step]) -> bytes:
        """A shorter input that takes the same steps."""
        tries, size = 0, len(data) // 2
        until = time.monotonic() + TRIM_SECONDS
        while size and tries < TRIMS:
            at = 0
            while at < len(data) and tries < TRIMS and time.monotonic() < until:
                tries += 1
                shorter = data[:at] + data[at + size :]
                if self._takes(shorter, wanted):
                    data = shorter
                else:
                    at += size
            size = size // 2 if time.monotonic() < until else 0
        return data

    def _takes(self, data: bytes, wanted: set[Step]) -> bool:
        fresh = CoverageMap()
        self._told(data)
        crash = attempt(self.target, data, self.folder, lambda: fresh.run(lambda: self.target.use(data, self.folder)))
        return crash is None and wanted <= fresh.take()


def tokens(corpus: list[bytes]) -> list[bytes]:
    """Words of the corpus: what a parser compares with is mostly there."""
    found = {word for data in corpus[:64] for word in data[:4096].split() if 1 < len(word) < 40}
    return sorted(found)[:300]


def named(data: bytes) -> str:
    """The name of a file that holds an input."""
    return hashlib.sha256(data).hexdigest()[:12]
