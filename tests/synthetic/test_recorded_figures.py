"""Each shipped scenario plays what is recorded beside this file, in every version and on every machine.

Rules are scored and dashboards judged on scenarios: figures that changed unnoticed would be taken for a change of the
rule. After a change that is meant: `python -m tests.synthetic.test_recorded_figures` records them again.
"""

import json
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from agent.backends.protocol import DeviceError
from agent.backends.synthetic import SyntheticSource, load_scenario, shipped_names
from agent.model import Instant, Lane

RECORDED = Path(__file__).with_name("recorded_figures.json")
MOMENTS = (40.0, 130.5, 340.0)
"""Seconds of a scenario: before most faults begin, while they last, and after the first are over."""
PLAYED = [name for name in shipped_names() if name != "driver-hang"]
"""Those whose reads return."""


def weight(identity: object) -> float:
    """A weight of its own for each series, so that no two can be taken for each other in a sum."""
    return 1 + crc32(repr(identity).encode()) / 2**32


def figures(name: str) -> dict[str, float]:
    """A weighted sum of each metric over all series and moments; the same of what is missing, by its reason."""
    source = SyntheticSource(load_scenario(name), 0.0)
    found: defaultdict[str, float] = defaultdict(float)
    try:
        channels = source.open(Instant(0.0, 1e9))
        for at in MOMENTS:
            for place, channel in enumerate(channels):
                for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
                    try:
                        sample = channel.read(lane, Instant(at, 1e9 + at))
                    except DeviceError as error:
                        found[f"failed: {error.reason.value}"] += weight((at, place, lane.value))
                        continue
                    for series, value in sample.readings:
                        found[series.metric.name.removeprefix("coldplate_")] += value * weight((at, series))
                    for gap in sample.gaps:
                        found[f"missing: {gap.reason.value}"] += weight((at, gap.metric.name, gap.entity))
    finally:
        source.close()
    return {metric: float(f"{found[metric]:.7g}") for metric in sorted(found)}


@pytest.mark.parametrize("name", PLAYED)
def test_a_scenario_plays_what_was_recorded_of_it(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    assert figures(name) == pytest.approx(recorded, rel=1e-6)


if __name__ == "__main__":
    rows = [f" {json.dumps(name)}: {json.dumps(figures(name))}" for name in PLAYED]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
