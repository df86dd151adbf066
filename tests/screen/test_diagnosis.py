"""Why a GPU is slow, in words, for scenarios and for jobs that span nodes; and whose processes are on it."""

import json
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.backends.jobs.environments import system_name
from agent.backends.protocol import GpuProcess
from agent.backends.synthetic import SyntheticSource, load_scenario
from agent.backends.synthetic.scenario import FIRST_PID, owner_of
from agent.commands.top.local_sampling import MOST_PROCESSES, list_processes, procfs_owners, scenario_owners
from agent.commands.top.screen.frame import draw
from agent.commands.top.screen.key_input import OneGpu, UiState
from agent.commands.top.screen.machine_output import as_json
from agent.commands.top.screen.node_samples import NodeSample, ProcessRow
from agent.commands.top.screen.text_layout import ASCII, TextLayout
from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper
from agent.model import Alert, BackendReport, Gpu, IbPort, Instant, Lane, Outcome, Phase, Reading, Snapshot
from exporters.markup import Tone
from tests.exporters.conftest import reading
from tests.frames import snapshot_of
from tests.screen.scenes import scene_of, texts

FIRST_LINES = [  # what a straggler does is in the committed panes
    ("thermal-throttle", 600, "BAD GpuThrottled: The hardware throttles GPU 4 of"),
    ("healthy-training", 60, None),
    ("two-jobs", 60, None),
    ("gpu-lost", 100, "BAD GpuLost: GPU 3 of"),
    ("driver-hang", 100, "BAD GpuLost: GPU 2 of"),
    ("nvlink-down", 200, "BAD NvLinkDown: NVLinks down on GPU 2 of"),
    ("power-brake", 90, "BAD GpuPowerBrake: "),
    ("ecc-remap", 200, "BAD GpuEccErrors: GPU 4 of"),
    ("ib-flap", 75, "PENDING pending, fires in 11 s: InfinibandPortDown: InfiniBand port mlx5_3/1 of"),
]


@pytest.mark.parametrize(("scenario", "second", "first"), FIRST_LINES)
def test_the_worst_condition_is_the_first_line(scenario: str, second: int, first: str | None) -> None:
    lines = texts(scene_of(scenario, second, True, every=10).troubles)
    if first is None:
        assert lines == []
    else:
        assert lines[0].startswith(first)


GPUS = [Gpu(str(number), f"GPU-{number:08x}") for number in range(4)]


def busy(number: int, share: float, watts: float, job: str = "77") -> list[Reading]:
    gpu = GPUS[number]
    labels = {"scheduler": "slurm", "job_id": job, "user": "ada", "name": "x", "mig": "0", "shared": "false"}
    return [
        reading("coldplate_gpu_up", 1.0, gpu),
        reading("coldplate_gpu_utilization_ratio", share, gpu),
        reading("coldplate_gpu_power_watts", watts, gpu),
        reading("coldplate_gpu_power_limit_watts", 700.0, gpu),
        reading("coldplate_gpu_job_info", 1.0, gpu, **labels),
    ]


def scene_of_readings(*nodes: tuple[str, list[Reading]], reports: tuple[BackendReport, ...] = ()) -> ScreenData:
    at = Instant(5.0, 1e9)
    samples = [
        NodeSample(name, "here", snapshot_of(1, at, readings, reports), [], mono=5.0) for name, readings in nodes
    ]
    return ViewKeeper(1.0).scene(samples, 5.0)


def at_work(number: int, mhz: float, *reasons: str, limit: float = 700.0) -> list[Reading]:
    """An H200 in a matrix product, as one was measured, with this clock."""
    gpu = GPUS[number]
    usual = [reading for reading in busy(number, 0.99, 0.99 * limit) if "power_limit" not in reading.metric.name]
    return [
        *usual,
        reading("coldplate_gpu_power_limit_watts", limit, gpu),
        reading("coldplate_gpu_power_limit_default_watts", 700.0, gpu),
        reading("coldplate_gpu_clock_hertz", mhz * 1e6, gpu, domain="sm"),
        reading("coldplate_gpu_clock_limit_hertz", 1980e6, gpu, domain="sm"),
        *(reading("coldplate_gpu_throttle_active", 1.0, gpu, reason=reason) for reason in reasons),
    ]


def test_a_gpu_at_its_power_cap_is_shown_as_computing() -> None:
    keeper = ViewKeeper(1.0)
    for mono in (5.0, 35.0):
        states = reading("coldplate_gpu_state_seconds_total", mono, GPUS[0], state="computing")
        snapshot = snapshot_of(1, Instant(mono, 1e9 + mono), [*at_work(0, 1440.0, "sw_power_cap"), states])
        scene = keeper.scene([NodeSample("a", "here", snapshot, mono=mono)], mono)
    lines, _ = draw(scene, UiState(), TextLayout(120, None, ASCII))
    texts_of_lines = [line.plain for line in lines]
    assert "no rules are evaluated" in texts_of_lines[1], "nothing judges it"
    assert any(line.split()[:3] == ["?", "0", "computing"] for line in texts_of_lines)


