"""Mistakes in the rack's section are refused at the start and at a reload, with key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.rack.finder import FileEntry, HostEntry
from agent.wiring.peering import load_rack
from agent.wiring.start_checks import check


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("peers: [n1]", "rack.peers: 'n1' is not a peer; write host:port, dns+name:port or the path of a file_sd file"),
        ("peers: ['n1:http']", "rack.peers: 'n1:http': 'http' is not a port; write host:port, such as n1:19400"),
        ("peers: ['n1:1'], peer: {username: a}",
         "rack.peer: username and password_file belong together; give both or neither"),
        ("peers: ['n1:1'], peer: {username: a, password_file: b}",
         "rack.peer: would send the credentials in clear text; set scheme: https"),
        ("peer: {ca_file: /ca.pem}", "rack.peer: ca_file needs https; set scheme: https, or remove ca_file"),
        (f"peers: [{', '.join(f'n{number}:1' for number in range(257))}]",
         "rack.peers: has 257 entries; the limit is 256, list one rack only"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(section: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(parse(f"rack: {{name: r1, {section}}}", "c.yaml"))
    assert str(caught.value) == f"c.yaml:1: {message}"


def test_the_section_is_made_into_what_the_parts_need() -> None:
    text = """
node: {rack: r1}
rack: {peers: ['n1:1', 'n1:1', peers.json], nodes_expected: 4, node_nameplate: 10.2kW, feeds: {a: 30kW, b: 31kW}}
"""
    config = parse(text, "c.yaml")
    options = load_rack(config, Path("/etc/coldplate"), 3.0)
    assert options.entries == (HostEntry("n1", 1), FileEntry(Path("/etc/coldplate/peers.json")))
    assert (options.name, options.nodes_expected, options.nameplate, options.stale_after) == ("r1", 4, 10_200.0, 3.0)
    assert options.feeds == (("a", 30_000.0), ("b", 31_000.0))
