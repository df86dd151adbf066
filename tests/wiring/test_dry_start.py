"""What a start refuses is refused without one, with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.reading import load
from agent.config.schema import ConfigError
from agent.wiring.dry_start import dry_start


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("web: {telemetry_path: /-/ready}", "web.telemetry_path: /-/ready is reserved"),
        ("rules: {files: [missing.yml]}", "missing.yml"),
        ("rules: {override: {NoSuchAlert: {for: 1m}}}", "NoSuchAlert"),
        ("rack: {name: r, peers: ['a b:1']}", "rack.peers"),
        ("notify: {alertmanager: {urls: ['ftp://x']}}", "notify.alertmanager"),
        ("expectations: no-such-node", "no-such-node"),
        ("web: {config_file: /nowhere/web.yml}", "/nowhere/web.yml"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(f"{text}\n")
    with pytest.raises(ConfigError) as error:
        dry_start(load(tmp_path / "c.yaml"), tmp_path)
    assert told in str(error.value)


def test_files_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("rules: {files: [site.yml]}\n")
    (tmp_path / "site.yml").write_text("groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]\n")
    assert dry_start(load(tmp_path / "c.yaml"), tmp_path) == 1
