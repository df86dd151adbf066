"""`coldplate record` as its user has it: the command runs as it would alone, and its recording is there afterwards."""

import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from agent.commands.record.recorded_command import CommandProcesses
from agent.model import Instant
from agent.recording.recording_reader import Recording
from tests import warm
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "agent.cli", "record", "--backend", "none", "--interval", "100ms"]
LONG = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COLDPLATE_")}
    return {**plain, "PYTHONPATH": str(ROOT), **more}


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What the command says and ends with, in a process that need not load it."""
    ended = warm.command([*PROGRAM[3:], *words], folder=folder, environment=more)
    assert ended.status is not None, "it does not end"
    return subprocess.CompletedProcess(words, ended.status, ended.output.decode(), ended.error.decode())


def wait_for(path: Path, octets: int) -> None:
    wait_until(lambda: path.exists() and path.stat().st_size >= octets, 60)


def test_a_command_is_followed_to_its_end(tmp_path: Path) -> None:
    """Its output and status are its own, a grandchild whose parent is gone counts, and the host is recorded."""
    script = (
        "echo out; (sleep 99 & echo $! >orphan; exit); sleep 99 & read go <go; read it <orphan; kill $! $it; exit 3"
    )
    os.mkfifo(tmp_path / "go")
    started = subprocess.Popen(
        [*PROGRAM, "-o", "r", "--no-redact", "--", "sh", "-c", script], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with (tmp_path / "go").open("w"):  # all three are there
        wait_for(tmp_path / "r", (tmp_path / "r").stat().st_size + 2000)
    out, error = started.communicate(timeout=60)
    assert (started.returncode, out) == (3, "out\n")
    assert re.search(r"snapshots in r \(\d+ KiB\)", error)
    with Recording(tmp_path / "r") as recording:
        assert recording.header.command == ("sh", "-c", script)
        snapshots = list(recording.snapshots())
        assert recording.problems == []
    names = {each.metric.name for snapshot in snapshots for each in snapshot}
    assert {"coldplate_node_memory_total_bytes", "coldplate_recorded_processes"} <= names
    counts = [each.value for one in snapshots for each in one if each.metric.name == "coldplate_recorded_processes"]
    assert statistics.mode(counts) == 3.0, "the shell, its sleep, and the orphan"


def test_a_process_that_cannot_be_read_once_has_not_ended(tmp_path: Path) -> None:
    """Nor has its child, which is found by it: processor time is counted once, and not again when it is back."""

    def process(pid: int, parent: int, ticks: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        fields = f"{pid} (sh) S {parent} {pid} {pid} {' 0' * 7} {ticks} 0 {' 0' * 6} 77 0 2 0"
        (tmp_path / str(pid) / "stat").write_text(fields)

    followed = CommandProcesses(10, set, dict, tmp_path)
    command, child = (10, os.getpid()), (11, 10)

    def seen(second: float) -> list[float]:
        """Number of processes, seconds of a processor."""
        values = {each.series.metric.name: each.value for each in followed.frame(Instant(second, second)).readings}
        ticks = values["coldplate_recorded_process_cpu_seconds_total"] * os.sysconf("SC_CLK_TCK")
        return [values["coldplate_recorded_processes"], ticks]

    process(*command, ticks=100)
    process(*child, ticks=1000)
    assert seen(1) == [2, 1100]
    (tmp_path / "10" / "stat").write_text("")  # as from a kernel that is short of memory
    process(*child, ticks=1500)
    assert seen(11) == [2, 1600]
    process(*command, ticks=150)
    assert seen(21) == [2, 1650]
    shutil.rmtree(tmp_path / "11")
    assert seen(31) == [1, 1650]


def test_what_cannot_begin_is_told_in_a_line(tmp_path: Path) -> None:
    into, nowhere = ["-o", os.fspath(tmp_path / "r")], os.fspath(tmp_path / "none" / "r")
    synthetic = ["--backend", "synthetic"]
    cases = [
        ([*into, "--", "no-such-program"], 127, "cannot run 'no-such-program': "),
        ([*into, "--", "/etc"], 126, "cannot run '/etc': Permission denied"),
        (["-o", nowhere, "--", "true"], 125, f"{nowhere}: cannot be created: "),
        (["-o", nowhere], 1, f"{nowhere}: cannot be created: "),
        (["--delay", "5", "--", "true"], 125, "--delay: '5' is not a duration; "),
        (["--delay", "5"], 2, "--delay: '5' is not a duration; "),
        (
            [*into, *synthetic, "--scenario", "idel", "--", "echo", "ran"],
            125,
            "backends.scenario: there is no shipped scenario",
        ),
        ([*into, *synthetic, "--scenario", "idel"], 2, "backends.scenario: there is no shipped scenario"),
        ([*into, "--backend", f"replay:{nowhere}", "--", "echo", "ran"], 125, f"backends.replay.file: {nowhere}: "),
        ([*into, "--backend", f"trace:{nowhere}", "--", "echo", "ran"], 125, f"backends.trace: {nowhere}: "),
        ([*into, "--", "true"], 0, "nothing was recorded: the command ended before the first snapshot; "),
        (["--interval", "1h"], 2, "--interval: 1h is not from 100ms to 60s"),
    ]
    answers = warm.commands([[*PROGRAM[3:], *words] for words, _, _ in cases])
    for (words, status, said), ended in zip(cases, answers, strict=True):
        error = ended.error.decode()
        assert (ended.status, ended.output, error.count("\n")) == (status, b"", 1), (words, error)
        assert error.startswith(f"coldplate record: {said}")
    assert list(tmp_path.iterdir()) == []


def test_a_recording_has_what_an_agent_shows_of_the_rack_and_of_expectations(tmp_path: Path) -> None:
    """An alert about the rack's equipment, such as RackPumps, is found in a recording as on the node."""
    path = tmp_path / "r"
    ended = warm.command(["record", "--scenario", "pump-failure", "--duration", "4s", "-o", str(path)])
    assert ended.status == 0, ended.error.decode()
    with Recording(path) as recording:
        names = {reading.metric.name for snapshot in recording.snapshots() for reading in snapshot}
    assert {"coldplate_rack_equipment_up", "coldplate_rack_part_state", "coldplate_expectation_met"} <= names


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 7), (signal.SIGUSR1, 128 + signal.SIGUSR1)])
def test_signals_reach_the_command(tmp_path: Path, number: int, status: int) -> None:
    started = subprocess.Popen(
        [*PROGRAM, "-o", "r", "--", "sh", "-c", LONG], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    wait_for(tmp_path / "r", (tmp_path / "r").stat().st_size + 2000)
    started.send_signal(number)
    assert started.wait(60) == status
    started.communicate()
    with Recording(tmp_path / "r") as recording:
        list(recording.snapshots())
        assert recording.problems == []


def test_launched_by_the_environment_or_not_at_all(tmp_path: Path) -> None:
    """One recording a node where it is asked for; otherwise the very process becomes the command."""
    for asked in ({}, {"COLDPLATE_RECORD": "0"}, {"COLDPLATE_RECORD": "1", "SLURM_LOCALID": "3"}):
        done = run(tmp_path, "--if-env", "--", "sh", "-c", "exit 5", **asked)
        assert (done.returncode, done.stdout, done.stderr) == (5, "", "")
    done = run(tmp_path, "--if-env", "--", "sh", "-c", "exit 5", COLDPLATE_RECORD="/nowhere/at/all")
    assert done.returncode == 5, "what others launch runs though it cannot be recorded"
    assert done.stderr.startswith("coldplate record: not recording: /nowhere/at/all: cannot be created")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "into").mkdir()
    recorded = 'for i in $(seq 600); do [ "$(cat into/* | wc -c)" -gt 2000 ] && break; sleep 0.1; done; exit 5'
    done = run(tmp_path, "--if-env", "--", "sh", "-c", recorded, COLDPLATE_RECORD="into",
               COLDPLATE_RECORD_DURATION="100ms", SLURM_LOCALID="0", SLURM_JOB_ID="77")  # fmt: skip
    assert done.returncode == 5
    (file,) = (tmp_path / "into").iterdir()
    assert file.name.startswith("coldplate-host-")
    with Recording(file) as recording:
        assert recording.header.redacted
        assert recording.header.job.startswith("job-")


