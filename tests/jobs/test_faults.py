"""What is unreadable, strange or gone is left out, counted, and said once; it never raises."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backends.jobs.job_files import read_file
from agent.lib.proc_stat import parse_stat
from agent.model import Reason
from tests.jobs.rig import LOGIN, SLURM, Rig
from tests.waiting import wait_until


def test_what_permissions_hide_is_missing_facts_and_no_missing_series(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """MetricsMissing counts gaps of these reasons, but not of coldplate_job_info, an option of the installation."""
    rig.socket.touch()
    rig.mapping.mkdir()
    (rig.mapping / "3").symlink_to("3")
    rig.run(0, 100, SLURM.format(4711), None)
    rig.run(1, 101, LOGIN, None)
    with caplog.at_level(logging.WARNING, logger="coldplate.jobs"):
        rig.look()
    alerting = {Reason.DENIED, Reason.MALFORMED, Reason.IMPLAUSIBLE}
    assert {gap.metric.name for gap in rig.sample.gaps if gap.reason in alerting} == {"coldplate_job_info"}
    assert [rig.up(way) for way in ("jobs_environ", "jobs_kubelet", "jobs_mapping", "jobs_procfs")] == [0, 0, 0, 1]
    assert rig.problems() == {"unreadable": 2, "kubelet": 1, "mapping": 1}
    assert "job names: " in caplog.text


def test_every_file_may_be_gone_at_any_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The process ends before the nth file is read, for each n: it is counted, and no line of the log is about it."""
    caplog.set_level(logging.INFO, logger="coldplate.jobs")
    for moment in range(8):
        rig = Rig(tmp_path / str(moment))
        rig.run(0, 100, SLURM.format(1), {})
        rig.run(1, 101, SLURM.format(2), {})
        reads = 0

        def read(path: str, most: int, rig: Rig = rig, moment: int = moment) -> bytes:
            nonlocal reads
            if "/100/" in path:
                if reads == moment:
                    rig.proc.end(100)
                reads += 1
            return read_file(path, most)

        rig.open(read=read)
        rig.look()
        ended = moment < reads
        assert rig.jobs() == {("slurm", "2"): ["1"]} if ended else len(rig.jobs()) == 2
        assert rig.problems() == ({"vanished": 1} if ended else {})
    assert caplog.records == []


def test_a_reused_process_id_is_another_job_and_during_a_read_one_for_the_next(rig: Rig) -> None:
    replaced = False

    def read(path: str, most: int) -> bytes:
        content = read_file(path, most)
        if replaced and path.endswith("/cgroup"):
            rig.proc.process(100, SLURM.format(3), {}, started=30)
        return content

    rig.open(read=read)
    rig.run(0, 100, SLURM.format(1), {}, started=10)
    assert list(rig.look().jobs()) == [("slurm", "1")]
    rig.proc.process(100, SLURM.format(2), {}, started=20)
    replaced = True
    assert rig.look().jobs() == {}
    replaced = False
    assert list(rig.look().jobs()) == [("slurm", "3")]


def test_processes_that_procfs_never_shows_or_that_may_not_be_looked_at_are_reported(rig: Rig) -> None:
    denied = False

    def read(path: str, most: int) -> bytes:
        if denied:
            raise PermissionError(13, "Permission denied", path)
        return read_file(path, most)

    rig.open(read=read)
    rig.put(0, 4000)
    assert rig.look().up("jobs_procfs") == 1  # it may have ended just now
    assert rig.look().up("jobs_procfs") == 0
    gap = rig.gap("coldplate_gpu_job_info")
    assert (gap.entity, gap.reason, "--path.procfs" in gap.detail) == (rig.gpus[0], Reason.LOST, True)
    assert rig.problems() == {"vanished": 1}
    denied = True
    rig.put(1, 100)
    rig.look()
    assert (rig.gap("coldplate_gpu_job_info").reason, rig.up("jobs_procfs")) == (Reason.DENIED, 0)
    assert rig.problems() == {"vanished": 1, "unreadable": 1}


