"""Environments that the agent may not read: the broker is asked, and costs nothing but what it would have told."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.backends.jobs.environments import RETRY_SECONDS
from agent.backends.jobs.job_files import read_file
from agent.broker.answering import Broker, serve
from agent.broker.asking import BrokerError
from agent.model import Reason
from tests.broker.conftest import IDLE, in_thread, listening
from tests.jobs.rig import SLURM, TICKS, Rig

LLAMA = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "SLURM_JOB_ACCOUNT": "science", "SECRET": "xyzzy"}


def closed(path: str, most: int) -> bytes:
    """procfs as an unprivileged reader sees it."""
    if path.endswith("/environ"):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return read_file(path, most)


class Told:
    """A broker that answers each process with an environment, or fails."""

    def __init__(self, answer: bytes | OSError | Callable[[int], bytes]) -> None:
        self.answer = answer
        self.asked: list[tuple[int, int]] = []

    def __call__(self, pid: int, started: int) -> bytes:
        self.asked.append((pid, started))
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer(pid) if callable(self.answer) else self.answer


ABSENT = BrokerError(errno.ENOENT, "No such file or directory", "/run/coldplate-broker.sock")
HANGS = BrokerError(errno.ETIMEDOUT, "no answer within 2 s", "/run/coldplate-broker.sock")


@pytest.fixture
def broker(rig: Rig, tmp_path: Path) -> Iterator[None]:
    """A real one, at the socket that the rig's backend asks."""
    answering = Broker(lambda: 0.0, str(rig.proc.root))
    peers = frozenset({os.getuid()})
    path = tmp_path / "broker.sock"
    with in_thread(listening(path), lambda listener: serve(listener, answering, peers, IDLE)):
        yield


def test_a_real_broker_gives_name_and_account(rig: Rig, broker: None) -> None:
    rig.open(read=closed)
    rig.run(0, 100, SLURM.format(4711), LLAMA)
    rig.look()
    (facts,) = rig.rows("coldplate_job_info")
    assert (facts["job_id"], facts["name"], facts["account"]) == ("4711", "llama", "science")
    assert (rig.up("jobs_environ"), rig.gap("coldplate_job_info"), rig.problems()) == (1, None, {})


def test_a_process_on_which_the_broker_hangs_affects_only_its_own_name(rig: Rig) -> None:
    def answer(pid: int) -> bytes:
        if pid == 100:
            raise HANGS
        return f"SLURM_JOB_ID={pid}\0SLURM_JOB_NAME=job {pid}\0".encode()

    stuck = Told(answer)
    rig.open(read=closed, ask=stuck)
    for index, pid in enumerate((100, 101, 102)):
        rig.run(index, pid, SLURM.format(pid), {})
    rig.look()
    assert [pid for pid, _ in stuck.asked] == [100], "the others wait, so that a look does not take forever"
    rig.look(after=RETRY_SECONDS)
    assert [rig.holder(index)["name"] for index in range(3)] == ["", "job 101", "job 102"]
    rig.look(after=RETRY_SECONDS)
    assert [pid for pid, _ in stuck.asked] == [100, 101, 102, 100]
    assert [rig.holder(index)["name"] for index in range(3)] == ["", "job 101", "job 102"]
    gap = rig.gap("coldplate_job_info")
    assert "no answer within 2 s" in gap.detail


def test_only_an_unreadable_environment_is_requested_with_its_process_start(rig: Rig) -> None:
    for read, name, asked in ((closed, "", [(100, 77 * TICKS)]), (read_file, "llama", [])):
        rig.open(ask=(ask := Told(b"SLURM_JOB_NAME=other\0")), read=read)
        rig.run(0, 100, SLURM.format(4711), LLAMA, started=77)
        rig.look()
        assert (rig.look().holder()["name"], ask.asked) == (name, asked)


def test_a_process_that_ends_or_is_replaced_during_the_request_is_not_hidden(rig: Rig) -> None:
    def answer(pid: int) -> bytes:
        if pid == 101:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        rig.proc.process(pid, SLURM.format(2), {}, started=20)
        return b"SLURM_JOB_ID=1\0SLURM_JOB_NAME=first\0"

    rig.open(read=closed, ask=Told(answer))
    for pid in (100, 101):
        rig.run(0, pid, SLURM.format(1), {}, started=10)
    assert (rig.look().jobs(), rig.problems(), rig.gap("coldplate_job_info")) == ({}, {"vanished": 2}, None)


