"""Searches for inputs that crash a target: changes what reached new lines of the product, and goes on from what does.

Each search runs in a child process, which is watched: a crash of a C library ends it, a hang in it is ended.
"""

import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.lab.fuzz.mutating import Mutator
from tests.lab.fuzz.target import CORPUS, ROOT, Crash, Target, attempt

LONGEST = 16 * 1024
"""Most bytes of an input: bounds are for the targets' own tests, and a short input is quicker."""
PRODUCT = tuple(str(ROOT / top) + "/" for top in ("agent", "alerts", "exporters"))
STALE_CALLS = 3000
"""A function that showed nothing new for as many calls is traced no more: a search gets faster as it learns."""
MEMORY = 1 << 30
"""Bytes of address space that a search may take beyond those it begins with."""

Step = tuple[CodeType, int, int]


class Coverage:
    """The steps between lines of the product that all inputs so far have taken, by the interpreter's own tracing."""

    def __init__(self) -> None:
        self.steps: set[Step] = set()
        self._patience: dict[CodeType, int] = {}
        self._new: set[Step] = set()

    def run(self, call: Callable[[], object]) -> None:
        """Call it, and remember what was new; see `take`."""
        self._new.clear()
        before = sys.gettrace()
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            call()
        finally:
            threading.settrace(before)
            sys.settrace(before)

    def take(self) -> set[Step]:
        """The steps of the last call that no call before it took."""
        new = self._new - self.steps
        self.steps |= new
        for code, _, _ in new:
            self._patience[code] = STALE_CALLS
        return new

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        patience = self._patience.get(code)
        if patience is None:
            patience = STALE_CALLS if code.co_filename.startswith(PRODUCT) else 0
        if not patience:
            self._patience[code] = 0
            return None
        self._patience[code] = patience - 1
        last, steps, new = 0, self.steps, self._new

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                step = (code, last, frame.f_lineno)
                last = frame.f_lineno
                if step not in steps:
                    new.add(step)
            return line

        return line


class Engine:
    """One search; the file `last` gets each input first. A seed and a number of executions give the same inputs."""

    def __init__(self, target: Target, seed: int, folder: Path) -> None:
        self.target, self.folder, self.last = target, folder / "input", folder / "last"
        self.coverage = Coverage()
        self.kept: list[bytes] = []
        self.crashes: dict[str, Crash] = {}
        self.executions = 0
        self._dice = random.Random(f"{seed} {target.name}")

    def search(self, seconds: float, most: int = 1 << 62) -> None:
        """Use the corpus, then its changes, for as many seconds or executions."""
        if not self.kept:
            for _, data in self.target.corpus():
                self.use(data)
                self.kept.append(data)
        # Words of the corpus: what a parser compares with is mostly there.
        words = {word for data in self.kept[:64] for word in data[:4096].split() if 1 < len(word) < 40}
        mutator = Mutator(self._dice, [*self.target.dictionary(), *sorted(words)[:300]], LONGEST)
        until, last = time.monotonic() + seconds, self.executions + most
        while time.monotonic() < until and self.executions < last:
            data = mutator.changed(self._parent(), self.kept)
            if self.use(data):
                self.kept.append(data)

    def use(self, data: bytes) -> set[Step]:
        """What the input reached for the first time; a crash is remembered once for each place."""
        self.executions += 1
        self.last.write_bytes(data)
        run = self.target.use
        crash = attempt(self.target, data, self.folder, lambda: self.coverage.run(lambda: run(data, self.folder)))
        if crash is None:
            return self.coverage.take()
        known = self.crashes.get(crash.where)
        if known is None or len(data) < len(known.data):
            self.crashes[crash.where] = crash
        return set()

    def _parent(self) -> bytes:
        """Rather one of the last ones, since what they reached has been tried least."""
        if self._dice.random() < 0.4:
            return self.kept[-1 - min(int(self._dice.expovariate(0.2)), len(self.kept) - 1)]
        return self._dice.choice(self.kept)


class Outcome(NamedTuple):
    """What a search did and found; each crash with the file of the corpus that holds its input."""

    seconds: float
    executions: int
    steps: int
    crashes: list[tuple[Path, Crash]]


def search(target: Target, seed: int, seconds: float, executions: int = 1 << 62) -> Outcome:
    """Search for some time, in a child that is watched; inputs that crash are put into the corpus."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        engine, found = Engine(target, seed, Path(name)), Path(name, "found")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
                engine.search(seconds, executions)
                result = engine.executions, len(engine.coverage.steps), list(engine.crashes.values())
                found.write_bytes(pickle.dumps(result))
                status = 0
            finally:
                os._exit(status)
        if ended := _ended(child, engine.last, 20 * target.seconds + 20):
            done, steps = 0, 0
            crashes = [Crash(ended, "process", engine.last.read_bytes() if engine.last.exists() else b"")]
        else:
            done, steps, crashes = pickle.loads(found.read_bytes())
    return Outcome(time.monotonic() - began, done, steps, [(_save(target, crash.data), crash) for crash in crashes])


def _ended(child: int, last: Path, patience: float) -> str:
    """Why the child ended without a result, or had to be ended; empty if it has one."""
    began = time.time()
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        if time.time() - max(began, last.stat().st_mtime if last.exists() else 0.0) > patience:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"blocked the process for {patience:g} s"
        time.sleep(0.2)
    code = os.waitstatus_to_exitcode(done[1])
    return f"ended the process: {code}" if code else ""


def _save(target: Target, data: bytes) -> Path:
    path = CORPUS / target.name / sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
