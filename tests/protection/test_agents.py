"""Agents behind TLS: those of a rack add up its power, a stranger among them is not counted, and commands find them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config.reading import parse
from agent.config.schema import Config
from agent.lib.http_target import HttpTarget
from agent.lib.wording import UserError
from agent.wiring.agent_client import target_of
from agent.wiring.http_access import read_login
from agent.wiring.identity import own_agent
from tests import warm
from tests.daemon.conftest import RunningDaemon
from tests.protection.conftest import HASHES, write_leaf
from tests.servers import free_ports

WEB = (
    "tls_server_config: {cert_file: node.pem, key_file: node.key, client_auth_type: RequireAndVerifyClientCert,"
    " client_ca_file: ca.pem, client_allowed_sans: [agents.example]}\n"
    f"basic_auth_users: {{rack: {HASHES['scraper']}}}\n"
)
CONFIG = """
node: {{name: node{number}}}
rack:
  name: r12
  peers: [{peers}]
  peer: {{scheme: https, username: rack, password_file: {folder}/password, ca_file: {folder}/ca.pem,
    cert_file: {folder}/node.pem, key_file: {folder}/node.key}}
backends: {{host: false, devices: synthetic, scenario: healthy-training}}
rules: {{files: []}}
recorder: {{history: 0s}}
web: {{config_file: {web}, listen: ["127.0.0.1:{port}"]}}
"""


@pytest.fixture(scope="module")
def folder(certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like that of every node of a rack: one certificate that is good for server and client."""
    made = tmp_path_factory.mktemp("nodes")
    write_leaf(made, "node", certificates.authority.issue_cert("agents.example", "127.0.0.1"))
    (made / "ca.pem").write_bytes((certificates.folder / "ca.pem").read_bytes())
    (made / "password").write_text("right\n")
    (made / "web.yml").write_text(WEB)
    (made / "client.yml").write_text(
        "basic_auth: {username: rack, password_file: password}\n"
        "tls_config: {ca_file: ca.pem, cert_file: node.pem, key_file: node.key}\n"
    )
    return made


@pytest.fixture(scope="module")
def agents(folder: Path) -> Iterator[list[RunningDaemon]]:
    """Four of one rack, and a fifth that has no certificate: it binds a port that the others ask."""
    ports = free_ports(5)
    running = []
    for number, port in enumerate(ports):
        web = folder / "web.yml" if number < 4 else "null"
        peers = ", ".join(f"'127.0.0.1:{each}'" for each in ports)
        text = CONFIG.format(number=number, port=port, peers=peers, folder=folder, web=web)
        file = folder / f"{number}.yaml"
        file.write_text(text)
        running.append(RunningDaemon(["--config.file", str(file)], folder / f"{number}.log", forked=True, port=port))
    for each in running:
        each.await_url()
    yield running
    for each in running:
        each.stop()


