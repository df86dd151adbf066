"""Doctor beside a running agent: whose configuration it judges; and what it warns of where nothing runs."""

import json
import os
import time
from pathlib import Path

import pytest

from agent import cli
from agent.commands.doctor.agent_process import options_of_run
from tests.doctor.conftest import AGENT, EVERYTHING_SEEN, UP, NodeTree, Start, answering, reading, snapshot, write

Finding = tuple[str, str]


def started(tree: NodeTree, *options: str, pid: int = AGENT, folder: Path | None = None) -> None:
    """Give a process the command line of an agent, started in `folder`."""
    words = ["/opt/coldplate/bin/python", "/opt/coldplate/bin/coldplate", "run", *options]
    write(tree.at(f"proc/{pid}/cmdline"), "\0".join([*words, ""]))
    if folder is not None:
        tree.at(f"proc/{pid}/cwd").symlink_to(folder)


def examined(tree: NodeTree, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, list[Finding]]:
    """Verdict and text of each line of the command, by subject."""
    capsys.readouterr()
    roots = [
        f"--path.{name}={tree.at(place)}" for name, place in (("sysfs", "sys"), ("procfs", "proc"), ("rootfs", "root"))
    ]
    assert cli.main(["doctor", "--json", *roots, *options]) in (0, 1)
    findings: dict[str, list[Finding]] = {}
    for line in json.loads(capsys.readouterr().out)["findings"]:
        findings.setdefault(line["subject"], []).append((line["verdict"], line["found"]))
    return findings


def test_the_configuration_of_the_running_agent_is_judged(
    tree: NodeTree, server: Start, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    receiver = server(lambda _: (200, b""))
    listen = answering(tree, server, UP)
    file = write(tmp_path / "site" / "c.yaml", f"{listen}notify: {{alertmanager: {{urls: ['{receiver}']}}}}\n")
    started(tree, "--config.file", "c.yaml", "--backend", "none", folder=file.parent)
    found = examined(tree, capsys)
    assert found["configuration"] == [("OK", f"{file}, of the running agent (process {AGENT})")]
    assert found["receivers"] == [("OK", f"alertmanager {receiver} answers")]
    assert found["driver"] == [("OK", "not needed: backends.devices is none")]
    assert found["agent"][0][0] == "OK", "it was asked at the address of that configuration"


def test_a_file_that_is_named_is_judged_in_place_of_the_agents(
    tree: NodeTree, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    started(tree, "--config.file", "/etc/other.yaml")
    file = write(tmp_path / "next.yaml", "web: {listen: [':1']}\n")
    assert examined(tree, capsys, "--config.file", str(file))["configuration"] == [("OK", str(file))]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--config.file", "c.yaml"), "only its user may see in which folder c.yaml is"),
        (("--config.file", "/dev/fd/63"), "it read its configuration through a pipe"),
        (("--no.such.option",), "its command line is of another version"),
    ],
)
def test_a_configuration_that_cannot_be_known_is_a_warning(
    tree: NodeTree, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], reason: str
) -> None:
    started(tree, *options)
    verdict, text = examined(tree, capsys, "--url", "http://127.0.0.1:1")["configuration"][0]
    assert verdict == "WARN"
    assert reason in text


def test_an_agent_without_a_unit_is_found_by_the_port_that_it_listens_on(
    tree: NodeTree, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tree.process(AGENT, "coldplate", "/user.slice/session-1.scope")
    file = write(tmp_path / "c.yaml", "web: {listen: ['127.0.0.1:1']}\n")  # not that of an agent of this machine
    started(tree, "--config.file", str(file))
    assert "of the running agent" not in examined(tree, capsys)["configuration"][0][1]
    tree.connections(19400, AGENT)
    assert examined(tree, capsys)["configuration"] == [("OK", f"{file}, of the running agent (process {AGENT})")]


def test_a_file_that_was_changed_since_the_agent_read_it_is_a_warning(
    tree: NodeTree, server: Start, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loaded = reading("coldplate_config_last_reload_success_timestamp_seconds", time.time() - 60)
    file = write(tmp_path / "c.yaml", answering(tree, server, snapshot(*EVERYTHING_SEEN, loaded)))
    started(tree, "--config.file", str(file))
    verdicts = [verdict for verdict, _ in examined(tree, capsys)["configuration"]]
    assert verdicts == ["WARN", "OK"]
    os.utime(file, (time.time() - 120,) * 2)
    assert [verdict for verdict, _ in examined(tree, capsys)["configuration"]] == ["OK"]


def test_a_node_without_agent_driver_and_receiver_is_not_green(tree: NodeTree) -> None:
    """What a roll-out must not lack; and nothing is well because nobody says otherwise."""
    for path in ("proc/driver", "sys/bus/pci", "root/usr/lib", f"proc/{AGENT}", "root/etc/systemd"):
        tree.remove(path)
    findings = tree.findings()
    warned = {each.subject for each in findings if each.verdict.value != "OK"}
    assert {"agent", "driver", "receivers"} <= warned
    assert not {"scrapes", "sandbox"} & {each.subject for each in findings}


def test_without_rules_on_the_node_no_receiver_is_missed(tree: NodeTree) -> None:
    assert tree.told("receivers", "web: {listen: [':1']}\nrules: {files: []}\n")[0][0] == "OK"


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("/opt/coldplate/bin/python -I /usr/bin/coldplate run --scenario x", ["--scenario", "x"]),
        ("python3 -m agent.cli run", []),
        ("/usr/bin/python3.12 ./coldplate-0.1.0-x86_64.pyz run --backend none", ["--backend", "none"]),
        ("coldplate run run", ["run"]),
        ("coldplate top", None),
        ("make run", None),
        ("sudo coldplate run", None),
        ("podman run coldplate run", None),
        ("", None),
    ],
)
def test_an_agent_is_known_by_its_command_line(line: str, options: list[str] | None) -> None:
    assert options_of_run(line.split(" ")) == options
