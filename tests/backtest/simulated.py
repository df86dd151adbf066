"""Scenarios that are recorded in simulated time, with what their rules said live; and alerts in a form to compare."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.backends.synthetic import load_scenario
from agent.catalogue import BY_NAME
from agent.model import Framer, Gpu, Instant, Labels, Phase, Reading, Series, Snapshot
from alerts import rulefile
from alerts.engine import Ruleset
from tests.lab.score.play import Play, load_pack
from tests.recording.played import record

TEMPERATURE = BY_NAME["coldplate_gpu_temperature_celsius"]


class Lived(NamedTuple):
    """An alert that fired, in wall seconds; `ended` is None if it still does."""

    labels: Labels
    active: float
    fired: float
    ended: float | None


@functools.cache
def lived(scenario: str, seconds: int) -> tuple[tuple[Snapshot, ...], frozenset[Lived]]:
    """The snapshots of a scenario, and the alerts that its rules had second after second."""
    play = Play(load_scenario(scenario), load_pack())
    seen: dict[tuple[str, Labels, float], Lived] = {}
    snapshots = []
    for snapshot in play.snapshots(seconds):
        snapshots.append(snapshot)
        for key, group in play.engine.groups():
            for alert in group.alerts():
                if alert.phase is not Phase.PENDING and alert.fired_at is not None:
                    told = Lived(alert.labels, alert.active_at, alert.fired_at, alert.resolved_at)
                    seen[key, alert.labels, alert.active_at] = told
    play.close()
    return tuple(snapshots), frozenset(seen.values())


def recorded(folder: Path, scenario: str, seconds: int, node: str = "node") -> Path:
    """A recording of a scenario; its rules saw the node as `node:19400`."""
    return record(folder / f"{scenario}-{node}.coldplate", lived(scenario, seconds)[0], node)


def heat(celsius: Iterable[float | None], *, start: float = 0.0, sequence: int = 1, gpu: str = "0") -> list[Snapshot]:
    """A snapshot a second with one GPU's temperature; None leaves the snapshot out, and its number too."""
    framer, series = Framer(), Series(TEMPERATURE, Gpu(gpu, f"GPU-{gpu}"))
    return [
        Snapshot(
            sequence + second,
            Instant(1000.0 + start + second, 1_700_000_000.0 + start + second),
            (framer.frame((Reading(series, value),)),),
        )
        for second, value in enumerate(celsius)
        if value is not None
    ]


def rules(folder: Path, *alerts: str, name: str = "rules.yml", interval: str = "1s") -> Path:
    """A rule file with alerts, each a line `Name: expression` with more lines of YAML behind it."""
    blocks = []
    for alert in alerts:
        (title, _, expression), *more = alert.split("\n")[0].partition(": "), *alert.split("\n")[1:]
        blocks.append("\n".join([f"  - alert: {title}", f"    expr: {expression}", *(f"    {each}" for each in more)]))
    path = folder / name
    path.write_text(f"groups:\n- name: heat\n  interval: {interval}\n  rules:\n" + "\n".join(blocks) + "\n")
    return path


def ruleset(*paths: Path) -> Ruleset:
    return Ruleset(tuple(rulefile.load(path, default_step=1.0) for path in paths))


def temperatures(*parts: tuple[float | None, int]) -> Sequence[float | None]:
    """So many seconds of each temperature."""
    return [value for value, seconds in parts for _ in range(seconds)]
