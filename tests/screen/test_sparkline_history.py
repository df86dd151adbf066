"""The minutes before somebody looked stand in front of those that were seen, once, and as far apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.commands.top.screen.node_samples import Sighting
from agent.commands.top.screen.view_builder import ViewKeeper
from agent.daemon.hub import RecentReadings
from agent.model import PastMoment, Snapshot
from tests.screen.scenes import played

SEEN = 4


def watched(interval: int, past: Sequence[PastMoment], late: int = 0) -> list[float | None]:
    """The history of GPU 0's power after SEEN moments; the past came with the so-manieth of them."""
    keeper, snapshots = ViewKeeper(float(interval)), played("straggler", 200)[0]
    for place in reversed(range(SEEN)):
        told = past if SEEN - 1 - place >= late else ()
        sighting = Sighting("n", "o", snapshots[-1 - place * interval], past=told)
        scene = keeper.scene([sighting], 0.0)
    return list(scene.nodes[0].gpus[0].power_history)


def powers(snapshots: Sequence[Snapshot]) -> list[float]:
    gpus = [each.readings for each in snapshots]
    name = "coldplate_gpu_power_watts"
    return [
        next(each.value for each in readings if each.metric.name == name and ("gpu", "0") in each.series.all_labels)
        for readings in gpus
    ]


def remembered() -> Sequence[PastMoment]:
    kept = RecentReadings()
    for snapshot in played("straggler", 200)[0]:
        kept.observe(snapshot)
    return kept.moments()


@pytest.mark.parametrize("late", [0, 2])
def test_what_was_before_is_put_in_front_of_what_was_seen(late: int) -> None:
    assert watched(1, remembered(), late) == powers(played("straggler", 200)[0])


def test_it_is_as_far_apart_as_what_is_seen() -> None:
    assert watched(5, remembered()) == powers(played("straggler", 200)[0][4::5])


def test_without_it_there_is_what_was_seen() -> None:
    assert watched(1, ()) == powers(played("straggler", 200)[0][-SEEN:])
