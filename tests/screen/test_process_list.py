"""The processes of a GPU: whose they are, in which order they are listed, and what is said where there is no list."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.backends.jobs.environments import system_name
from agent.backends.protocol import GpuProcess
from agent.backends.synthetic import SyntheticSource, load_scenario
from agent.backends.synthetic.job_processes import FIRST_PID, owner_of
from agent.commands.top.local_sampling import MOST_PROCESSES, ProcfsOwners, list_processes, scenario_owners
from agent.commands.top.screen.frame import draw
from agent.commands.top.screen.key_input import OneGpu, UiState
from agent.commands.top.screen.node_samples import ProcessRow, Sighting
from agent.commands.top.screen.text_layout import ASCII, TextLayout
from agent.commands.top.screen.view_builder import ViewKeeper
from agent.model import Gpu, Instant, Lane
from tests import warm
from tests.exporters.conftest import reading
from tests.frames import snapshot_of

GPU = Gpu("0", "GPU-a")


def zoomed(processes: Mapping[Gpu, Sequence[ProcessRow]] | None) -> list[str]:
    """The lines of the zoom pane of a GPU with these processes."""
    snapshot = snapshot_of(1, Instant(100.0, 1.7e9), [reading("coldplate_gpu_up", 1.0, GPU)])
    scene = ViewKeeper(1.0).scene([Sighting("n", "sampled here", snapshot, mono=100.0, processes=processes)], 100.0)
    lines, _ = draw(scene, UiState(zoom=OneGpu(("n", "GPU-a"))), TextLayout(80, None, ASCII))
    return [line.plain.rstrip() for line in lines]


def test_a_process_is_a_line_and_what_is_not_known_of_it_is_no_zero() -> None:
    shown = zoomed({GPU: [ProcessRow(71, 3 * 2**30, "ada", "python3"), ProcessRow(72, None, "", "")]})
    place = next(place for place, line in enumerate(shown) if line.startswith("PROCESSES"))
    assert [line.split() for line in shown[place + 1 : place + 4]] == [
        ["PID", "USER", "MEMORY", "COMMAND"],
        ["71", "ada", "3072", "MiB", "python3"],
        ["72", "-", "-", "-"],
    ]


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


def test_a_long_list_says_how_many_are_left_out() -> None:
    shown = zoomed({GPU: [ProcessRow(pid, 2**20, "ada", "python3") for pid in range(1, 21)]})
    assert "  and 12 more" in shown


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
    owners = ProcfsOwners(tmp_path)
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


def test_json_has_the_processes_of_a_node_that_is_sampled_here() -> None:
    ended = warm.command(["top", "--json", "--interval", "100ms", "--scenario", "idle"])
    assert ended.status == 0, ended.error.decode()
    (node,) = json.loads(ended.output)["nodes"]
    assert all(gpu["processes"] in ([], None) for gpu in node["gpus"])  # None until the driver was first asked