def test_what_cannot_be_read_is_told_and_no_verdict_on_the_node() -> None:
    failed = BackendReport("infiniband", Outcome.FAILED, 0.1, "no permission")
    absent = BackendReport("nvml", Outcome.ABSENT, 0.1, "no driver here")
    lines = texts(scene_of_readings(("a", []), reports=(failed, absent)).troubles)
    assert lines == ["UNKNOWN no GPU here: no driver here", "UNKNOWN infiniband cannot be read: no permission"]
    quiet = draw(scene_of_readings(("a", []), reports=(absent,)), UiState(), TextLayout(80, 24))[0]
    assert "no GPU here: no driver here" in quiet[1].plain
    silent = texts(scene_of_readings(("a", [reading("coldplate_gpu_up", 0.0, GPUS[3])])).troubles)
    assert silent == ["UNKNOWN GPU 3: no answer"]


def alert(rule: str, severity: str, labels: dict[str, str], phase: Phase = Phase.FIRING) -> Alert:
    pairs = tuple(sorted({"alertname": rule, "severity": severity, **labels}.items()))
    fires_at = 1e9 + 30.0 if phase is Phase.PENDING else None
    return Alert(rule, pairs, phase, 1.0, 1e9 - 60.0, annotations={"summary": f"{rule} it is"}, fires_at=fires_at)


def test_a_gpu_is_coloured_by_the_worst_condition_that_fires_and_names_it() -> None:
    names = {"gpu": "1", "uuid": GPUS[1].uuid}
    conditions = [
        alert("GpuHot", "warning", names),
        alert("GpuXid", "critical", names, Phase.PENDING),
        replace(alert("GpuLost", "critical", names), inhibited_by="NodeDown"),
        alert("GpuHot", "critical", {"gpu": "2"}),
    ]
    readings = [each for number in (0, 1) for each in busy(number, 1.0, 690.0)]
    sample = NodeSample("a", "here", snapshot_of(1, Instant(5.0, 1e9), readings), conditions, mono=5.0)
    scene = ViewKeeper(1.0).scene([sample], 5.0)
    assert [gpu.tone for gpu in scene.nodes[0].gpus] == [Tone.GOOD, Tone.WARN]
    assert [each.rule for each in scene.nodes[0].gpus[1].row.conditions] == ["GpuHot", "GpuLost", "GpuXid"]
    assert scene.nodes[0].gpus[1].reasons.startswith("GpuHot: GpuHot it is; ")
    assert texts(scene.troubles) == [
        "BAD GpuHot: GpuHot it is",
        "WARN GpuHot: GpuHot it is",
        "PENDING pending, fires in 30 s: GpuXid: GpuXid it is",
    ]


def test_nodes_that_say_the_same_share_a_line() -> None:
    rack = alert("RackPowerHigh", "critical", {"rack": "r1"})
    samples = [
        NodeSample(f"n{number}", "here", snapshot_of(1, Instant(5.0, 1e9), busy(0, 1.0, 690.0)), [rack], mono=5.0)
        for number in range(5)
    ]
    assert texts(ViewKeeper(1.0).scene(samples, 5.0).troubles) == [
        "BAD n0, n1, n2 and 2 more: RackPowerHigh: RackPowerHigh it is"
    ]


def test_nothing_is_well_until_its_rules_are_evaluated() -> None:
    keeper, at = ViewKeeper(1.0), Instant(5.0, 1e9)
    ports = [reading("coldplate_infiniband_port_up", 1.0, IbPort("mlx5_0", "1"))]
    snapshot = snapshot_of(1, at, [*busy(0, 1.0, 690.0), *ports])
    by_reason = {}
    for reason in ("not all rules have been evaluated yet", ""):
        samples = [NodeSample(name, "here", snapshot, [], mono=5.0, unjudged=reason) for name in "ab"]
        scene = keeper.scene(samples, 5.0)
        tones = {tone for node in scene.nodes for tone in (node.gpus[0].tone, node.ports[0].tone)}
        zoomed = draw(scene, UiState(zoom=OneGpu(("a", GPUS[0].uuid))), TextLayout(80, 40))[0]
        drawn = "\n".join(line.plain for line in (*draw(scene, UiState(), TextLayout(80, 24))[0], *zoomed))
        by_reason[reason] = (texts(scene.troubles), tones, "nothing fires" in drawn, "no alert names this GPU" in drawn)
        assert f"alerts {'n/a' if reason else 'none'}" in drawn
        assert {node["unjudged"] for node in json.loads(as_json(scene))["nodes"]} == {reason or None}
    (late, early) = by_reason[""], by_reason["not all rules have been evaluated yet"]
    assert late == ([], {Tone.GOOD}, True, True)
    line = "UNKNOWN a, b: not all rules have been evaluated yet: what would fire is not known"
    assert early == ([line], {Tone.UNKNOWN}, False, False)


