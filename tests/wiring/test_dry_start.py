"""What a start refuses is refused without one, with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.reading import load
from agent.config.schema import ConfigError
from agent.wiring.dry_start import dry_start
from tests import warm


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
        ("notify:\n  alertmanager:\n    urls:\n    - http://a:9093\n    - am:9093",
         "5: notify.alertmanager.urls: 'am:9093': give http"),
        ("metrics:\n  include: [nothing]", "2: metrics.include: "),
        ("# nothing\nexpectations: no-such-node", "2: expectations: "),
        ("web:\n  config_file: /nowhere/web.yml", "2: web.config_file: "),
    ],
)  # fmt: skip
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
        (["--web.listen-address", "x"], "coldplate: web.listen: 'x'"),
        (["--web.telemetry-path", "/-/ready"], "coldplate: web.telemetry_path: "),
    ):
        ended = warm.command(["run", "--config.check", "--config.file", str(file), *words])
        assert (ended.status, ended.error.decode().startswith(message)) == (2, True), ended.error


def test_files_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("rules: {files: [site.yml]}\n")
    (tmp_path / "site.yml").write_text("groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]\n")
    assert dry_start(load(tmp_path / "c.yaml"), tmp_path) == 1
