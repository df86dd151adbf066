"""Plays the error ratios of a labelled optical line through the rules of ports."""

import csv
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import Node, Reading, Series
from alerts.rulefile import RuleFile
from tests.lab.bench.report import markdown
from tests.lab.score.play import played

ABOUT, RULES = "light", "optics"
"""The page and the rule file."""
PARTS = {
    "HardFailure_dataset.csv": ((0, "normal"), (1623416338, "attenuated"), (1623423687, "failures of 10 s")),
    "SoftFailure_dataset.csv": ((0, "attenuated"), (1624471536, "failures of 1 min")),
}
"""What the authors did from each second on, by file: seconds since the epoch, from the dataset's README."""
LINES = ("SPO1", "SPO2")
RATE = 100e9 / 8
"""Bytes a second of a line, in one direction."""
CORRECTABLE = 2.4e-4
"""Share of the bits that RS(544,514) corrects (IEEE 802.3)."""


class Light(NamedTuple):
    """A reading of a line. `ratio` of bits received wrong, before correction; None without a signal."""

    at: int
    ratio: float | None
    is_failure: bool


class Outcome(NamedTuple):
    """What the rules said of one line in one part. Seconds since the part's first failure, or since its begin."""

    file: str
    part: str
    line: str
    lights: Sequence[Light]
    alerts: dict[str, int]


def lights_of(path: Path) -> dict[str, list[Light]]:
    """Return the readings of each line. Raises OSError, KeyError and ValueError for a file of another form."""
    found: dict[str, list[Light]] = {line: [] for line in LINES}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            line = row["ID"].partition("/")[0]
            if line in found and row["BER"]:
                ratio = float(row["BER"]) if float(row["OSNR"]) else None
                found[line].append(Light(int(row["Timestamp"]), ratio, row["Failure"] == "1"))
    return {line: sorted(lights) for line, lights in found.items()}


class _Port:
    """The counters of a port on a line."""

    def __init__(self, line: str, lights: Sequence[Light]) -> None:
        self.lights, self.times = lights, [light.at for light in lights]
        names = (
            "rate_bytes_per_second",
            "link_down_events_total",
            "fec_corrected_bit_errors_total",
            "fec_uncorrectable_blocks_total",
        )
        self._series = [Series(BY_NAME[f"coldplate_ethernet_{name}"], Node(), (("device", line),)) for name in names]
        self._downs, self._bits, self._blocks = 0.0, 0.0, 0.0
        self._last = -1

    def readings(self, second: int) -> list[Reading]:
        """Return what the port shows a second later. To be called for each second in turn."""
        place = max(bisect_right(self.times, second) - 1, 0)
        ratio = self.lights[place].ratio
        if place != self._last:
            self._downs += ratio is None and (self._last < 0 or self.lights[self._last].ratio is not None)
            self._blocks += ratio is not None and ratio > CORRECTABLE
            self._last = place
        self._bits += 8 * RATE * min(ratio or 0.0, CORRECTABLE)
        values = (RATE, self._downs, float(int(self._bits)), self._blocks)
        shown = [Reading(series, value) for series, value in zip(self._series, values, strict=True)]
        return shown if ratio is not None else shown[1:]  # a link that is down has no rate


def play(path: Path, rules: RuleFile) -> Iterator[Outcome]:
    """Yield what the rules said of each line in each part of a file."""
    ports = {line: _Port(line, lights) for line, lights in lights_of(path).items()}
    first, last = (end(port.times[place] for port in ports.values()) for end, place in ((min, 0), (max, -1)))
    starts = [(max(since, first), name) for since, name in PARTS[path.name]]
    shown = (
        [reading for port in ports.values() for reading in port.readings(second)] for second in range(first, last + 1)
    )
    began: dict[tuple[str, str], list[int]] = {}
    for second, alert in played(rules, shown, first):
        labels = dict(alert.labels)
        name = " ".join(filter(None, (alert.rule, labels.get("kind"))))
        began.setdefault((labels["device"], name), []).append(first + second)
    for (since, part), (until, _) in zip(starts, [*starts[1:], (last + 1, "")], strict=True):
        for line, port in ports.items():
            lights = [light for light in port.lights if since <= light.at < until]
            origin = next((light.at for light in lights if light.is_failure), since)
            alerts = {
                name: next(at for at in times if since <= at < until) - origin
                for (device, name), times in began.items()
                if device == line and any(since <= at < until for at in times)
            }
            yield Outcome(path.stem, part, line, lights, alerts)


def _row(outcome: Outcome) -> tuple[str, ...]:
    ratios = [light.ratio for light in outcome.lights if light.ratio is not None]
    hours = (outcome.lights[-1].at - outcome.lights[0].at) / 3600
    marked = sum(light.is_failure for light in outcome.lights) / len(outcome.lights)
    alerts = ", ".join(f"{name} after {seconds} s" for name, seconds in sorted(outcome.alerts.items())) or "none"
    spread = f"{statistics.median(ratios):.1e}, {max(ratios):.1e}"
    return outcome.file, outcome.part, outcome.line, f"{hours:.1f}", f"{marked:.0%}", spread, alerts


_HEADS = (
    "file",
    "what its authors did",
    "line",
    "hours",
    "readings marked as failure",
    "error ratio: median, highest",
    "alerts that began to fire, after the first failure or the part's begin",
)


def report(folder: Path, rules: RuleFile, say: Callable[[str], object]) -> str:
    """Return the page's table, "" where the folder does not hold the dataset; `say` is called with what is played."""
    if not all((folder / file).is_file() for file in PARTS):
        return ""
    rows = []
    for file in PARTS:
        say(f"{file} ...")
        rows += [_row(outcome) for outcome in play(folder / file, rules)]
    return markdown(_HEADS, rows)
