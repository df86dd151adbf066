"""Every kept input, through its target: none crashes, hangs or takes much memory, and each parser named is reached."""

from __future__ import annotations

import random
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.lab.fuzz.mutating import Mutator
from tests.lab.fuzz.target import ROOT, Target, attempt
from tests.lab.fuzz.targets import TARGETS

MUTATIONS = 12
"""Changed inputs for each target, always the same: `make fuzz` is for more."""

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


class Reached:
    """The files whose functions were called."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)


@EACH
def test_the_corpus(target: Target, tmp_path: Path) -> None:
    folder, reached = tmp_path / "input", Reached()
    before = sys.getprofile()
    for name, data in target.corpus():
        sys.setprofile(reached.note)
        threading.setprofile(reached.note)
        try:
            crash = attempt(target, data, folder)
        finally:
            threading.setprofile(before)
            sys.setprofile(before)
        assert crash is None, f"{name}: {crash.what}\n{crash.trace}"
    assert [module for module in target.parsers if str(ROOT / module) not in reached.files] == []


@EACH
@pytest.mark.usefixtures("traced")
def test_some_changes_of_the_corpus(target: Target, tmp_path: Path) -> None:
    corpus = [data for _, data in target.corpus() if len(data) < 16 * 1024]
    mutator = Mutator(random.Random(target.name), target.dictionary(), 16 * 1024)
    for number in range(MUTATIONS):
        data = mutator.changed(corpus[number % len(corpus)], corpus)
        crash = attempt(target, data, tmp_path / "input")
        assert crash is None, f"{data!r}: {crash.what}\n{crash.trace}"