def test_old_data_are_said_to_be_old() -> None:
    watch = ViewKeeper(1.0)
    sample = NodeSample("a", "here", Snapshot(1, Instant(5.0, 1e9), ()), [], age=2.0, mono=10.0)
    assert texts(watch.scene([sample], 11.0).troubles) == ["UNKNOWN no GPU here"]
    assert texts(watch.scene([sample], 19.0).troubles) == ["WARN a: what is shown is 11 s old", "UNKNOWN no GPU here"]


GPU = Gpu("0", "GPU-a")


def zoomed(processes: Mapping[Gpu, Sequence[ProcessRow]] | None) -> list[str]:
    """The lines of the zoom pane of a GPU with these processes."""
    snapshot = snapshot_of(1, Instant(100.0, 1.7e9), [reading("coldplate_gpu_up", 1.0, GPU)])
    scene = ViewKeeper(1.0).scene([NodeSample("n", "sampled here", snapshot, mono=100.0, processes=processes)], 100.0)
    lines, _ = draw(scene, UiState(zoom=OneGpu(("n", "GPU-a"))), TextLayout(80, None, ASCII))
    return [line.plain.rstrip() for line in lines]


def test_a_process_is_a_line_without_zeros_for_gaps_and_a_long_list_is_counted() -> None:
    zoomed_lines = zoomed({GPU: [ProcessRow(71, 3 * 2**30, "ada", "python3"), ProcessRow(72, None, "", "")]})
    place = next(place for place, line in enumerate(zoomed_lines) if line.startswith("PROCESSES"))
    assert [line.split() for line in zoomed_lines[place + 1 : place + 4]] == [
        ["PID", "USER", "MEMORY", "COMMAND"],
        ["71", "ada", "3072", "MiB", "python3"],
        ["72", "-", "-", "-"],
    ]
    zoomed_lines = zoomed({GPU: [ProcessRow(pid, 2**20, "ada", "python3") for pid in range(1, 21)]})
    assert "  and 12 more" in zoomed_lines


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        (None, "processes: shown by coldplate top --no-attach on the node itself"),
        ({}, "processes: the driver does not list them"),
        ({GPU: []}, "processes: none"),
    ],
)
def test_one_line_says_why_there_is_no_list(processes: Mapping[Gpu, Sequence[ProcessRow]] | None, said: str) -> None:
    assert [line for line in zoomed(processes) if line.lower().startswith("processes")] == [said]


def test_those_with_the_most_memory_come_first_and_unknown_memory_last() -> None:
    processes = [GpuProcess(5), GpuProcess(4, 2**20), GpuProcess(3, 2**30), GpuProcess(2, 2**30)]
    listed = list_processes({GPU: processes}, lambda pid, _: (f"user{pid}", "x"), 0.0)
    assert [(process.pid, process.memory, process.user) for process in listed[GPU]] == [
        (2, 2**30, "user2"),
        (3, 2**30, "user3"),
        (4, 2**20, "user4"),
        (5, None, "user5"),
    ]
    many = [GpuProcess(pid, pid) for pid in range(1, 1000)]
    assert len(list_processes({GPU: many}, lambda *_: ("", ""), 0.0)[GPU]) == MOST_PROCESSES


def test_procfs_says_whose_a_process_is_and_what_it_runs(tmp_path: Path) -> None:
    for pid, uid in ((7, os.getuid()), (8, 3_000_000_000)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "status").write_text(f"Name:\ta b\nUid:\t{uid}\t0\t0\t0\n")
        (folder / "stat").write_text(f"{pid} (a (b) c) S 1 1 1 {'0 ' * 20}\n")
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "status").write_text("nothing of use\n")
    owners = procfs_owners(tmp_path)
    for _ in range(100):  # the name comes with a later look
        user, command = owners(7, 0.0)
        if user == pwd.getpwuid(os.getuid()).pw_name:
            break
        os.sched_yield()
    assert (user, command) == (system_name(os.getuid()), "a (b) c")
    assert owners(8, 0.0) == ("3000000000", "a (b) c")
    assert owners(9, 0.0) == owners(10, 0.0) == ("", "")


def test_a_synthetic_process_is_its_jobs_and_has_no_id_that_linux_gives() -> None:
    scenario = load_scenario("two-jobs")
    now = Instant(100.0, 1.7e9)
    *gpus, _ = SyntheticSource(scenario, 0.0).open(now)
    listed = {}
    for channel in gpus:
        assert channel.identity is not None
        listed[channel.identity.gpu] = channel.read(Lane.SLOW, now).processes or ()
    rows_by_gpu = list_processes(listed, scenario_owners(scenario), 0.0)
    for gpu, rows in rows_by_gpu.items():
        users = [job.user for job in scenario.jobs if int(gpu.index) in job.gpus and job.window.holds(100.0)]
        assert [process.user for process in rows] == users
        assert all(process.pid > 2**22 and process.memory and process.command == "python3" for process in rows)
    assert len({process.user for rows in rows_by_gpu.values() for process in rows}) == 2
    assert owner_of(scenario, FIRST_PID - 1) == ("", "")
