"""`coldplate check`: its verdicts on every shipped scenario, what counts beside the devices, and how it fails."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import psutil
import pytest

from agent.backends.kmsg import read_xids
from agent.backends.synthetic import load_scenario, shipped_names
from agent.backends.synthetic.synthetic_source import past_xids, settled_at
from agent.catalogue import BY_NAME
from agent.commands.check import ASIDE
from agent.commands.check.check_output import as_json, as_text, status_of
from agent.commands.check.node_check import CheckEvidence, evaluate, in_background, learn_expectations, starved_seconds
from agent.commands.check.node_conditions import OneSampleRules
from agent.config.schema import Config, ConfigError
from agent.daemon.pausing import PauseRequest, boot_of, write_request
from agent.health.examination import CHECKS
from agent.health.expectations import NodeExpectations, load_expectations
from agent.health.verdicts import Verdict
from agent.lib.clock import clock
from agent.lib.proc_stat import parse_run_delay
from agent.model import BackendReport, Frame, Gpu, Instant, Layout, Outcome, Series, Snapshot
from tests import warm
from tests.daemon.conftest import library
from tests.fakes.nvml import build
from tests.kmsg.conftest import FakeLog
from tests.screen.agents import canned, serving
from tests.waiting import wait_until

__all__ = ["library"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "terminal.md").read_text()
NAMES = frozenset({*(check.name for check in CHECKS), *ASIDE})
DOCUMENTED = {name: int(code) for name, code in re.findall(r"^\| `([a-z-]+)` \| ([0-3]) \|", PAGE, re.MULTILINE)}
DEVICES = "synthetic"


@cache
def rules() -> OneSampleRules:
    """The shipped rules."""
    return OneSampleRules(Config(), Path())


def evidence_of(look, name: str) -> CheckEvidence:
    scenario = load_scenario(name)
    t = settled_at(scenario)
    xids = past_xids(scenario, t, Instant(5_000.0 + t, 1.7e9 + t))
    return CheckEvidence(look(name), DEVICES, xids=xids, conditions=rules().evaluate(look(name)))


def test_the_document_has_every_scenario_every_check_and_every_key_of_an_expectation() -> None:
    assert DOCUMENTED.keys() == set(shipped_names())
    checks = PAGE.partition("## Checks")[2].partition("## Expectations")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", checks, re.MULTILINE)) == NAMES
    keys = PAGE.partition("| Key | Meaning |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`(?=[,\s|])", keys)) >= set(NodeExpectations.__struct_fields__)


@pytest.mark.parametrize("name", shipped_names())
def test_every_scenario_has_the_documented_status(look, name: str) -> None:
    made = evaluate(evidence_of(look, name), NAMES, None, needs_agent=False)
    assert status_of(made) == DOCUMENTED[name]
    is_tray = load_scenario(name).topology.name in ("nvl72-tray", "nvl72-rack")
    assert made.expected.name == ("gb200-tray" if is_tray else "dgx-h100")
    text = as_text(made, False)
    assert text.startswith(f"COLDPLATE {('OK', 'WARNING', 'CRITICAL')[DOCUMENTED[name]]} - ")
    _, note, *more = text.splitlines()
    assert "alert rules look back further" in note
    assert bool(more) == (DOCUMENTED[name] > 0)


def test_the_text_is_for_people_and_the_object_for_programs(look) -> None:
    made = evaluate(evidence_of(look, "ib-flap"), NAMES, None, needs_agent=False)
    first, _, *more = as_text(made, False).splitlines()
    assert first.startswith(
        "COLDPLATE CRITICAL - infiniband-ports: 7 of 8 ports are active; not active: mlx5_3/1; InfinibandPortDown: "
    )
    assert first.endswith("; 17 of 19 checks ok (dgx-h100) | ok=17 warning=0 critical=2 unknown=0")
    assert [line.partition(":")[0] for line in more] == ["CRITICAL infiniband-ports", "CRITICAL InfinibandPortDown"]
    assert "(expected: at least 8 active ports); ibstat" in more[0]
    assert len(as_text(made, True).splitlines()) == 2 + len(made.findings)
    told = json.loads(as_json(made))
    assert (told["verdict"], told["exit_status"], told["expectations"]["name"]) == ("critical", 2, "dgx-h100")
    assert told["findings"][0]["name"] == "infiniband-ports"
    assert {"name", "verdict", "expected", "found", "remedy"} == told["findings"][0].keys()


def test_silence_is_the_drivers_only_where_it_was_given_the_time_to_answer(look) -> None:
    at = look("idle").at
    for reports, is_up, status in (
        ((), True, 2),
        ((), False, 3),
        ((BackendReport(DEVICES, Outcome.FAILED, 0.0, "hangs"),), False, 2),
        ((BackendReport(DEVICES, Outcome.ABSENT, 0.0, "no driver"),), True, 3),
    ):
        evidence = CheckEvidence(Snapshot(1, at, (), reports), DEVICES, is_up, xids=[])
        assert status_of(evaluate(evidence, NAMES, None, needs_agent=False)) == status
        named = load_expectations("dgx-h100")
        assert status_of(evaluate(evidence, NAMES, named, needs_agent=False)) == (2 if is_up or reports else 3)


def test_what_does_not_answer_in_time_is_left_alone() -> None:
    release = threading.Event()
    late = in_background(lambda: release.wait(60) and "late")
    assert late(clock().mono + 0.01, "no answer") == "no answer"
    assert in_background(lambda: "here")(clock().mono + 60, "no answer") == "here"
    release.set()


def test_the_whole_kernel_log_is_read_and_only_its_xids_are_taken() -> None:
    log = FakeLog()
    log.write("NVRM: loading", at=5.0)
    log.queue.append(BrokenPipeError())
    log.write("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", at=7.0)
    log.queue.append(b"garbage")
    (found,) = read_xids(log, Instant(10.0, 1000.0))
    assert (found.device, found.code, found.wall) == ("0000:1b:00", 79, 997.0)
    log.queue.append(PermissionError(1, "no"))
    with pytest.raises(PermissionError):
        read_xids(log, Instant(10.0, 1000.0))


def told(*arguments: str) -> tuple[int, str, str]:
    """The status of the command, and what it wrote."""
    ended = warm.command(["check", "--timeout", "20s", *arguments])
    return ended.status or 0, ended.output.decode(), ended.error.decode()


def check(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """The same of a process of its own, for what a library or an environment does to it."""
    done = subprocess.run([sys.executable, "-m", "agent.cli", "check", *arguments], cwd=ROOT, capture_output=True,
                          text=True, check=False, timeout=60, env={**os.environ, **environment})  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def is_left_behind(text: str) -> bool:
    """Whether some process has this text in its command line."""
    return any(text in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


def test_a_process_answers_about_a_hanging_driver_and_leaves_nobody_behind(tmp_path: Path) -> None:
    scenario = tmp_path / "hang-of-mine.yaml"
    scenario.write_text((ROOT / "agent/backends/synthetic/scenarios/driver-hang.yaml").read_text())
    status, out, _ = check("--scenario", str(scenario), "--timeout", "20s")
    assert status == DOCUMENTED["driver-hang"]
    assert "gpus-present: GPU 2 (never identified): timeout: " in out
    assert " critical=3 unknown=0" in out.splitlines()[0]
    wait_until(lambda: not is_left_behind(str(scenario)), 30)


def test_a_call_that_never_returns_is_critical_once_the_time_is_up(library: Path, tmp_path: Path) -> None:
    cases = {"hang-reads 3": "gpus-present: GPU 3 (GPU-", "hang-init": "driver: the driver has not answered for"}

    def hung(command: str) -> tuple[int, str, str]:
        control = tmp_path / command.replace(" ", "-")
        build.command(control, command)
        environment = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(control)}
        for timeout in ("10s", "40s"):  # a machine that is busy takes longer to get to the driver
            answer = check("--backend", "nvml", "--skip", "xids,infiniband-ports,nearest-hca", "--agent", "none",
                           "--timeout", timeout, **environment)  # fmt: skip
            if cases[command] in answer[1]:
                break
        return answer

    with ThreadPoolExecutor() as pool:
        for (status, out, error), found in zip(pool.map(hung, cases), cases.values(), strict=True):
            assert (status, error) == (2, "")
            assert found in out.splitlines()[0]


def test_a_library_that_cannot_be_loaded_is_critical_and_not_a_node_without_gpus(tmp_path: Path) -> None:
    """As where a container has mounted the libraries empty (soperator issue 2684)."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    status, out, _ = check("--agent", "none", "--only", "driver", "--timeout", "20s", LD_LIBRARY_PATH=str(tmp_path))
    assert (status, "libnvidia-ml.so.1 cannot be loaded: " in out, "file too short" in out) == (2, True, True)


