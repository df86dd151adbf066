"""`coldplate doctor --bundle`: what goes in, that names stay out of it, and that what fails costs only itself."""

import json
import os
import re
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.backends.nvml import NvmlSource
from agent.backends.nvml.trace_replay import DriverTrace, ReplayDriver
from agent.commands.doctor import support_bundle
from agent.model import Instant
from agent.recording.redaction import Redaction
from tests import warm
from tests.fakes.nvml.build import CONTROL, build, command
from tests.screen.agents import canned, serving
from tests.servers import need

CONFIG = """
# commentofmine
node: {name: hostofmine}
rack: {name: rackofmine, peers: ['peerofmine:19400'], peer: {scheme: http}}
backends: {devices: synthetic, scenario: idle}
web: {listen: ['127.0.0.1:1']}
notify: {webhook: {urls: ['http://hooks.example/secretofmine']}}
"""
OWN = ("hostofmine", "rackofmine", "peerofmine", "secretofmine", "hooks.example", "commentofmine")
FILES = (
    "index.json",
    "snapshot.json",
    "config.json",
    "doctor.txt",
    "doctor.json",
    "versions.json",
    "recording.coldplate",
)


def bundle(
    tmp_path: Path, *words: str, config: str = CONFIG, environment: Mapping[str, str] | None = None
) -> tuple[Path, warm.Ended]:
    (tmp_path / "c.yaml").write_text(config)
    file = tmp_path / "b.tar.gz"
    ended = warm.command(
        ["doctor", "--bundle", str(file), "--bundle-seconds", "1", "--config.file", str(tmp_path / "c.yaml"), *words],
        environment=environment,
    )
    return file, ended


def bundle_of_driver(tmp_path: Path, order: str) -> Path:
    """A bundle of a node whose driver is the stand-in library, which does as it is told."""
    need(os.environ.get("CC", "cc"), left_out="no C compiler for the driver's stand-in")
    library, control = build(tmp_path), tmp_path / "control"
    command(control, order)
    environment = {"LD_LIBRARY_PATH": str(library.parent), CONTROL: str(control)}
    file, ended = bundle(tmp_path, config="backends: {devices: nvml}", environment=environment)
    assert ended.status == 0, ended.error
    return file


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a node with two GPUs. The library and its control file lie beside it."""
    return bundle_of_driver(tmp_path_factory.mktemp("bundle"), "count 2")


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}
    assert all(name.startswith("coldplate-bundle/") for name in found)
    return {name.partition("/")[2]: content for name, content in found.items()}


def test_everything_is_in_it_names_are_not_and_its_recording_can_be_replayed(tmp_path: Path) -> None:
    pages = canned("idle", 100)
    with serving(pages) as place:
        file, ended = bundle(tmp_path, "--url", f"http://{place}")
    assert ended.status == 0, ended.error
    files = contents(file)
    assert sorted(files) == sorted(FILES)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for name in FILES:
        assert f"  {name} " in ended.output.decode()
    uuids = {
        each["labels"]["uuid"]
        for each in json.loads(pages("/api/v1/snapshot")[1])["data"]["readings"]
        if "uuid" in each["labels"]
    }
    assert uuids
    for name, content in files.items():
        assert not [each for each in (*OWN, *uuids) if each.encode() in content], name
    assert json.loads(files["config.json"])["backends"]["scenario"] == "idle"
    assert {"coldplate", "python", "kernel", "driver"} == json.loads(files["versions.json"]).keys()
    assert {each["subject"] for each in json.loads(files["doctor.json"])["findings"]} >= {"configuration", "agent"}
    assert b"configuration" in files["doctor.txt"]
    (tmp_path / "r.coldplate").write_bytes(files["recording.coldplate"])
    replayed = warm.command(["once", "--backend", f"replay:{tmp_path}/r.coldplate"])
    assert replayed.status == 0 and b"coldplate_gpu_up" in replayed.output


def test_a_trace_of_driver_calls_is_in_it_that_a_test_can_play(two_gpus: Path, tmp_path: Path) -> None:
    """Its GPUs have the names that they have in the bundle's recording."""
    files = contents(two_gpus)
    calls = files["driver-calls.jsonl"]
    (tmp_path / "calls.jsonl").write_bytes(calls)
    trace = DriverTrace(tmp_path / "calls.jsonl")
    assert trace.provenance["stand_in"] and trace.provenance["GPUs"].startswith("2 x ")
    assert "coldplate_gpu_power_watts" in trace.shown_metrics["fast"]
    assert b"GPU-c01d97a7" not in calls
    source = NvmlSource(ReplayDriver(trace), wall=lambda: 1e9)
    keys = [channel.key for channel in source.open(Instant(1.0, 1e9))]
    source.close()
    (tmp_path / "r.coldplate").write_bytes(files["recording.coldplate"])
    replayed = warm.command(["once", "--backend", f"replay:{tmp_path}/r.coldplate"]).output
    assert len(set(keys)) == 2 and all(key.encode() in replayed for key in keys)


