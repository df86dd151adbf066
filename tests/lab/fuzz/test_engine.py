"""The engine finds what there is to be found: a crash behind several steps, a hang, and what ends the process."""

import os
import tracemalloc
from pathlib import Path

import pytest

from agent.lib import wording
from tests.lab.fuzz import search as searching
from tests.lab.fuzz.search import Engine
from tests.lab.fuzz.target import Target, attempt


def target(use, **options) -> Target:
    return Target("planted", (), use, **{"seeds": (b"a seed",), **options})


def test_it_goes_on_from_what_reached_new_lines(tmp_path: Path) -> None:
    """Each letter alone is found soon; all three at once never would be, but for the lines between them."""

    def use(data: bytes, folder: Path) -> None:
        if b"X" in data:
            wording.one_line("a", 5)
            if b"XY" in data:
                wording.one_line("\0", 5)
                if b"XYZ" in data:
                    raise KeyError("found")

    engine = Engine(target(use, words=(b"X", b"Y", b"Z")), 12, tmp_path)
    for _ in range(200):
        if not engine.crashes:
            engine.search(60.0, 20)
    (crash,) = engine.crashes.values()
    assert b"XYZ" in crash.data
    assert crash.what == "KeyError: 'found'"


def test_time_memory_and_words_are_bounded(tmp_path: Path) -> None:
    def hang(data: bytes, folder: Path) -> None:
        while True:
            try:
                wording.one_line("a", 5)
            except Exception:
                continue

    def refuse(data: bytes, folder: Path) -> None:
        raise ValueError(f"{folder}: \x1b[2J")

    tracemalloc.start(1)
    try:
        found = [
            attempt(each, b"", tmp_path / "input")
            for each in (
                target(hang, seconds=0.05),
                target(lambda data, folder: bytes(3 << 20), mebibytes=2),
                target(refuse, refusals=(ValueError,), named=True),
            )
        ]
    finally:
        tracemalloc.stop()
    words = ("took more than 0.05 s of CPU time", "took 3 MiB", "a refusal that no terminal should get")
    assert [word in (crash.what if crash else "") for word, crash in zip(words, found, strict=True)] == [True] * 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # pytest's workers have threads
def test_what_ends_the_process_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "CORPUS", tmp_path / "corpus")
    outcome = searching.search(target(lambda data, folder: os._exit(7)), 1, 5.0, 10)
    ((path, crash),) = outcome.crashes
    assert crash.what == "ended the process: 7"
    assert path.read_bytes() == b"a seed"
