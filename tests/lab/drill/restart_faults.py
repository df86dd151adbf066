"""The daemon is killed at any moment, and another takes its place: what is written is what the other one knows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.lab.drill.drilled_daemon import Drill
from tests.lab.drill.fault import Fault

TIMES = 6
LONGEST_SECONDS = 4.0
"""Seconds after the start within which it is killed: while it reads its state, writes it, makes its first page."""
AGAIN = "the alerts are active since when they were, all devices are back"
ANEW = "said in the log, what is damaged begins anew, all else goes on"


def _kill_at(seconds: float) -> Callable[[Drill], object]:
    def strike(drill: Drill) -> None:
        drill.kill_and_restart()
        time.sleep(seconds)
        drill.kill_and_restart()

    return strike


def _damaged(harm: Callable[[bytes], bytes]) -> Callable[[Drill], object]:
    def spoil(folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(harm(path.read_bytes()))

    return lambda drill: drill.kill_and_restart(lambda: spoil(drill.state))


def restarts(seed: int) -> Iterator[Fault]:
    """Faults of a daemon of their own, the moments from this seed."""
    moments = random.Random(seed)
    for number in range(1, TIMES + 1):
        seconds = round(moments.uniform(0.0, LONGEST_SECONDS), 2)
        title = f"killed, and again {seconds} s after the next start ({number})"
        yield Fault(title, AGAIN, _kill_at(seconds), device=True, answers=False)
    for title, harm in (
        ("cut in half", lambda content: content[: len(content) // 2]),
        ("empty", lambda content: b""),
        ("full of garbage", lambda content: b"\xff\x00{[" * 1000),
    ):
        yield Fault(f"killed, its state files {title}", ANEW, _damaged(harm), device=True, answers=False, forgets=True)
