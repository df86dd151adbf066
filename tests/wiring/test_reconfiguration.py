"""A reload puts all of a good configuration in force, and nothing of one that is not."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.config.reading import load, parse
from agent.config.schema import ConfigError
from agent.daemon.hub import Hub
from agent.lib.threads import Threads
from agent.model import Instant, Lane
from agent.wiring import identity
from agent.wiring.alerting import Receivers, load_alerting, make_rule_manager
from agent.wiring.assembly import dry_start, reloading
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.start_checks import check
from agent.wiring.web_serving import Exposed
from alerts.notify.receiver import Receiver
from tests import warm

BOOTED = "{backends: {devices: none}, rules: {files: []}}"


class Changed:
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
        alerting = load_alerting(config, folder, receivers)
        self.exposed, self.watch = Exposed(Hub(), check(config)), None
        self.sampling, self.rack, self.rules, self.expectations = Changed(), Changed(), Changed(), Changed()
        parts = ("exposed", "sampling", "rack", "rules", "expectations", "watch")
        own: Any = {name: vars(self)[name] for name in parts}
        self.reload = reloading(lambda: parse(self.text, "c.yaml"), config, options, alerting, receivers, **own)

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
    assert (rack.name, rack.budget, rack.stale_after) == ("r1", 40_000.0, settings.stale_after(Lane.FAST))
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


def test_what_only_a_restart_can_change_is_named_each_time_and_the_rest_is_in_force(bench: Bench) -> None:
    bench.text = "{backends: {devices: none}, web: {listen: [':1']}, sampling: {fast: 5s}, rules: {files: []}}"
    named = [bench.reload() for _ in range(2)]
    assert named == [["web.listen"]] * 2, "it goes on to differ from what the agent was started with"
    assert [each.fast for each in bench.sampling.told] == [5.0, 5.0]


# Who is told of alerts: the same receiver again for the same address, with what waits in it.
NODE = "http://n1:19400"
AM, OTHER = "http://127.0.0.1:9093", "http://127.0.0.1:9094"


def notify(text: str) -> Any:
    return parse(f"notify: {{{text}}}", "c.yaml")


@pytest.fixture
def receivers() -> Receivers:
    return Receivers(lambda: Instant(0.0, 0.0))


def shown(made: tuple[Receiver, ...]) -> list[tuple[str, str]]:
    """Names and hosts: what stands behind the host may be a secret, and is not shown."""
    return [(each.name, each.url.partition("/*")[0]) for each in made]


def test_receivers_are_those_of_the_configuration(receivers: Receivers) -> None:
    text = f"alertmanager: {{urls: ['{AM}', '{OTHER}']}}, webhook: {{urls: ['{AM}/x']}}"
    three = [("alertmanager", AM), ("alertmanager", OTHER), ("webhook", AM)]
    assert shown(receivers.make(notify(text), NODE)) == [("log", ""), *three]
    assert shown(receivers.make(notify(f"log: false, {text}"), NODE)) == three


def test_what_has_not_changed_is_the_same_receiver_and_what_has_is_another(receivers: Receivers) -> None:
    first = receivers.make(notify(f"alertmanager: {{urls: ['{AM}', '{OTHER}']}}"), NODE)
    less = receivers.make(notify(f"alertmanager: {{urls: ['{OTHER}']}}"), NODE)
    assert (less[0] is first[0], less[1] is first[2]) == (True, True)
    again = receivers.make(notify(f"alertmanager: {{urls: ['{AM}', '{OTHER}'], timeout: 3s}}"), NODE)
    assert not {id(each) for each in again[1:]} & {id(each) for each in first[1:]}
    moved = receivers.make(notify(f"alertmanager: {{urls: ['{AM}', '{OTHER}'], timeout: 3s}}"), "http://n2:1")
    assert moved[1] is not again[1]


def test_without_a_state_directory_the_log_says_that_alerts_start_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, receivers: Receivers
) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(identity, "STATE_DIRECTORY", tmp_path / "not-there")
    caplog.set_level(logging.INFO)

    def make(text: str) -> None:
        config = parse(f"{{{text}}}", "c.yaml")
        files: Any = SimpleNamespace()
        settings = load_alerting(config, tmp_path, receivers)
        make_rule_manager(
            config, settings, Hub(), files, foreign=lambda _: (), threads=Threads(), now=lambda: Instant(0.0, 0.0)
        )

    (tmp_path / "alerts.state.999999999.new").touch()
    make("rules: {files: []}")
    make(f"state_dir: {tmp_path}")
    assert not caplog.records
    assert not list(tmp_path.glob("*.new")), "what a killed process left is removed"
    make("rules: {files: [builtin]}")
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["no state directory"]


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("", False),
        ("rules: {override: {RackPowerHigh: {for: 1m}}}", False),
        ("rack: {name: r12}", True),
        ("node: {rack: r12}", True),
        ("backends: {devices: synthetic, scenario: rack-overrun}", True),
        ("backends: {devices: replay, replay: {file: run.coldplate}}", True),
    ],
)
def test_rules_about_racks_are_evaluated_where_there_may_be_one(
    text: str, loaded: bool, tmp_path: Path, receivers: Receivers
) -> None:
    groups = {group.name for group in load_alerting(parse(text, "c.yaml"), tmp_path, receivers).rules.groups}
    about_racks = {group for group in groups if group.startswith(("coldplate_rack", "coldplate_breakers"))}
    assert bool(about_racks) == loaded
    assert "coldplate_gpu_lost" in groups - about_racks


# What a start refuses is refused without one, with the same words.
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("web:\n  telemetry_path: /-/ready", "2: web.telemetry_path: "),
        ("rules:\n  files:\n  - builtin\n  - missing.yml", "4: rules.files: 'missing.yml' matches no file"),
        ("rules:\n  files:\n  - site.yml", "3: rules.files: 'site.yml' is a directory"),
        ("rules:\n  override:\n    GpuHot: {for: 1m}\n    NoSuchAlert: {for: 1m}", "4: rules.override.NoSuchAlert: "),
        ("rules:\n  override:\n    GpuHot:\n      labels: {a: '{{'}", "4: rules.override.GpuHot.labels.a: "),
        ("rules:\n  disable: [NoSuchAlert]", "2: rules.disable: "),
        ("rack:\n  name: r\n  peers:\n  - a:1\n  - a b:1", "5: rack.peers: "),
        (
            "notify:\n  alertmanager:\n    urls:\n    - http://a:9093\n    - am:9093",
            "5: notify.alertmanager.urls: 'am:9093': give http",
        ),
        ("notify:\n  webhook: {urls: ['http://a/'], username: u, password_file: /x}", "2: notify.webhook.urls: "),
        ("metrics:\n  include: [nothing]", "2: metrics.include: "),
        ("# nothing\nexpectations: no-such-node", "2: expectations: "),
        ("web:\n  config_file: /nowhere/web.yml", "2: web.config_file: "),
        ("backends:\n  devices: replay\n  replay: {file: gone.coldplate}", "3: backends.replay.file: "),
        ("backends:\n  devices: trace\n  trace: gone.tar.gz", "3: backends.trace: "),
        ("backends:\n  devices: synthetic\n  scenario: gone", "3: backends.scenario: there is no shipped scenario"),
    ],
)
def test_a_mistake_that_only_a_start_finds_has_the_line_of_its_key(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "c.yaml").write_text(f"{text}\n")
    (tmp_path / "site.yml").mkdir()
    with pytest.raises(ConfigError) as error:
        dry_start(load(tmp_path / "c.yaml"), tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/c.yaml:{place}")


def test_a_key_of_the_command_line_has_no_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("web:\n  listen: [':19400']\n  telemetry_path: /metrics\n")
    for words, message in (
        (["--web.listen-address", "x"], "coldplate run: web.listen: 'x'"),
        (["--web.telemetry-path", "/-/ready"], "coldplate run: web.telemetry_path: "),
    ):
        ended = warm.command(["run", "--config.check", "--config.file", str(file), *words])
        assert (ended.status, ended.error.decode().startswith(message)) == (2, True), ended.error
