"""Rigs: a node with GPUs, a procfs and the backend that finds the jobs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jobs.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    if made.backend is not None:
        made.backend.close()


@pytest.fixture
def make_rig(tmp_path: Path) -> Callable[[str], Rig]:
    """Rigs beside each other, for tests that are given many examples."""
    return lambda name: Rig(tmp_path / name)
