"""Who the node is said to be, and where it keeps its state, by what the configuration says and leaves out."""

from pathlib import Path

import pytest

from agent.config.reading import parse
from agent.config.schema import Config
from agent.wiring import identity
from agent.wiring.identity import (
    drill_file,
    external_labels,
    external_url,
    rack_name,
    source_of,
    state_file,
    target_labels,
    title,
)


def config(text: str) -> Config:
    return parse(text, "c.yaml")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is called host1, and an agent that systemd did not start."""
    monkeypatch.setattr("socket.gethostname", lambda: "host1")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)


@pytest.mark.parametrize(
    ("text", "instance"),
    [
        ("{}", "host1:19400"),
        ("node: {name: n7}", "n7:19400"),
        ("web: {listen: ['127.0.0.1:80', ':81']}", "host1:80"),
        ("web: {listen: ['[::1]:82']}", "host1:82"),
        ("web: {listen: ['127.0.0.1:0']}", "host1"),
    ],
)
def test_the_target_is_named_as_a_server_names_it_that_scrapes_the_host(text: str, instance: str) -> None:
    assert dict(target_labels(config(text))) == {"instance": instance, "job": "coldplate"}
    assert external_url(config(text)) == f"http://{instance}"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("{}", {}),
        ("node: {cluster: c, rack: r}", {"cluster": "c", "rack": "r"}),
        ("rack: {name: r2}", {"rack": "r2"}),
        ("{node: {cluster: c}, notify: {labels: {cluster: mine, team: t}}}", {"cluster": "mine", "team": "t"}),
        ("{node: {cluster: c}, notify: {labels: {cluster: ''}}}", {}),
    ],
)
def test_alerts_are_sent_with_the_place_of_the_node_and_what_is_added(text: str, labels: dict[str, str]) -> None:
    assert external_labels(config(text)) == labels


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("{}", "", "host1"),
        ("node: {rack: r, cluster: c, name: n7}", "r", "n7, rack r, c"),
        ("rack: {name: r2}", "r2", "host1, rack r2"),
    ],
)
def test_the_rack_is_the_one_that_feeds_the_node_and_people_are_shown_its_place(
    text: str, name: str, shown: str
) -> None:
    assert (rack_name(config(text)), title(config(text))) == (name, shown)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("{}", "devices"),
        ("backends: {devices: none}", "devices"),
        ("backends: {devices: synthetic}", "synthetic"),
        ("backends: {devices: trace, trace: b.tar.gz}", "trace b.tar.gz"),
        ("backends: {devices: replay, replay: {file: r}}", "replay r"),
        ("backends: {devices: synthetic, scenario: straggler}", "synthetic straggler"),
    ],
)
def test_alerts_are_of_the_nodes_devices_or_of_one_drill(text: str, source: str) -> None:
    assert source_of(config(text)) == source


def test_state_is_kept_where_configured_or_where_systemd_says(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(identity, "STATE_DIRECTORY", tmp_path / "usual")
    assert state_file(config("{}"), "x") is None, "nothing is made where nobody may write"
    (tmp_path / "usual").mkdir()
    assert state_file(config("{}"), "x") == tmp_path / "usual" / "x"
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/given:{tmp_path}/second")
    assert state_file(config("{}"), "x") == tmp_path / "given" / "x"
    assert state_file(config(f"state_dir: {tmp_path}/told"), "x") == tmp_path / "told" / "x"


@pytest.mark.parametrize("devices", ["synthetic", "replay", "trace"])
def test_a_drill_writes_nothing_where_the_nodes_own_agent_does_unless_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: str
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    drill = f"backends: {{devices: {devices}}}"
    assert drill_file(config(drill), "x") is None
    assert drill_file(config(f"{{state_dir: {tmp_path}/told, {drill}}}"), "x") == tmp_path / "told" / "x"
    assert drill_file(config("{}"), "x") == tmp_path / "x"