@pytest.mark.parametrize(
    "failure",
    [
        ABSENT,
        HANGS,
        BrokerError(errno.EBADMSG, "3 bytes that do not answer", "/run/coldplate-broker.sock"),
        PermissionError(errno.EACCES, "the broker got the error: Permission denied"),
    ],
    ids=["absent", "hangs", "lies", "denied as well"],
)
def test_without_an_answer_jobs_are_known_by_their_cgroup_and_the_rest_is_reported(
    rig: Rig, caplog: pytest.LogCaptureFixture, failure: OSError
) -> None:
    rig.open(read=closed, ask=Told(failure))
    for gpu in range(3):
        rig.run(gpu, 100 + gpu, SLURM.format(4711), LLAMA)
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"):
        for _ in range(20):
            rig.look()
    assert (rig.holder()["job_id"], rig.holder()["user"], rig.holder()["name"]) == ("4711", "alice", "")
    gap = rig.gap("coldplate_job_info")
    assert gap.reason is Reason.DENIED
    assert f"{rig.proc.root}/100/environ: Permission denied" in gap.detail
    assert str(failure.strerror) in gap.detail
    assert (rig.up("jobs_environ"), rig.problems()) == (0, {"unreadable": 3})
    assert [record.getMessage() for record in caplog.records] == [gap.detail]


def test_a_failing_broker_is_paused_and_its_recovery_is_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    ask = Told(ABSENT)
    rig.open(read=closed, ask=ask)
    for pid in range(100, 164):
        rig.run(0, pid, SLURM.format(4711), {})
    for after, asked in ((0.0, 1), (RETRY_SECONDS - 1, 1), (1.0, 2)):
        rig.look(after)
        assert len(ask.asked) == asked
    ask.answer = b"SLURM_JOB_ID=4711\0SLURM_JOB_NAME=llama\0"
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"):
        rig.look(after=RETRY_SECONDS)
    assert (rig.holder()["name"], rig.gap("coldplate_job_info")) == ("llama", None)
    assert [record.getMessage() for record in caplog.records] == ["source recovered: job names"]


def test_a_broker_that_lies_names_no_other_job_than_the_kernel_does(rig: Rig) -> None:
    rig.open(read=closed, ask=Told(b"SLURM_JOB_ID=9\0SLURM_JOB_NAME=\x1b[31mred\0SLURM_JOB_ACCOUNT=" + b"x" * 5000))
    rig.run(0, 100, SLURM.format(4711), {})
    assert (rig.look().holder()["job_id"], rig.holder()["name"]) == ("4711", "")


@pytest.mark.parametrize("code", [errno.EIO, errno.ETIMEDOUT], ids=["fails", "hangs"])
def test_a_failing_or_hanging_environment_names_its_file_and_skips_the_broker(
    rig: Rig, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    well, hangs = False, code == errno.ETIMEDOUT

    def broken(path: str, most: int) -> bytes:
        if path.endswith("/environ") and not well:
            raise OSError(code, "it broke", path)
        return read_file(path, most)

    ask = Told(b"SLURM_JOB_NAME=other\0")
    rig.open(read=broken, ask=ask)
    rig.run(0, 100, SLURM.format(4711), LLAMA)
    rig.look()
    detail = f"job names: {rig.proc.root}/100/environ: {os.strerror(code)}"
    assert [record.getMessage() for record in caplog.records] == [detail]
    gap = rig.gap("coldplate_job_info")
    assert (None if gap is None else gap.detail) == (None if hangs else detail)  # a hang is no lack of a permission
    assert (rig.holder()["job_id"], rig.holder()["name"], ask.asked) == ("4711", "", [])
    well = True
    assert rig.look(after=1.0).holder()["name"] == (
        "llama" if hangs else ""
    )  # what hung is read again at the next look
    assert (rig.look(after=RETRY_SECONDS).holder()["name"], rig.gap("coldplate_job_info")) == ("llama", None)
