"""A search in a process of its own, watched from outside: what ends or blocks a process is a finding as well."""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import select
import shutil
import signal
import struct
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.fuzz.coverage_map import CoverageMap
from tests.lab.fuzz.engine import LONGEST, Engine, named
from tests.lab.fuzz.target import CORPUS, ROOT, Target
from tests.lab.fuzz.trial import Crash, attempt

FOUND = ROOT / "build" / "fuzz"
"""What earlier searches found, by target: the next one begins with it."""
MEMORY = 1 << 30
"""Bytes of address space that a search may take beyond those it begins with."""
_STAMP = struct.Struct("dI")
_AREA = 1 << 20


@dataclass
class Outcome:
    """What a search did and found; each crash with the file that holds its input."""

    executions: int = 0
    seconds: float = 0.0
    lines: int = 0
    steps: int = 0
    new: int = 0
    crashes: list[tuple[Path, Crash]] = field(default_factory=list)


def search(target: Target, seed: int, seconds: float, executions: int, keep: int) -> Outcome:
    """Search for some time; crashes are put into the corpus, and so are `keep` of what else was found."""
    area = mmap.mmap(-1, _AREA)
    _STAMP.pack_into(area, 0, time.monotonic(), 0)
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            answer = _inside(target, seed, seconds, executions, area)
            with os.fdopen(writer, "wb") as out:
                pickle.dump(answer, out)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as source:
        answer, ended = _watch(child, source.fileno(), area, target)
    outcome = Outcome(seconds=time.monotonic() - began)
    if answer:
        outcome.executions, outcome.lines, outcome.steps, crashes, found = pickle.loads(answer)
        outcome.new = len(found)
        _save(FOUND / target.name, found)
        _save(CORPUS / target.name, _best(target, found, keep))
    else:
        _, size = _STAMP.unpack_from(area)
        crashes = [Crash(ended, "process", area[_STAMP.size : _STAMP.size + size])]
    outcome.crashes = [(_save(CORPUS / target.name, [crash.data])[0], crash) for crash in crashes]
    return outcome


def _inside(target: Target, seed: int, seconds: float, executions: int, area: mmap.mmap) -> object:
    """The search itself, in the child."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))

    def tell(data: bytes) -> None:
        kept = data[: _AREA - _STAMP.size]
        _STAMP.pack_into(area, 0, time.monotonic(), len(kept))
        area[_STAMP.size : _STAMP.size + len(kept)] = kept

    try:
        engine = Engine(target, seed, folder / "input")
        engine.tell(tell)
        before = FOUND / target.name
        engine.begin(path.read_bytes() for path in sorted(before.glob("*")) if path.stat().st_size <= LONGEST)
        engine.search(seconds, executions)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    crashes = list(engine.crashes.values())
    return engine.executions, engine.coverage.lines, len(engine.coverage.steps), crashes, engine.found


def _watch(child: int, reader: int, area: mmap.mmap, target: Target) -> tuple[bytes, str]:
    """The child's answer; empty where it ended without one, or had to be ended, and why."""
    patience = 20 * target.seconds + 20
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    answer, ended = b"", ""
    heard = 0.0
    while True:
        if poll.poll(500):
            part = os.read(reader, 1 << 20)
            if not part:
                break
            answer += part
            heard = time.monotonic()
        elif time.monotonic() - max(heard, _STAMP.unpack_from(area)[0]) > patience:
            os.kill(child, signal.SIGKILL)
            ended = f"blocked the process for {patience:g} s"
            answer = b""
            break
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return b"", ended or f"ended the process: {os.waitstatus_to_exitcode(status)}"
    return answer, ended


def _best(target: Target, found: list[bytes], keep: int) -> list[bytes]:
    """As many inputs as may be kept: each time the one that reaches most of what is not reached yet, for its length."""
    if not keep:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "input")

        def reached(data: bytes) -> set[tuple[str, int]]:
            fresh = CoverageMap()
            attempt(target, data, folder, lambda: fresh.run(lambda: target.use(data, folder)))
            return {(code.co_filename, line) for code, _, line in fresh.take()}

        known: set[tuple[str, int]] = set()
        for _, data in target.corpus():
            known |= reached(data)
        left = {data: reached(data) for data in found if len(data) <= LONGEST // 4}
    best: list[bytes] = []
    while left and len(best) < keep:
        data = max(left, key=lambda each: (len(left[each] - known), -len(each)))
        if not left[data] - known:
            break
        known |= left.pop(data)
        best.append(data)
    return best


def _save(folder: Path, inputs: list[bytes]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / named(data) for data in inputs]
    for path, data in zip(paths, inputs, strict=True):
        path.write_bytes(data)
    return paths
