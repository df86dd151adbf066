"""What people see: colours and progress where a terminal shows them, and times."""

import io
from itertools import count

import pytest

from agent.lib.commandline import Progress, takes_colour
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


def test_progress_is_shown_on_a_terminal_after_a_second_and_gone_at_the_end() -> None:
    for stream, pace, told in ((Terminal(), 1, True), (Terminal(), 0, False), (io.StringIO(), 1, False)):
        seconds = count(step=pace)
        with Progress("playing", 640, lambda seconds=seconds: next(seconds), stream) as progress:
            for _ in range(320):
                progress.step(lambda: "12:00")
        last = ["playing: 50 % 12:00", " " * len("playing: 50 % 12:00"), ""]
        assert stream.getvalue().split("\r")[-3:] == (last if told else [""])


def test_what_counts_its_steps_itself_tells_the_share() -> None:
    stream = Terminal()
    seconds = iter((0.0, 0.9, 1.1, 1.2, 1.4))
    with Progress("reading", 0, lambda: next(seconds), stream) as progress:
        for share in (0.1, 0.25, 0.3, 0.5):  # the first is told too early, the third too soon after the second
            progress.reached(share)
    assert stream.getvalue() == "\rreading: 25%\rreading: 50%\r            \r"
