"""Plays rules over recordings, for the commands that tell what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.config.schema import Config
    from agent.recording.recording_reader import Recording
    from alerts.backtest.play import NodePlay
    from alerts.engine import Ruleset


class UnreadableRulesError(Exception):
    """Rules cannot be read; the lines say why."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


def load_files(entries: Sequence[str], config: Config) -> Ruleset:
    """Rule files as they are: the configuration changes those only that it names."""
    from agent.wiring.identity import external_labels, external_url
    from alerts import packs
    from alerts.engine import Ruleset
    from alerts.group_evaluator import TemplateContext
    from alerts.rulefile import RuleFileError

    interval = config.rules.interval
    try:
        files = packs.load_all(entries, None, interval)
    except RuleFileError as error:
        raise UnreadableRulesError(*map(str, error.problems)) from error
    except ValueError as error:
        raise UnreadableRulesError(str(error)) from error
    context = TemplateContext(external_labels(config), external_url(config))
    return Ruleset(files, interval, context, int(config.rules.memory))


def play(
    recordings: Sequence[Recording], versions: Sequence[Ruleset], config: Config, nodes: dict[str, NodePlay]
) -> None:
    """Play all nodes, which are put into the mapping under their names. Raises RecordingError."""
    from agent.lib.clock import clock
    from agent.lib.progress import Progress
    from agent.lib.wording import utc
    from agent.recording.node_merge import by_time

    total = sum(span.count for recording in recordings for span in recording.survey())
    with Progress("playing", total, lambda: clock().mono) as progress:
        for header, snapshot in by_time(recordings):
            node = nodes.get(header.node)
            if node is None:
                node = nodes[header.node] = _node_play(header.node, versions, config, header.interval)
            node.take(snapshot)
            wall = snapshot.at.wall
            progress.step(lambda wall=wall: utc(wall))  # type: ignore[misc]  # wall is bound


def _node_play(name: str, versions: Sequence[Ruleset], config: Config, period: float) -> NodePlay:
    from msgspec.structs import replace

    from agent.wiring.identity import target_labels
    from alerts.backtest.play import NodePlay, RulePlay

    target = target_labels(replace(config, node=replace(config.node, name=name)))
    return NodePlay(name, [RulePlay(name, rules, target) for rules in versions], versions[0].interval, period)