@pytest.mark.parametrize(
    ("opening", "waited", "starved", "verdict"),
    [
        (0.3, 0.4, 0.0, Verdict.UNKNOWN),
        (0.3, 0.6, 0.0, Verdict.CRITICAL),
        (12.0, 5.9, 0.0, Verdict.UNKNOWN),
        (12.0, 6.1, 0.0, Verdict.CRITICAL),
        (0.3, 1.2, 0.8, Verdict.UNKNOWN),
        (0.3, 1.4, 0.8, Verdict.CRITICAL),
    ],
)
@pytest.mark.parametrize(("first", "names"), [(1.0, ["gpus-present"]), (0.0, ["driver", "gpus-present"])])
def test_a_gpu_has_longer_to_answer_on_a_busy_machine(
    opening: float, waited: float, starved: float, verdict: Verdict, first: float, names: list[str]
) -> None:
    """A machine that is very busy is not sick."""
    up = BY_NAME["coldplate_gpu_up"]
    layout = Layout(tuple(Series(up, Gpu(index, f"GPU-{index}")) for index in "01"))
    snapshot = Snapshot(1, Instant(5_000.0, 1.7e9), (Frame(layout, (first, 0.0)),))
    evidence = CheckEvidence(snapshot, "nvml", waited=waited, opening=opening, starved=starved)
    made = evaluate(evidence, names, None, needs_agent=False)
    assert [(each.name, each.verdict) for each in made.findings] == [(name, verdict) for name in names]


