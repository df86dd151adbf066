"""Times as people read them."""

from __future__ import annotations

import pytest

from agent.lib.wording import utc


@pytest.mark.parametrize(
    ("wall", "written"),
    [(0.0, "1970-01-01T00:00:00Z"), (1_700_000_000.9, "2023-11-14T22:13:20Z"), (1e300, f"{1e300:.0f} s")],
)
def test_times_are_written_in_utc_and_impossible_ones_as_they_are(wall: float, written: str) -> None:
    assert utc(wall) == written