GPU_SERIES = re.compile(rb'^(coldplate_(?:gpu|nvlink)_\w+|coldplate_metric_missing)\{(gpu=".*)\} (\S+)$', re.MULTILINE)
PSEUDONYM = re.compile(rb'(uuid|serial|board_part)="[^"]*"')


def gpu_series(page: bytes) -> dict[tuple[bytes, bytes], float]:
    """The series of a page that are about GPUs, without what a pseudonym replaces."""
    return {(name, PSEUDONYM.sub(b"", labels)): float(value) for name, labels, value in GPU_SERIES.findall(page)}


def test_a_bundle_gives_the_same_page_on_a_machine_without_a_gpu(two_gpus: Path, tmp_path: Path) -> None:
    file, folder = two_gpus, two_gpus.parent
    environment = {"LD_LIBRARY_PATH": str(folder), CONTROL: str(folder / "control")}
    there = warm.command(["once", "--backend", "nvml"], environment=environment)
    here = warm.command(["once", "--backend", f"trace:{file}"])
    assert (there.status, here.status, here.error) == (0, 0, b"")
    own, played = gpu_series(there.output), gpu_series(here.output)
    assert played.keys() == own.keys() and len(own) > 200
    constant = [key for key in own if re.search(rb"_(up|info|limit_watts|total_bytes|width_lanes|link_up)$", key[0])]
    assert [(key, played[key]) for key in constant] == [(key, own[key]) for key in constant] and len(constant) > 40
    assert b'coldplate_replay_info{node="b.tar.gz",recorded="' in here.output
    assert b"GPU-c01d97a7" not in here.output and b"GPU-c01d97a7" in there.output
    unpacked = tmp_path / "calls.jsonl"
    unpacked.write_bytes(contents(file)["driver-calls.jsonl"])
    assert gpu_series(warm.command(["once", "--backend", f"trace:{unpacked}"]).output).keys() == own.keys()


def test_a_driver_that_cannot_be_opened_costs_its_trace_alone(tmp_path: Path) -> None:
    file = bundle_of_driver(tmp_path, "mismatch")
    entries = {each["file"]: each.get("missing", "") for each in json.loads(contents(file)["index.json"])}
    assert "NVML cannot be opened" in entries["driver-calls.jsonl"] and entries["doctor.txt"] == ""


def test_a_part_that_fails_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    file, ended = bundle(tmp_path, "--url", "http://127.0.0.1:1", config="rack: {peers: [nameofmine]}")
    files = contents(file)
    missing = {each["file"]: each["missing"] for each in json.loads(files["index.json"]) if "missing" in each}
    assert missing.keys() == {"snapshot.json", "config.json", "recording.coldplate", "driver-calls.jsonl"}
    assert "cannot be used" in missing["config.json"]
    assert ended.status == 0 and ended.output.count(b"MISSING: ") == 4
    assert b"rack.peers: cannot be used" in files["doctor.txt"]
    assert not [name for name, content in files.items() if b"nameofmine" in content]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_text("mine")
    file, ended = bundle(tmp_path)
    assert (ended.status, file.read_text()) == (2, "mine")
    assert ended.error.endswith(b"b.tar.gz exists; name another file, or remove this one\n")


@pytest.mark.parametrize("words", [["--json"], ["--bundle-seconds", "0"], ["--bundle-seconds", "601"]])
def test_a_mistake_leaves_no_file_behind(tmp_path: Path, words: list[str]) -> None:
    file, ended = bundle(tmp_path, *words)
    assert (ended.status, file.exists()) == (2, False)
    assert ended.error.startswith(f"coldplate doctor: {words[0]}: ".encode())


def test_seconds_without_a_bundle_are_a_mistake() -> None:
    ended = warm.command(["doctor", "--bundle-seconds", "5"])
    assert (ended.status, ended.error) == (2, b"coldplate doctor: --bundle-seconds: needs --bundle\n")


def test_a_part_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_bundle, "MAX_FILE", 3)
    parts: list[support_bundle.BundlePart] = [("a", "more", lambda: b"1234"), ("b", "x", lambda: b"1")]
    with (tmp_path / "b.tar.gz").open("wb") as archive:
        support_bundle._fill(archive, parts, Redaction(b"k"))
    files = contents(tmp_path / "b.tar.gz")
    assert files.keys() == {"index.json", "b"}
    assert json.loads(files["index.json"])[0] == {"file": "a", "holds": "more", "missing": "larger than 3 bytes"}