def test_devices_that_were_not_opened_in_time_are_unknown() -> None:
    snapshot = Snapshot(1, Instant(5_000.0, 1.7e9), ())
    made = evaluate(CheckEvidence(snapshot, "nvml", waited=0.0, opening=1.2), {"driver"}, None, needs_agent=False)
    assert [each.verdict for each in made.findings] == [Verdict.UNKNOWN]


def test_the_time_without_a_processor_is_that_of_the_thread_that_waited_longest() -> None:
    assert 0.0 <= starved_seconds(os.getpid()) < clock().mono
    assert starved_seconds(0) == 0.0
    assert parse_run_delay(b"12 2500000000 7\n") == 2.5
    with pytest.raises(ValueError):
        parse_run_delay(b"12\n")


def test_a_mistake_is_unknown_and_never_a_sick_node(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("gpus: eight\n")
    for arguments, words in (
        (["--skip", "infinband-ports"], "--skip: there is no check 'infinband-ports'; did you mean 'infiniband-ports'"),
        (["--timeout", "2 weeks"], "--timeout: "),
        (["--timeout", "0s"], "--timeout: 0s is not from 200ms to 10m"),
        (["--at", "5s"], "--at: needs --scenario"),
        (["--scenario", "idle", "--at", "2000d"], "--at: 2000d is not from 0s to 1000d"),
        (["--scenario", "idle", "--expect", str(bad)], "expectations: "),
        (["--scenario", "idle", "--expect", "dgx-h10"], "did you mean 'dgx-h"),
        (["--config.file", str(tmp_path / "none.yaml")], "none.yaml"),
        (["--backend", "none", "--learn"], "--learn: no GPU answers"),
        (["--scenario", "idle", "--learn", str(bad)], "bad.yaml exists; name another file"),
        (["--scenario", "idle", "--learn", str(tmp_path / "no" / "x")], "no/x: No such file or directory"),
    ):
        status, out, error = told(*arguments)
        assert (status, out, error.count("\n")) == (3, "", 1)
        assert error.startswith("coldplate check: ")
        assert words in error
    assert told("--expct", "x")[0] == 3


def test_a_driver_that_is_to_be_free_is_not_opened(library: Path, tmp_path: Path) -> None:
    """It would keep a GPU from being reset."""
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"state_dir: {tmp_path}\n")
    words = ["--config.file", str(config), "--backend", "nvml", "--only", "driver,gpu-count", "--expect", "dgx-h100",
             "--agent", "none", "--timeout", "20s"]  # fmt: skip
    here = boot_of(Path("/proc"))
    for boot, seconds, status in ((here, 60.0, 3), ("another", 60.0, 0), (here, -1.0, 0)):
        write_request(tmp_path, PauseRequest(clock().wall + seconds, boot))
        got, out, _ = check(*words, LD_LIBRARY_PATH=str(library))
        assert got == status
        assert ("driver: coldplate pause has released the driver until " in out) == (status == 3)


