"""Plays rules over recordings, node by node: for `rules backtest` and `report`.

Rules come as configured, or from files as they are. Each node is played as its own agent would evaluate it, with the
labels of that agent by the configuration, and effects are marked with their causes.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from msgspec.structs import replace

from agent.config.schema import Config
from agent.lib.clock import clock
from agent.lib.commandline import Progress
from agent.lib.wording import one_line, utc
from agent.recording.recording_reader import Recording, by_time
from agent.recording.report.observation import (
    Judgement,
    Observation,
    PendingAlert,
    UnjudgedRule,
    in_order,
    pending_in_order,
)
from agent.wiring.alerting import load_rules, make_ruleset
from agent.wiring.identity import external_labels, target_labels
from alerts import packs
from alerts.backtest.coverage import coverage_of
from alerts.backtest.play import AlertSpan, NodePlay, RulePlay
from alerts.engine import Ruleset
from alerts.promql.labels import make_labels


def load_files(entries: Sequence[str], config: Config) -> Ruleset:
    """Load rule files as they are: the configuration changes only those it names. Raises RuleFileError, ValueError."""
    return make_ruleset(config, packs.load_all(entries, None, config.rules.interval))


def load_with_advice(config: Config, folder: Path) -> Ruleset:
    """Load the configured rules, and with the pack also those of it that are off by default. Raises ConfigError."""
    files = config.rules.files
    if packs.BUILTIN in files and packs.ADVICE not in files:
        config = replace(config, rules=replace(config.rules, files=(*files, packs.ADVICE)))
    return load_rules(config, folder)


class RecordedPlay:
    """Versions of rules, which are played over recordings. `nodes` has what became of each node, by its name."""

    def __init__(self, versions: Sequence[Ruleset], config: Config) -> None:
        self.versions = versions
        self.nodes: dict[str, NodePlay] = {}
        self._config = config

    def play(self, recordings: Sequence[Recording]) -> None:
        """Play all snapshots in the order of time, with a line of progress. Raises RecordingError."""
        total = sum(span.count for recording in recordings for span in recording.survey())
        with Progress("playing", total, lambda: clock().mono) as progress:
            for header, snapshot in by_time(recordings):
                node = self.nodes.get(header.node)
                if node is None:
                    node = self.nodes[header.node] = self._node(header.node, header.interval)
                node.play_until(snapshot)
                wall = snapshot.at.wall
                progress.step(lambda wall=wall: utc(wall))  # type: ignore[misc]  # wall is bound

    def _node(self, name: str, period: float) -> NodePlay:
        config = replace(self._config, node=replace(self._config.node, name=name))
        target, external = target_labels(config), make_labels(external_labels(config))
        plays = [
            RulePlay(name, rules, target, inhibition=config.notify.inhibition, external=external)
            for rules in self.versions
        ]
        return NodePlay(name, plays, self.versions[0].interval, period)

    def judgement(self) -> Judgement:
        """Return what the first version of the rules says of all nodes together."""
        nodes = [self.nodes[name] for name in sorted(self.nodes)]
        seconds = max((node.last - node.first for node in nodes if node.first is not None), default=0.0)
        metrics = {name for node in nodes for name in node.metrics}
        coverage = coverage_of(self.versions[0], {*metrics, *_OF_ENGINE}, seconds)
        failures = [
            f"Rule {failure.rule} of {failure.group} failed on {one_line(node.node, 64)} ({failure.count} times, "
            f"first at {utc(failure.first_at)}): {one_line(failure.error, 200)}"
            for node in nodes
            for failure in node.plays[0].failures()
        ]
        observations = in_order(observation for node in nodes for observation in _observations(node))
        pending = pending_in_order(alert for node in nodes for alert in _pending_alerts(node))
        short, unread = ([UnjudgedRule(*names) for names in rules] for rules in (coverage.short, coverage.unread))
        return Judgement(observations, coverage.rules, short, unread, failures, pending,
                         sum(node.snapshots for node in nodes))  # fmt: skip


_OF_ENGINE = ("coldplate_sample_age_seconds",)
"""What the engine makes itself: no recording has it."""


def _observations(node: NodePlay) -> Iterator[Observation]:
    """Yield the alerts that fired on a node, each with all times at which it did."""
    fired = [span for span in node.plays[0].spans() if span.fired]
    fired.sort(key=attrgetter("alert", "labels", "fired_at"))
    for (alert, labels), group in groupby(fired, key=attrgetter("alert", "labels")):
        spans = list(group)
        ends = [node.last if span.ended_at is None else span.ended_at for span in spans]
        begins = [span.fired_at or 0.0 for span in spans]
        yield Observation(
            alert,
            node.node,
            dict(labels),
            dict(spans[0].annotations),
            begins[0],
            ends[-1],
            seconds=sum(end - begin for begin, end in zip(begins, ends, strict=True)),
            times=len(spans),
            fires_at_end=spans[-1].ended_at is None,
            inhibited_by=_cause_of(spans),
        )


def _pending_alerts(node: NodePlay) -> Iterator[PendingAlert]:
    """Yield the alerts that were pending on a node when its recording ended."""
    for span in node.plays[0].pending():
        hold = (span.fires_at or span.active_at) - span.active_at
        labels, annotations = dict(span.labels), dict(span.annotations)
        seconds = node.last - span.active_at
        yield PendingAlert(span.alert, node.node, labels, annotations, span.active_at, seconds, hold)


def _cause_of(spans: Sequence[AlertSpan]) -> str:
    """Return the first alert of which these were effects; empty if one of them had no cause."""
    causes = [span.inhibited_by for span in spans]
    return causes[0] if all(causes) else ""