def test_what_is_in_a_file_is_told_and_copied(tmp_path: Path) -> None:
    assert run(tmp_path, "-o", "r", "--no-redact", "--duration", "300ms").returncode == 0
    told = run(tmp_path, "--info", "r").stdout
    assert "command:" not in told
    assert "redacted:    no" in told
    assert "left out:    alerts, and the power of the rack's other nodes\n" in told
    content = (tmp_path / "r").read_bytes()
    (tmp_path / "torn").write_bytes(content[:-3])
    copied = run(tmp_path, "--copy", "r", "torn", "-o", "both", COLDPLATE_RECORD_KEY="k")
    assert copied.returncode == 0
    assert "torn: ends in the middle of a record at byte" in copied.stderr
    (tmp_path / "half").write_bytes(content[: len(content) // 2])
    nothing = run(tmp_path, "--copy", "half", "-o", "nothing")
    assert (nothing.returncode, "nothing was copied" in nothing.stderr) == (1, True)
    done = run(tmp_path, "--info", "both", "/etc/hostname")
    assert "redacted:    yes" in done.stdout
    assert done.returncode == 1
    assert "hostname: is not a recording of coldplate's" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "kept"),
    [
        ("--duration 2s", 1, False),
        ("-- sh -c 'sleep 2; exit 7'", 7, False),
        ("--duration 2s --allow-no-gpu", 0, True),
        ("--duration 2s --backend none", 0, True),
        ("--duration 2s --backend synthetic", 0, True),
    ],
)
def test_a_recording_without_a_gpu_is_refused_unless_it_is_wanted(
    words: str, status: int, kept: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.coldplate"
    ended = warm.command(["record", "-o", str(path), *shlex.split(words)])
    error = ended.error.decode()
    assert (ended.status, path.exists()) == (status, kept), error
    assert ("--allow-no-gpu" in error) is not kept
    if "synthetic" in words:
        told = [warm.command([*command, str(path)]).output.decode() for command in (["record", "--info"], ["report"])]
        assert all("8 x NVIDIA H100" in each for each in told)
        info, report = (re.search(r"Z to [-:T\d]+Z\W+([.\d]+) s", each) for each in told)
        assert info is not None
        assert report is not None
        assert float(info[1]) == round(float(report[1]))
