"""Mistakes of the person who starts it: each is refused with what is wrong, status 2, and no secret."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import warm
from tests.daemon.test_running_daemon import HOT

MARK = "s3cr3t"
"""In everything that is secret here."""
URL = f"'http://me:{MARK}@host.example/'"

CONFIGURATIONS = {
    "smapling: {}": "did you mean 'sampling'?",
    "web: {telemetry_path: /-/ready}": "/-/ready is reserved",
    "backends: {devices: synthetic, scenario: nosuch}": "nosuch",
    "backends: {redfish: {url: 'ftp://x'}}": "backends.redfish",
    "metrics: {exclude: [coldplate_gpu_pwer_watts]}": "did you mean 'coldplate_gpu_power_watts'?",
}
"""Configuration files that a reload refuses as a start does, and what is said of each."""

MISTAKES: list[tuple[list[str] | str, tuple[str, ...]]] = [
    *((text, (message,)) for text, message in CONFIGURATIONS.items()),
    ("notify: {alertmanager: {urls: ['http://am:9093/api/v2/alerts']}}", ("notify.alertmanager",)),
    ("notify: {webhook: {urls: ['am:9093']}}", ("notify.webhook",)),
    ("node: {name: 'rack 7 node'}\nnotify: {alertmanager: {urls: ['http://am:9093']}}", ("node.name",)),
    ("rules: {override: {GpuHott: {for: 1m}}}", ("GpuHott",)),
    ("rules: {disable: [Nothing*]}", ("Nothing*",)),
    ("rules: {files: [nowhere/*.yml]}", ("nowhere/*.yml",)),
    ("jobs: {sources: [slurn]}", ("slurn",)),
    (f"notify: {{alertmanager: {{urls: [{URL}]}}}}", ("notify.alertmanager",)),
    (f"notify: {{webhook: {{urls: [{URL}]}}}}", ("notify.webhook",)),
    (f"backends: {{redfish: {{url: {URL}}}}}", ("backends.redfish",)),
    (f"rack: {{name: r, peers: [{URL}]}}", ("rack.peers",)),
    ("rules: {files: [bad.yml]}", ("{folder}/bad.yml:7: ", "'soon' is not a duration", "{folder}/bad.yml:11: ",
                                   "WarmAtOnce")),
    (["run", "--config.file", "/nowhere.yaml"], ("/nowhere.yaml: cannot be read: No such file or directory",)),
    (["run", "--scenario", "stragler"], ("straggler",)),
    (["run", "--backend", "nvml", "--scenario", "idle"], ("--scenario needs --backend synthetic",)),
    (["run", "--path.sysfs", "/nowhere"], ("--path.sysfs: /nowhere is not a directory",)),
    (["run", "--web.listen-address", "nonsense"], ("'nonsense' is not an address",)),
    (["run", "--backend", "none", "--web.telemetry-path", "metrics"], ("must begin with '/'",)),
    (["run", "--bakend", "nvml"], ("coldplate run: unknown option '--bakend'; did you mean '--backend'?",)),
    (["run", "--backend", "none", "--web.listen-address", "127.0.0.1:{port}"],
     ("127.0.0.1:{port}", "--web.listen-address")),
    (["once", "--backend", "none", "--textfile", "/nowhere/x.prom"], ("--textfile: /nowhere/x.prom",)),
    (["render", "metrics", "--output", "/nowhere/x.md"], ("--output: /nowhere/x.md: No such file or directory",)),
    ([], ("COMMAND",)),
]  # fmt: skip
"""Arguments, or the text of a configuration file, and what is said of them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A folder with a broken rule file, and a port at which somebody else listens."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "bad.yml").write_text(HOT.replace("for: 6s", "for: soon").replace('{gpu="4"}', '{gpu="4"'))
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        yield {"folder": folder, "port": holder.getsockname()[1]}


@pytest.fixture(scope="module")
def ended(place: dict[str, object]) -> list[warm.Ended]:
    """How all of them end, one after the other in one process."""

    def arguments(number: int, given: list[str] | str) -> list[str]:
        if not isinstance(given, str):
            return [each.format(**place) for each in given]
        config = Path(str(place["folder"]), f"{number}.yaml")
        config.write_text(f"{given}\n")
        return ["run", "--config.file", str(config)]

    return warm.commands([arguments(number, given) for number, (given, _) in enumerate(MISTAKES)])


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_said_with_status_2(ended: list[warm.Ended], place: dict[str, object], number: int) -> None:
    given, messages = MISTAKES[number]
    done = ended[number]
    told = done.error.decode()
    assert done.status == 2, told
    assert [each for each in messages if each.format(**place) not in told] == []
    assert "Traceback" not in told
    assert MARK not in told + done.output.decode()
    if isinstance(given, str) and "bad.yml" not in given:
        assert told.strip().count("\n") == 0
