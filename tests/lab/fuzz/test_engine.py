"""The engine finds what there is to be found: a crash behind several steps, a hang, a flood, words without the file."""

from __future__ import annotations

import os
import signal
import tracemalloc
from pathlib import Path

import pytest

from agent.lib import wording
from tests.lab.fuzz import search as searching
from tests.lab.fuzz.coverage_map import CoverageMap
from tests.lab.fuzz.engine import Engine
from tests.lab.fuzz.target import Target, joined, unpack
from tests.lab.fuzz.trial import attempt


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

    engine = Engine(target(use, words=(b"X", b"Y", b"Z")), 1, tmp_path / "input")
    engine.begin()
    for _ in range(200):
        if not engine.crashes:
            engine.search(60.0, 20)
    (crash,) = engine.crashes.values()
    assert b"XYZ" in crash.data
    assert crash.what == "KeyError: 'found'"
    assert engine.found


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    tried: list[list[bytes]] = []
    for _ in range(2):
        engine = Engine(target(lambda data, folder: None), 7, tmp_path / "input")
        tried.append([])
        engine.tell(tried[-1].append)
        engine.begin()
        engine.search(60.0, 50)
    assert tried[0] == tried[1]
    assert len(tried[0]) == 51


def test_an_input_that_takes_too_long(tmp_path: Path) -> None:
    def use(data: bytes, folder: Path) -> None:
        while True:
            try:
                wording.one_line("a", 5)
            except Exception:
                continue

    crash = attempt(target(use, seconds=0.05), b"", tmp_path / "input")
    assert crash is not None
    assert crash.what == "TooSlowError: took more than 0.05 s of CPU time"
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL


def test_an_input_that_takes_too_much_memory(tmp_path: Path) -> None:
    tracemalloc.start(1)
    try:
        crash = attempt(target(lambda data, folder: bytes(3 << 20), mebibytes=2), b"", tmp_path / "input")
    finally:
        tracemalloc.stop()
    assert crash is not None
    assert crash.what == "took 3 MiB; the bound is 2"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("{folder}/a: is wrong", ""),
        (" ", "a refusal without words"),
        ("{folder}: \x1b[2J", "a refusal that no terminal should get"),
        ("{folder}: " + "x" * 3000, "a refusal with a line of more than 2500 characters"),
        ("is wrong", "a refusal that does not name the file"),
    ],
)
def test_words_of_a_refusal(tmp_path: Path, words: str, problem: str) -> None:
    def use(data: bytes, folder: Path) -> None:
        raise ValueError(words.format(folder=folder))

    crash = attempt(target(use, refusals=(ValueError,), named=True), b"", tmp_path / "input")
    assert (crash is None) == (problem == "")
    assert crash is None or problem in crash.what


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # pytest's workers have threads
def test_what_ends_the_process_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(searching, "FOUND", tmp_path / "found")

    def use(data: bytes, folder: Path) -> None:
        os._exit(7)

    outcome = searching.search(target(use), 1, 5.0, 10, 0)
    ((path, crash),) = outcome.crashes
    assert crash.what == "ended the process: 7"
    assert path.read_bytes() == b"a seed"


def test_a_map_tells_what_is_new() -> None:
    seen = CoverageMap()
    seen.run(lambda: wording.one_line("a", 5))
    assert seen.take()
    seen.run(lambda: wording.one_line("a", 5))
    assert not seen.take()
    seen.run(lambda: wording.one_line("\0", 5))
    assert seen.take()
    assert seen.files == {"agent/lib/wording.py"}


def test_files_of_an_input_stay_in_its_folder(tmp_path: Path) -> None:
    data = joined({"a/b": "1\n", "../../c": "2", "/d": b"\xff"}) + b"=== a\nnot where a folder is"
    folder = tmp_path / "x" / "y" / "input"
    folder.mkdir(parents=True)
    unpack(data, folder)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"x/y/input/a/b": b"1\n\n", "x/y/input/c": b"2\n", "x/y/input/d": b"\xff\n"} or found == {
        "x/y/input/a/b": b"1\n",
        "x/y/input/c": b"2",
        "x/y/input/d": b"\xff",
    }
