"""What the tests show: scenarios played to a second, faster than time passes, as the view sees them."""

import functools
from collections.abc import Sequence

from agent.backends.synthetic.loader import load_scenario
from agent.commands.top.screen.node_samples import NodeSample
from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper
from agent.model import Alert, Snapshot
from exporters.headlines import Headline
from tests.lab.score.play import Play, load_pack

NODE = "node7"
PAST_SECONDS = {"straggler": 900, "thermal-throttle": 420}
"""Seconds that rules have seen of a scenario: GpuImbalance learns over ten minutes whether a job's GPUs keep step."""
SEEN_SECONDS = 70
"""The last seconds of a play that the view has seen: more than the minute over which errors are counted."""


@functools.cache
def played(scenario: str, second: int, rules: bool = False) -> tuple[tuple[Snapshot, ...], tuple[Alert, ...] | None]:
    """The last snapshots of a scenario up to a second, and the conditions of then; None without rules."""
    past = PAST_SECONDS.get(scenario, SEEN_SECONDS + 30)  # an XID is remembered for longer than the view has looked
    begins = max(0, second - past)
    play = Play(load_scenario(scenario), load_pack() if rules else (), begins=begins)
    snapshots = tuple(play.snapshots(second))[-SEEN_SECONDS:]
    alerts = tuple(play.conditions()) if rules else None
    play.close()
    return snapshots, alerts


@functools.cache
def scene_of(scenario: str, second: int, rules: bool = False, every: int = 1) -> ScreenData:
    """One node after it was watched."""
    return scene_of_nodes(((NODE, scenario),), second, rules, every=every)


@functools.cache
def scene_of_nodes(
    nodes: tuple[tuple[str, str], ...], second: int, rules: bool = False, silent: str = "", every: int = 1
) -> ScreenData:
    """Several nodes, by name and scenario, of which each so-manieth sample was seen; `silent` does not answer."""
    watch = ViewKeeper(1.0)
    plays = [(name, *played(scenario, second, rules)) for name, scenario in nodes]
    scene = ScreenData((), (), 1.0)
    for place in reversed(range(0, min(second, SEEN_SECONDS), every)):
        samples = [
            NodeSample(name, "from its agent", snapshots[-1 - place], alerts, mono=snapshots[-1 - place].at.mono)
            for name, snapshots, alerts in plays
        ]
        if silent:
            samples.append(NodeSample(silent, "from its agent", problem="no answer: Connection refused"))
        scene = watch.scene(samples, plays[0][1][-1 - place].at.mono)
    return scene


def texts(troubles: Sequence[Headline]) -> list[str]:
    """What is wrong, in its order."""
    return [f"{headline.tone.name} {headline.text}" for headline in troubles]