def test_an_unknown_cgroup_is_a_session_counted_and_named(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for gpu in range(2):
        rig.run(gpu, 100 + gpu, "/weird/thing", {}, session=9)
    rig.run(2, 102, "/weird/other", {}, session=9)
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"):
        rig.look()
    assert rig.jobs() == {("session", "9@1000"): ["0", "1", "2"]}
    assert rig.problems() == {"unknown_cgroup": 2}
    (record,) = caplog.records
    assert (record.levelname, "/weird/thing" in record.getMessage()) == ("INFO", True)


@pytest.mark.parametrize("content", [b"", b"garbage", b"1 (x) S 1", b"1 (x) S a b c " + b"x " * 20, b"\xff" * 4000])
def test_a_garbled_stat_affects_only_that_process(rig: Rig, content: bytes) -> None:
    (rig.proc.process(100, SLURM.format(1), {}) / "stat").write_bytes(content)
    rig.put(0, 100)
    rig.run(1, 101, SLURM.format(2), {})
    assert list(rig.look().jobs()) == [("slurm", "2")]
    assert rig.problems() == {"malformed": 1}


def test_a_command_may_hold_anything() -> None:
    tail = b" S 7 8 9 0 -1 " + b"0 " * 13 + b"123 0 0"
    assert parse_stat(b"5 (a) b (c))" + tail).session == 9
    assert parse_stat(b"5 (\xff\n)" + tail).started == 123


def test_an_endless_environment_is_read_in_part(rig: Rig) -> None:
    rig.run(0, 100, SLURM.format(4711), b"X=" + b"y" * 1_000_000 + b"\0SLURM_JOB_ID=4711\0SLURM_JOB_NAME=n\0")
    assert rig.look().holder()["name"] == ""


NASTY = 'a"b\\c{d="e"}\n# HELP x\u202e'


def test_names_that_need_escaping_are_kept_but_for_what_a_terminal_obeys(rig: Rig) -> None:
    rig.open(lookup=lambda uid: 'DOM\\al"ice')
    rig.run(0, 100, SLURM.format(4711), {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": NASTY})
    row = rig.look().holder()
    assert (row["user"], row["name"]) == ('DOM\\al"ice', 'a"b\\c{d="e"}\ufffd# HELP x\ufffd')


def test_a_user_without_a_name_is_a_number_and_asked_for_again_later_for_all_ranks(rig: Rig) -> None:
    asked: list[int] = []

    def lookup(uid: int) -> str:
        asked.append(uid)
        if len(asked) < 2:
            raise KeyError(uid)
        return "carol"

    rig.open(lookup=lookup)
    rig.run(0, 100, SLURM.format(1), {}, uid=5000)
    assert rig.look().holder()["user"] == "5000"
    rig.run(1, 101, SLURM.format(1), {}, uid=5000)
    rig.run(2, 102, SLURM.format(2), {}, uid=5000)
    assert ([rig.look().holder(gpu)["user"] for gpu in range(3)], asked) == (["5000"] * 3, [5000])
    rig.look(after=700.0)
    assert [rig.holder(gpu)["user"] for gpu in range(3)] == ["carol"] * 3
    assert [row["user"] for row in rig.rows("coldplate_job_info")] == ["carol", "carol"]


def test_a_lookup_that_hangs_holds_up_no_job_and_its_name_comes_later(rig: Rig) -> None:
    answer, asked = threading.Event(), threading.Event()

    def lookup(uid: int) -> str:
        if uid == 5001:
            asked.set()
        assert answer.wait(10)
        return f"user{uid}"

    rig.open(lookup=lookup)
    for gpu in range(2):
        rig.run(gpu, 100 + gpu, SLURM.format(gpu + 1), {}, uid=5000 + gpu)
    try:
        rig.look()
        assert not answer.is_set()
        assert [(rig.holder(gpu)["job_id"], rig.holder(gpu)["user"]) for gpu in range(2)] == [
            ("1", "5000"),
            ("2", "5001"),
        ]
    finally:
        answer.set()
    assert asked.wait(10)
    look_until(rig, lambda: rig.holder(1)["user"] != "5001")
    assert [rig.holder(gpu)["user"] for gpu in range(2)] == ["user5000", "user5001"]


class Stuck:
    """Reads files, and hangs in those that end so, until let go. A pipe would not do: it is not waited for."""

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.gate = threading.Event()

    def __call__(self, path: str, most: int) -> bytes:
        if path.endswith(self.ending):
            self.gate.wait(60)
        return read_file(path, most)


def look_until(rig: Rig, holds: Callable[[], bool]) -> None:
    wait_until(lambda: bool(rig.look()) and holds())


def test_an_environment_that_hangs_costs_only_its_own_facts_until_it_answers(rig: Rig) -> None:
    """It is read under the lock of the process's memory, which a process that is stuck in the driver may hold."""
    for index, job in enumerate((4711, 4712)):
        environ = {"SLURM_JOB_ID": str(job), "SLURM_JOB_NAME": f"job {job}"}
        rig.run(index, 100 + index, SLURM.format(job), environ)
    rig.open(read=(stuck := Stuck("100/environ")))
    for _ in range(3):
        rig.look()
        assert (rig.holder(0)["job_id"], rig.holder(0)["name"]) == ("4711", "")
        assert (rig.holder(1)["job_id"], rig.holder(1)["name"]) == ("4712", "job 4712")
        assert (rig.up("jobs_environ"), rig.problems()) == (0, {"unreadable": 1})
    stuck.gate.set()
    look_until(rig, lambda: rig.holder(0)["name"] == "job 4711")
    assert rig.up("jobs_environ") == 1


def test_a_process_that_does_not_answer_at_all_is_a_gap_of_its_gpu(rig: Rig) -> None:
    for index in range(2):
        rig.run(index, 100 + index, SLURM.format(100 + index), {})
    rig.open(read=(stuck := Stuck("100/stat")))
    for _ in range(2):
        (gap,) = [each for each in rig.look().sample.gaps if each.reason is Reason.TIMEOUT]
        assert gap.entity == rig.gpus[0]
        assert "/100/stat: no answer for" in gap.detail
        assert rig.holder(1)["job_id"] == "101"
        assert rig.up("jobs_procfs") == 0
    stuck.gate.set()
    look_until(rig, lambda: bool(rig.holders(0)))


def test_a_mapping_file_that_hangs_affects_only_itself(rig: Rig) -> None:
    rig.mapping.mkdir()
    for index, job in ((0, 7), (1, 8)):
        (rig.mapping / str(index)).write_text(f"{job}\n")
    rig.open(read=(stuck := Stuck("mapping/0")))
    for _ in range(2):
        assert [holder["job_id"] for holder in rig.look().holders(1)] == ["8"]
        assert rig.holders(0) == []
        assert rig.up("jobs_mapping") == 0
    stuck.gate.set()
    look_until(rig, lambda: [holder["job_id"] for holder in rig.holders(0)] == ["7"])
