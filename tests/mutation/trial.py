"""One mutant on trial: its file in the copy is replaced, its tests are run, and the file is put back."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import psutil

from tests.mutation.checkout_copy import PLACE, CheckoutCopy
from tests.mutation.choosing import stages
from tests.mutation.mutants import Mutant
from tests.mutation.names import file_of
from tests.mutation.recording import TestMap, programs_first

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
PATIENCE_SECONDS, PATIENCE_FACTOR = 60.0, 5.0
"""Tests may take so many seconds, and so many times what they took when they were recorded: the machine may be busy."""
DOUBTFUL_SECONDS = 0.5
"""A test that takes longer waits for something: when it fails it is asked again."""
MOST_MEMORY = 12 * 2**30
PASSED = (0, 5)
"""How pytest ends where nothing failed, or nothing was there to run. It may also be ended by a signal."""


@dataclass(frozen=True)
class Verdict:
    """`outcome` is killed, timeout or survived; `by` the test that noticed, or why none could."""

    outcome: str
    by: str


class Court:
    """Tries mutants in the copy, one at a time. The copy is as it was after each, whatever happens."""

    def __init__(self, copy: CheckoutCopy, known: TestMap, budget: float) -> None:
        self._copy = copy
        self._known = known
        self._budget = budget
        self._moments = count(1)
        # What a killed test started must not go on for ever: it becomes our child, and is ended with the others.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def judge(self, mutant: Mutant) -> Verdict:
        asked = 0
        with self._broken(mutant):
            for tests in stages(mutant, self._known, self._budget):
                verdict = self._ask(tests)
                if verdict is not None:
                    return verdict
                asked += len(tests)
        return Verdict("survived", f"{asked} tests" if asked else "no test runs it")

    @contextlib.contextmanager
    def _broken(self, mutant: Mutant) -> Iterator[None]:
        path = self._copy.root / mutant.path
        content, before = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.code(), encoding="utf-8")
            # Python takes what it compiled for current if the time, in seconds, and the size are: each is other here.
            moment = int(before.st_mtime) + next(self._moments)
            os.utime(path, (moment, moment))
            yield
        finally:
            path.write_bytes(content)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _ask(self, tests: list[str]) -> Verdict | None:
        limit = PATIENCE_SECONDS + PATIENCE_FACTOR * sum(self._known.seconds[test] for test in tests)
        status, failed = self._run(tests, limit)
        if status is None:
            return Verdict("timeout", f"{limit:.0f} s")
        if status in PASSED:
            return None
        if failed is None:
            return Verdict("killed", "nothing can be imported, or pytest itself is ended")
        if self._known.seconds.get(failed, 0.0) > DOUBTFUL_SECONDS:
            again, _ = self._run([failed], limit)
            if again in PASSED:
                left = tests[tests.index(failed) + 1 :]
                return self._ask(left) if left else None
        return Verdict("killed", failed)

    def _run(self, tests: list[str], limit: float) -> tuple[int | None, str | None]:
        """The status of pytest, None if it was ended for its time, and the test that failed."""
        chosen, ledger = PLACE / "chosen.txt", PLACE / "ledger.jsonl"
        chosen.write_text("\n".join(tests))
        ledger.write_text("")
        files = list(dict.fromkeys(map(file_of, tests)))
        process = subprocess.Popen(
            [self._copy.python, "-m", "pytest", "-p", "tests.mutation.plugin", "-p", "no:cacheprovider",
             "-q", "-x", "--tb=no", "--color=no", *files],
            cwd=self._copy.root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=programs_first(MUTATION_CHOSEN=str(chosen), MUTATION_LEDGER=str(ledger)), start_new_session=True,
        )  # fmt: skip
        try:
            psutil.Process(process.pid).rlimit(psutil.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_children()
            process.wait()
        rows = [json.loads(line) for line in ledger.read_text().splitlines()]
        return status, next((name for name, outcome, _ in rows if outcome == "failed"), None)


def end_children() -> None:
    """End all that a trial has started, and what that has started."""
    while True:
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, 5)
        with contextlib.suppress(ChildProcessError):  # those that were handed to us have nobody else to wait for them
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
