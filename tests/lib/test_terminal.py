"""What people see: colours where a terminal shows them, and times."""

import io

import pytest

from agent.lib.commandline import takes_colour
from agent.lib.wording import utc


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_whose_user_has_not_refused_them(
    stream: io.StringIO, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert takes_colour(stream) is coloured


@pytest.mark.parametrize(
    ("wall", "written"),
    [(0.0, "1970-01-01T00:00:00Z"), (1_700_000_000.9, "2023-11-14T22:13:20Z"), (1e300, f"{1e300:.0f} s")],
)
def test_times_are_written_in_utc_and_impossible_ones_as_they_are(wall: float, written: str) -> None:
    assert utc(wall) == written
