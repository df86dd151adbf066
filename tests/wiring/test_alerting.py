"""Who is told of alerts: the same receiver again for the same address, with what waits in it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.daemon.hub import Hub
from agent.lib.threads import Threads
from agent.model import Instant
from agent.wiring import identity
from agent.wiring.alerting import Receivers, check_receivers, load_alerting, make_rule_manager
from alerts.notify.receiver import Receiver

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


@pytest.mark.parametrize("kind", ["alertmanager", "webhook"])
def test_an_address_that_cannot_work_is_named_with_its_key(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"c\.yaml:1: notify\.{kind}\.urls: .*https"):
        check_receivers(notify(f"{kind}: {{urls: ['http://example.org/'], username: u, password_file: /x}}"))


def test_without_a_state_directory_it_is_logged_that_alerts_start_again_if_there_are_rules(
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
