"""Why a GPU is slow, in words, for scenarios and for jobs that span nodes; and whose processes are on it."""

import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.backends.jobs.environments import system_name
from agent.backends.protocol import GpuProcess
from agent.backends.synthetic import SyntheticSource, load_scenario
from agent.backends.synthetic.scenario import FIRST_PID, owner_of
from agent.commands.top.local_sampling import MOST_PROCESSES, list_processes, procfs_owners, scenario_owners
from agent.commands.top.screen.frame import draw
from agent.commands.top.screen.key_input import OneGpu, UiState
from agent.commands.top.screen.node_samples import ProcessRow, Sighting
from agent.commands.top.screen.text_layout import ASCII, TextLayout
from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper
from agent.model import BackendReport, Gpu, IbPort, Instant, Lane, Node, Outcome, Rack, Reading, Snapshot
from exporters.markup import Tone
from tests.exporters.conftest import reading
from tests.frames import snapshot_of
from tests.screen.scenes import scene_of, texts

SAID = [  # what a straggler does is in the committed panes
    ("checkpoint-stall", 200, "WARN GPU 0 holds job 6002 up, 1% busy: 7 GPUs wait for it"),
    ("thermal-throttle", 600, "BAD GPU 4: the hardware halves its clocks because of heat (hw_thermal_slowdown);"),
    ("healthy-training", 60, None),
    ("two-jobs", 60, None),
    ("gpu-lost", 100, "BAD GPU 3 is lost: 7 GPUs wait for it in job 6006, 100% busy at 22% of their power limit"),
    ("driver-hang", 100, "BAD GPU 2: no answer for 40 s"),
    ("slow-gpu", 180, "WARN GPU 6 holds job 6003 up, slower than its peers: 945 MHz, 7 peers 1545 MHz; 407 W, 7 peers"),
    ("nvlink-down", 200, "BAD GPU 2: NVLink 7 down"),
    ("power-brake", 90, "BAD GPU 0–7: power brake by the node's power supply (hw_power_brake)"),
    ("ecc-remap", 200, "BAD GPU 4: the driver requests gpu reset; XID 48 (double bit ECC error), 1 min ago; a row"),
    ("ib-flap", 75, "BAD port mlx5_3/1 down: Down, Polling"),
    ("ib-symbol-errors", 120, "WARN port mlx5_6/1 errors: 4 link recoveries, 9 symbol errors"),
]


@pytest.mark.parametrize(("scenario", "second", "first"), SAID)
def test_what_a_scenario_does_is_the_first_sentence(scenario: str, second: int, first: str | None) -> None:
    told = texts(scene_of(scenario, second, every=10).troubles)
    if first is None:
        assert told == []
    else:
        assert told[0].startswith(first)


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


def seen(*nodes: tuple[str, list[Reading]], reports: tuple[BackendReport, ...] = ()) -> ScreenData:
    at = Instant(5.0, 1e9)
    told = [Sighting(name, "here", snapshot_of(1, at, readings, reports), mono=5.0) for name, readings in nodes]
    return ViewKeeper(1.0).scene(told, 5.0)


def test_a_slow_port_is_named_with_its_rate() -> None:
    rates = {IbPort("mlx5_0", "1"): 50e9, IbPort("mlx5_1", "1"): 12.5e9, IbPort("mlx5_2", "1"): 50e9}
    readings = [
        each
        for port, rate in rates.items()
        for each in (
            reading("coldplate_infiniband_port_up", 1.0, port),
            reading("coldplate_infiniband_rate_bytes_per_second", rate, port),
        )
    ]
    told = texts(seen(("a", readings)).troubles)
    assert told == ["WARN port mlx5_1/1 slow: 100 Gb/s, less than most of the node's ports"]


def test_a_job_of_two_nodes_names_the_gpu_of_the_other_node() -> None:
    scene = seen(
        ("a", [*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0)]), ("b", [*busy(2, 0.02, 120.0), *busy(3, 1.0, 150.0)])
    )
    assert texts(scene.troubles) == [
        "WARN b GPU 2 holds job 77 up, 2% busy: 3 GPUs wait for it, 100% busy at 21% of their power limit"
    ]
    waiting = scene.nodes[0].gpus[0]
    assert waiting.word == "waits"
    assert waiting.row.findings[0].text == "waits for b GPU 2: 100% busy at 21% of its power limit"


