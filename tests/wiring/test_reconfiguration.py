"""A reload puts all of a good configuration in force, and nothing of one that is not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.daemon.hub import Hub
from agent.model import Instant, Lane
from agent.wiring.alerting import Receivers, load_alerting
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.reconfiguration import Reconfiguration, steps_of
from agent.wiring.start_checks import check
from agent.wiring.web_serving import Exposed, Protection

BOOTED = "{backends: {devices: none}, rules: {files: []}}"


class Changed:
    """A part that is told of other settings."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def reconfigure(self, settings: Any) -> None:
        self.told.append(settings)


class Bench:
    """A reconfiguration of parts that keep what they are told, and the text that it reads."""

    def __init__(self, folder: Path) -> None:
        self.text = BOOTED
        config = parse(BOOTED, "c.yaml")
        options = CommandLineOptions(folder=folder)
        receivers = Receivers(lambda: Instant(0.0, 0.0))
        self.started_with = load_alerting(config, folder, receivers)
        self.exposed = Exposed(Hub(), check(config))
        self.sampling, self.rack, self.rules, self.expectations = Changed(), Changed(), Changed(), Changed()
        parts: Any = {name: vars(self)[name] for name in ("sampling", "rack", "rules", "expectations")}
        protection = Protection(config, lambda: 0.0)
        steps = steps_of(options, self.started_with, receivers, exposed=self.exposed, protection=protection, **parts)
        self.reload = Reconfiguration(lambda: parse(self.text, "c.yaml"), config, steps)

    @property
    def told(self) -> list[int]:
        return [len(each.told) for each in (self.sampling, self.rack, self.rules, self.expectations)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "mine.yml").write_text("groups: [{name: g, rules: [{record: a, expr: b}]}]")
    (tmp_path / "site.yaml").write_text("{description: ours, ports: 8}")
    return Bench(tmp_path)


def test_every_part_gets_its_own_and_relative_paths_begin_beside_the_file(bench: Bench) -> None:
    before = bench.exposed.selection
    bench.text = (
        "{backends: {devices: none}, sampling: {fast: 2s}, rack: {name: r1, power_budget: 40kW},"
        " rules: {files: [mine.yml]}, notify: {resend: 90s}, metrics: {exclude: [coldplate_rack_*]},"
        " expectations: site.yaml}"
    )
    bench.reload()
    (choice,) = bench.expectations.told
    assert (choice.named.node.ports, choice.named.node.description) == (8, "ours")
    ((settings,), (rack,), (alerting,)) = bench.sampling.told, bench.rack.told, bench.rules.told
    assert settings.fast == 2.0
    assert (rack.name, rack.budget, rack.stale_after) == ("r1", 40_000.0, settings.patience(Lane.FAST))
    assert [group.name for group in alerting.rules.groups] == ["g"]
    assert alerting.resend == 90.0
    assert bench.exposed.selection is not before


def test_a_selection_that_does_not_change_keeps_what_it_knows_of_the_pages_series(bench: Bench) -> None:
    before = bench.exposed.selection
    bench.text = "{backends: {devices: none}, rules: {files: [mine.yml]}, sampling: {fast: 2s}}"
    bench.reload()
    assert bench.exposed.selection is before
    bench.text = "{backends: {devices: none}, rules: {files: [mine.yml]}, metrics: {profile: lean}}"
    bench.reload()
    assert bench.exposed.selection is not before


@pytest.mark.parametrize(
    "text",
    [
        "sampling: {fast: yesterday}",
        "metrics: {include: [coldplate_nonsense]}",
        "rules: {files: [not-there.yml]}",
        "rack: {name: r, peers: ['a b']}",
        "notify: {webhook: {urls: ['gopher://x']}}",
        "expectations: not-there.yaml",
    ],
)
def test_a_mistake_anywhere_changes_nothing_anywhere(bench: Bench, text: str) -> None:
    before = bench.exposed.selection
    bench.text = text
    with pytest.raises(ConfigError):
        bench.reload()
    assert bench.told == [0, 0, 0, 0]
    assert bench.exposed.selection is before


def test_what_only_a_restart_can_change_is_named_each_time_and_the_rest_is_in_force(bench: Bench, caplog) -> None:
    bench.text = "{backends: {devices: none}, web: {listen: [':1']}, sampling: {fast: 5s}, rules: {files: []}}"
    for _ in range(2):
        bench.reload()
    warned = [each.getMessage().split()[0] for each in caplog.records if each.levelno == logging.WARNING]
    assert warned == ["web.listen"] * 2, "it goes on to differ from what the agent was started with"
    assert [each.fast for each in bench.sampling.told] == [5.0, 5.0]