def ask(agents: list[RunningDaemon], folder: Path, path: str) -> str:
    command = ["curl", "-s", "--cacert", "ca.pem", "--cert", "node.pem", "--key", "node.key", "-u", "rack:right"]
    done = subprocess.run([*command, agents[0].url + path], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_four_agents_sum_a_rack_and_who_only_binds_a_port_adds_nothing(agents, folder: Path) -> None:
    def reporting() -> set[str]:
        page = ask(agents, folder, "/metrics").splitlines()
        return {line.split()[-1] for line in page if line.startswith("coldplate_rack_nodes_reporting{")}

    agents[0].until("four agents agree", lambda: reporting() == {"4"}, 40)

    def of(name: str) -> float:
        page = ask(agents, folder, "/metrics").splitlines()
        return next(float(line.split()[-1]) for line in page if line.startswith(f"coldplate_{name}{{"))

    def adds_up() -> bool:
        """Each node's job pauses for checkpoints, at times of its own."""
        return of("rack_power_watts") == pytest.approx(4 * of("node_power_watts"), rel=0.2)

    agents[0].until("the rack is the sum of four", adds_up, 30)
    stranger = parse((folder / "4.yaml").read_text(), "4.yaml").web.listen[0].rpartition(":")[2]
    said = f'"a peer of the rack is left out of the sum" peer=127.0.0.1:{stranger} '
    agents[0].until("the stranger's exclusion", lambda: said in agents[0].log.read_text(), 20)
    assert reporting() == {"4"}


def test_commands_find_the_agents(agents, folder: Path) -> None:
    """At this node by its own configuration, and at others by the file that says how to log in."""
    urls = [each.url for each in agents[:2]]

    told = warm.command(["top", "--json", "--http.config.file", str(folder / "client.yml"), "--url", *urls])
    assert told.status == 0, told.error
    assert [bool(each.get("gpus")) for each in json.loads(told.output)["nodes"]] == [True, True]
    doctor = warm.command(["doctor", "--json", "--config.file", str(folder / "0.yaml")])
    assert b"its last sample is" in doctor.output, doctor.output
    assert warm.command(["top", "--json", "--url", urls[0]]).status == 1


def test_the_own_agent_is_known_by_its_certificate_and_asked_as_a_peer_would(folder: Path) -> None:
    config = parse(CONFIG.format(number=0, port=1, peers="", folder=folder, web=folder / "web.yml"), "c.yaml")
    (url,), login = own_agent(config)
    assert (url, login["pinned"], login["ca_file"]) == ("https://127.0.0.1:1", True, str(folder / "node.pem"))
    assert login["username"] == "rack"
    HttpTarget(url, **login)
    given = own_agent(config, read_login(folder / "client.yml"))
    assert given.login["ca_file"] == str(folder / "ca.pem")
    (url,), login = own_agent(parse(f"web: {{config_file: {folder / 'nowhere.yml'}}}", "c.yaml"))
    assert url == "https://127.0.0.1:19400", "where the web configuration may not be read, TLS is spoken"
    assert "pinned" not in login
    # Nobody who binds the port of an open agent gets the rack's password.
    open_to_all = parse(CONFIG.format(number=0, port=1, peers="", folder=folder, web="null"), "c.yaml")
    assert own_agent(open_to_all) == (("http://127.0.0.1:1",), {})
    assert own_agent(Config()) == (("http://127.0.0.1:19400",), {})
    assert target_of("node7", read_login(folder / "client.yml")).url == "https://node7:19400"
    assert target_of("node7").url == "http://node7:19400"


@pytest.mark.parametrize(
    ("listen", "urls"),
    [
        ("':19400'", ["http://127.0.0.1:19400"]),
        ("0.0.0.0:1, '[::]:2'", ["http://127.0.0.1:1", "http://[::1]:2"]),
        ("10.1.2.3:1, 'n7:0'", ["http://10.1.2.3:1"]),
        ("':0'", ["http://127.0.0.1:19400"]),
    ],
)
def test_the_agent_of_this_node_is_reached_where_it_listens(listen: str, urls: list[str]) -> None:
    assert list(own_agent(parse(f"web: {{listen: [{listen}]}}", "c.yaml")).urls) == urls


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("basic_auth: {username: a, password: b}", "write it into a file"),
        ("bearer_token: x", "client.yml:1: bearer_token: unknown key; use one of tls_config"),
        ("tls_config: {cert_file: a}", "give both or neither"),
        ("tls_config: {ca: x}", "tls_config.ca: unknown key; use one of ca_file"),
        ("tls_config: {insecure_skip_verify: maybe}", "must be true or false"),
        ("authorization: {type: Digest, credentials_file: x}", "must be Bearer"),
        ("basic_auth: [a]", "must be a mapping"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_a_login_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "client.yml").write_text(text)
    with pytest.raises(UserError, match=problem) as told:
        read_login(tmp_path / "client.yml")
    assert str(tmp_path / "client.yml") in str(told.value)