def at_work(number: int, mhz: float, *reasons: str, limit: float = 700.0) -> list[Reading]:
    """An H200 in a matrix product, as one was measured, with this clock."""
    gpu = GPUS[number]
    usual = [each for each in busy(number, 0.99, 0.99 * limit) if "power_limit" not in each.metric.name]
    return [
        *usual,
        reading("coldplate_gpu_power_limit_watts", limit, gpu),
        reading("coldplate_gpu_power_limit_default_watts", 700.0, gpu),
        reading("coldplate_gpu_clock_hertz", mhz * 1e6, gpu, domain="sm"),
        reading("coldplate_gpu_clock_limit_hertz", 1980e6, gpu, domain="sm"),
        *(reading("coldplate_gpu_throttle_active", 1.0, gpu, reason=reason) for reason in reasons),
    ]


CAPPED = [reading for number in range(1, 4) for reading in at_work(number, 1440.0, "sw_power_cap")]


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        (at_work(0, 1440.0, "sw_power_cap"), []),
        (at_work(0, 1440.0), ["WARN GPU 0: its clock is at 73% of the maximum"]),
        (at_work(0, 1440.0, "sw_power_cap", "application_clocks"), ["WARN GPU 0: its clock is at 73% of the maximum"]),
        (at_work(0, 1200.0, "sw_power_cap", limit=500.0), ["WARN GPU 0: its clock is at 61% of the maximum"]),
        ([*at_work(0, 1365.0, "sw_power_cap"), *CAPPED], []),
        (
            [*at_work(0, 945.0, "sw_power_cap"), *CAPPED],
            [
                "WARN GPU 0 holds job 77 up, slower than its peers: 945 MHz, 3 peers 1440 MHz; 693 W, 3 peers 693 W",
                "WARN GPU 0: its clock is at 66% of its job's other GPUs at the power cap",
            ],
        ),
    ],
)
def test_a_clock_at_the_power_cap_is_low_only_beside_its_peers(readings: list[Reading], said: list[str]) -> None:
    scene = seen(("a", readings))
    assert texts(scene.troubles) == said
    assert scene.nodes[0].gpus[0].word == ("slow" if said else "ok")


def test_a_gpu_at_its_power_cap_is_shown_as_computing() -> None:
    keeper = ViewKeeper(1.0)
    for mono in (5.0, 35.0):
        states = reading("coldplate_gpu_state_seconds_total", mono, GPUS[0], state="computing")
        snapshot = snapshot_of(1, Instant(mono, 1e9 + mono), [*at_work(0, 1440.0, "sw_power_cap"), states])
        scene = keeper.scene([Sighting("a", "here", snapshot, mono=mono)], mono)
    lines, _ = draw(scene, UiState(), TextLayout(120, None, ASCII))
    shown = [line.plain for line in lines]
    assert "nothing is wrong" in shown[1]
    assert any(line.split()[:2] == ["0", "computing"] for line in shown)


GONE = [reading("coldplate_gpu_up", 0.0, GPUS[3])]


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        # a GPU that lost its job with itself is still the one that is waited for
        ([*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0), *GONE], "GPU 3 does not answer: 2 GPUs wait for it in job 77"),
        # GPUs of another job are no peers
        ([*busy(0, 1.0, 690.0, "1"), *busy(1, 0.02, 120.0, "2")], None),
        # a job that waits for nobody seen here says where to look
        ([*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0)], "look at the job's other nodes"),
    ],
)  # fmt: skip
def test_a_job_of_one_node(readings: list[Reading], said: str | None) -> None:
    told = texts(seen(("a", readings)).troubles)
    assert told == [] if said is None else said in told[0]