def test_a_node_without_gpus_is_well_if_it_is_to_have_none() -> None:
    status, out, _ = told("--backend", "none", "--agent", "none")
    assert (status, out.startswith("COLDPLATE OK - ")) == (0, True)


def test_learned_facts_are_expected_and_an_incomplete_node_teaches_nothing(look, tmp_path: Path) -> None:
    assert learn_expectations(CheckEvidence(look("idle"), DEVICES)).gpus == 8
    for snapshot, is_whole, why in (
        (look("idle"), False, "not everything was read in time"),
        (look("gpu-lost"), True, "1 of 8 GPUs do not answer"),
    ):
        with pytest.raises(ConfigError, match=why):
            learn_expectations(CheckEvidence(snapshot, DEVICES, is_whole=is_whole))
    assert told("--scenario", "idle", "--learn", str(tmp_path / "site.yaml"))[0] == 0
    config = tmp_path / "coldplate.yaml"
    config.write_text("expectations: site.yaml\n")
    status, out, _ = told("--scenario", "idle", "--config.file", str(config))
    assert (status, "19 of 19 checks ok" in out, "site.yaml)" in out) == (0, True, True)


# `coldplate check --url`: the verdict on a node by what its agent reports, and what is refused beside it.
Pages = Callable[[str], tuple[int, bytes]]


def test_a_node_is_judged_by_its_agent() -> None:
    with serving(canned("nvlink-down", 400)) as place:
        status, out, _ = told("--url", place, "--json", "--config.file", "/dev/null")
    page = json.loads(out)
    found = {each["name"]: each["verdict"] for each in page["findings"]}
    assert (status, page["verdict"]) == (2, "critical")
    assert (found["nvlinks"], found["agent"], found["driver"], found["gpu-count"]) == ("critical", "ok", "ok", "ok")
    assert [each["found"] for each in page["findings"] if each["name"] == "nvlink-speed"] == ["GPUs 0-7: 26.56 GB/s"]
    assert "xids" not in found
    assert "synthetic" in page["note"]


def test_an_agent_without_rules_is_skipped_and_a_silent_one_means_unknown() -> None:
    pages = canned("idle", 100)

    def without_rules(path: str) -> tuple[int, bytes]:
        return (404, b"") if path.startswith("/api/v1/alerts") else pages(path)

    with serving(without_rules) as place:
        status, out, _ = told("--url", place, "--json", "--config.file", "/dev/null")
    assert status == 0
    verdicts = {each["name"]: each["verdict"] for each in json.loads(out)["findings"]}
    assert verdicts["alerts"] == "skipped"
    status, out, error = told("--url", "127.0.0.1:1")
    assert (status, out) == (3, "")
    assert "Connection refused" in error and "systemctl status coldplate" in error


def test_gpus_that_are_not_read_are_not_said_to_have_no_expectations() -> None:
    """As in a pause: their models are those of before."""
    pages = canned("idle", 100)
    with serving(lambda path: (200, pages(path)[1].replace(b'"coldplate_gpu_up"', b'"coldplate_other_up"'))) as place:
        out = told("--url", place, "--config.file", "/dev/null")[1]
    assert "no GPU reported its model" in out and "no shipped expectations" not in out


@pytest.mark.parametrize("pages", [lambda _: (200, b"<html>"), lambda _: (503, b""), lambda _: (200, b"[]")])
def test_what_is_no_agent_leaves_the_node_unknown(pages: Pages) -> None:
    with serving(pages) as place:
        status, out, error = told("--url", place)
    assert (status, out, error.count("\n")) == (3, "", 1)
    assert error.startswith(f"coldplate check: http://{place}: ")


@pytest.mark.parametrize(
    "words", [["--backend", "none"], ["--scenario", "idle"], ["--learn"], ["--at", "5"], ["--agent", "none"]]
)
def test_options_of_this_node_are_refused_beside_an_agent(words: list[str]) -> None:
    status, out, error = told("--url", "127.0.0.1:1", *words)
    assert (status, out) == (3, "")
    assert error.startswith(f"coldplate check: {words[0]}: cannot be used with --url")
