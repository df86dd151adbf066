"""Who the peers are: a static list, a file that changes, a name with many addresses; and the section of the rack."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.lib.textfile import PEERS
from agent.rack.finder import AGAIN_SECONDS, ASK_SECONDS, MOST, Finder, HostEntry, parse_entry
from agent.rack.peer_messages import Access
from agent.wiring.peering import load_rack
from agent.wiring.start_checks import check


class Names:
    def __init__(self, **addresses: Sequence[str]) -> None:
        self.addresses: dict[str, Sequence[str]] = dict(addresses)
        self.asked: list[str] = []
        self.now = 0.0

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]


def finder(names: Names, folder: Path, *peers: str) -> Finder:
    return Finder([parse_entry(each, folder) for each in peers], lambda: names.now, names.resolve)


def names_of(found: Finder) -> list[str]:
    found.refresh()
    return [target.name for target in found.targets]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("n1:19400", HostEntry("n1", 19400)),
        ("10.0.0.1:1", HostEntry("10.0.0.1", 1)),
        ("[fe80::1%eth0]:65535", HostEntry("fe80::1%eth0", 65535)),
        ("dns+rack12.example.:19400", HostEntry("rack12.example.", 19400, many=True)),
        ("peers.json", Path("/etc/coldplate/peers.json")),
        ("./peers", Path("/etc/coldplate/peers")),
        ("/run/peers.yml", Path("/run/peers.yml")),
        ("peers@r12.yml", Path("/etc/coldplate/peers@r12.yml")),
        ("/etc/peers@r12", Path("/etc/peers@r12")),
        ("./a@b:c.json", Path("/etc/coldplate/a@b:c.json")),
    ],
)
def test_an_entry_is_an_address_a_name_or_a_file(text: str, entry: object) -> None:
    assert parse_entry(text, Path("/etc/coldplate")) == entry


@pytest.mark.parametrize(
    "text", ["", "n1", "n1:", ":19400", "n1:0", "n1:65536", "n1:x", "fe80::1:80", "[n1]:80", "a b:1", "n1\r\nX: y:80",
             "dns+n1", "http:n1:80", "n1:19400:", "n1:१",
             "a..b:1", "-a:1", f"{'a' * 64}:1", f"{'a.' * 130}b:1"]
)  # fmt: skip
def test_what_is_invalid_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port"):
        parse_entry(text, Path())


def test_an_address_needs_no_name_server_a_name_may_be_unknown_or_stand_for_many(tmp_path: Path) -> None:
    names = Names()
    assert names_of(finder(names, tmp_path, "10.0.0.1:1", "[::1]:2", "10.0.0.1:1")) == ["10.0.0.1:1", "[::1]:2"]
    assert names.asked == []
    found = finder(Names(), tmp_path, "nowhere:19400")
    assert names_of(found) == ["nowhere:19400"]
    assert found.targets[0].addresses == ()
    assert found.looked
    names = Names(rack=["10.0.0.2", "10.0.0.1", "fd00::1"])
    found = finder(names, tmp_path, "dns+rack:19400")
    assert names_of(found) == ["10.0.0.2:19400", "10.0.0.1:19400", "[fd00::1]:19400"]
    assert {target.host for target in found.targets} == {"rack"}  # what a certificate must name


def test_a_name_is_looked_up_now_and_then_and_kept_when_there_is_no_answer(tmp_path: Path, caplog) -> None:
    names = Names(n2=["10.0.0.2"])
    found = finder(names, tmp_path, "n2:19400")
    assert names_of(found) == ["n2:19400"]
    assert found.targets[0].addresses == ("10.0.0.2",)
    found.refresh()
    assert names.asked == ["n2"]
    del names.addresses["n2"]
    names.now += ASK_SECONDS
    found.refresh()
    assert found.targets[0].addresses == ("10.0.0.2",)
    assert [record.facts["problem"] for record in caplog.records] == ["Name or service not known"]
    names.addresses["n2"] = []
    names.now += AGAIN_SECONDS
    found.refresh()
    assert found.targets[0].addresses == ("10.0.0.2",)
    names.addresses["n2"] = ["10.0.0.3", "10.0.0.2"]
    names.now += ASK_SECONDS
    found.refresh()
    assert found.targets[0].addresses == ("10.0.0.3", "10.0.0.2")


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text('[{"targets": ["10.0.0.1:1", "10.0.0.2:1"], "labels": {"rack": "r1"}}, {"targets": []}]')
    found = finder(Names(), tmp_path, "peers.json")
    assert names_of(found) == ["10.0.0.1:1", "10.0.0.2:1"]
    path.write_text("- targets:\n  - 10.0.0.3:1\n")
    assert names_of(found) == ["10.0.0.3:1"]
    new = tmp_path / "new"
    new.write_text("- targets: [ '10.0.0.4:1' ]")
    os.replace(new, path)
    assert names_of(found) == ["10.0.0.4:1"]


@pytest.mark.parametrize(
    "content",
    ["{", "targets", "{}", "[[]]", "[{}]", "[{targets: n1}]", "[{targets: [1]}]", "[{targets: [n1]}]", "\x00",
     "- &a [*a]", "x" * (PEERS + 1), "[" * 1_200],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_a_bad_file_changes_nothing_and_is_logged_once(content: str, tmp_path: Path, caplog) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text("- targets: ['10.0.0.1:1']")
    found = finder(Names(), tmp_path, str(path))
    found.refresh()
    path.write_text(content)
    for _ in range(3):
        assert names_of(found) == ["10.0.0.1:1"]
    assert len(caplog.records) == 1
    path.unlink()
    assert names_of(found) == ["10.0.0.1:1"]
    path.write_text("- targets: ['10.0.0.9:1']")
    assert names_of(found) == ["10.0.0.9:1"]


def test_a_file_that_lists_too_many_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text("- targets: [" + ", ".join(f"'10.0.{n // 250}.{n % 250}:1'" for n in range(MOST + 9)) + "]")
    found = finder(Names(), tmp_path, str(path))
    assert len(names_of(found)) == MOST
    assert len(names_of(found)) == MOST
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_credentials_travel_over_https_and_to_this_node_alone() -> None:
    login = Access(username="u", password_file="/p")
    login.check([HostEntry("127.0.0.1", 1)])
    with pytest.raises(ValueError, match="set scheme: https"):
        login.check([Path("peers.json")])  # whatever it will name
    Access(tls=True, username="u", password_file="/p").check([HostEntry("n1", 1)])


SECRETS = ["user:secret@n1:19400", "user:@n1:19400", ":secret@n1:1", "dns+user:secret@n1:1", "http://user:secret@n1:1/",
           "https://user:secret@n1/peers.json", "user:sec/ret@n1:1", "user:sec.json@n1:1", "user:secret@[::1]:1",
           "secret@n1:19400", "user:secret@peers.yml"]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_a_password_in_an_entry_is_refused_and_never_repeated(text: str, tmp_path: Path, caplog) -> None:
    with pytest.raises(ValueError, match=r"has a user or password before an @; give them in rack\.peer") as caught:
        parse_entry(text, Path())
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None
    path = tmp_path / "peers.yaml"
    path.write_text(json.dumps([{"targets": [text]}]))
    finder(Names(), tmp_path, str(path)).refresh()
    (record,) = caplog.records
    assert "sec" not in f"{record.getMessage()} {vars(record)['facts']}"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("peers: [n1]", "rack.peers: 'n1' is not a peer; write host:port, dns+name:port or the path of a file_sd file"),
        ("peers: ['https://n1:19400/']",
         "rack.peers: 'https://n1:19400/' is not a peer; write host:port, and set scheme: https in rack.peer"),
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
    options = load_rack(config, Path("/etc/coldplate"))
    assert options.entries == (HostEntry("n1", 1), Path("/etc/coldplate/peers.json"))
    assert (options.name, options.nodes_expected, options.nameplate, options.stale_after) == ("r1", 4, 10_200.0, 3.0)
    assert options.feeds == (("a", 30_000.0), ("b", 31_000.0))