def test_the_rack_is_told_near_its_budget_and_above() -> None:
    def told(watts: float) -> list[str]:
        rack = Rack("r12")
        readings = [
            reading("coldplate_rack_power_watts", watts, rack),
            reading("coldplate_rack_power_budget_watts", 40_000.0, rack),
        ]
        return texts(seen(("a", readings)).troubles)

    assert told(37_900.0) == []
    assert told(39_000.0) == ["WARN rack r12 draws 98% of its power budget"]
    assert told(42_000.0) == ["BAD rack r12 draws 105% of its power budget"]


def test_a_source_that_fails_is_told_and_one_that_is_absent_is_not_unless_gpus_are_expected() -> None:
    failed = BackendReport("infiniband", Outcome.FAILED, 0.1, "no permission")
    absent = BackendReport("nvml", Outcome.ABSENT, 0.1, "no driver here")
    scene = seen(("a", []), reports=(failed, absent))
    assert texts(scene.troubles) == ["WARN infiniband cannot be read: no permission"]
    assert scene.nodes[0].no_devices == "no driver here"
    quiet = draw(seen(("a", []), reports=(absent,)), UiState(), TextLayout(80, 24))[0]
    assert "no GPU here: no driver here" in quiet[1].plain
    assert "wrong" not in quiet[1].plain, "of no GPU nothing is known"
    scene = seen(("a", [*busy(0, 1.0, 690.0), reading("coldplate_gpus_expected", 8.0, Node())]))
    assert [each.tone for each in scene.troubles] == [Tone.BAD]
    assert "1 of 8 GPUs are present" in scene.troubles[0].text


def test_old_data_are_said_to_be_old() -> None:
    watch = ViewKeeper(1.0)
    sighting = Sighting("a", "here", Snapshot(1, Instant(5.0, 1e9), ()), age=2.0, mono=10.0)
    assert texts(watch.scene([sighting], 11.0).troubles) == []
    assert texts(watch.scene([sighting], 19.0).troubles) == ["WARN a: what is shown is 11 s old"]


GPU = Gpu("0", "GPU-a")


def zoomed(processes: Mapping[Gpu, Sequence[ProcessRow]] | None) -> list[str]:
    """The lines of the zoom pane of a GPU with these processes."""
    snapshot = snapshot_of(1, Instant(100.0, 1.7e9), [reading("coldplate_gpu_up", 1.0, GPU)])
    scene = ViewKeeper(1.0).scene([Sighting("n", "sampled here", snapshot, mono=100.0, processes=processes)], 100.0)
    lines, _ = draw(scene, UiState(zoom=OneGpu(("n", "GPU-a"))), TextLayout(80, None, ASCII))
    return [line.plain.rstrip() for line in lines]


def test_a_process_is_a_line_what_is_not_known_of_it_is_no_zero_and_a_long_list_says_how_many_are_left_out() -> None:
    shown = zoomed({GPU: [ProcessRow(71, 3 * 2**30, "ada", "python3"), ProcessRow(72, None, "", "")]})
    place = next(place for place, line in enumerate(shown) if line.startswith("PROCESSES"))
    assert [line.split() for line in shown[place + 1 : place + 4]] == [
        ["PID", "USER", "MEMORY", "COMMAND"],
        ["71", "ada", "3072", "MiB", "python3"],
        ["72", "-", "-", "-"],
    ]
    shown = zoomed({GPU: [ProcessRow(pid, 2**20, "ada", "python3") for pid in range(1, 21)]})
    assert "  and 12 more" in shown


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
    assert [(each.pid, each.memory, each.user) for each in listed[GPU]] == [
        (2, 2**30, "user2"), (3, 2**30, "user3"), (4, 2**20, "user4"), (5, None, "user5"),
    ]  # fmt: skip
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
    shown = list_processes(listed, scenario_owners(scenario), 0.0)
    for gpu, rows in shown.items():
        users = [job.user for job in scenario.jobs if int(gpu.index) in job.gpus and job.window.holds(100.0)]
        assert [each.user for each in rows] == users
        assert all(each.pid > 2**22 and each.memory and each.command == "python3" for each in rows)
    assert len({each.user for rows in shown.values() for each in rows}) == 2
    assert owner_of(scenario, FIRST_PID - 1) == ("", "")
