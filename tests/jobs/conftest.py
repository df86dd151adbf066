"""A rig: a node with GPUs, a procfs and the backend that finds the jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    if made.backend is not None:
        made.backend.close()
