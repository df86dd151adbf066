"""What the privileged side tells, to whom, and that nothing which is asked makes it say more."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.broker.answering import Broker, serve, user_of
from agent.broker.questions import (
    KEYS,
    LONGEST,
    LONGEST_ANSWER,
    QUESTION,
    ask_power,
    ask_variables,
    job_variables,
    joined,
    parse_answer,
    parse_question,
)  # fmt: skip
from tests.broker.conftest import Bmc, listening
from tests.jobs.rig import TICKS, Proc

STARTED = 5000 * TICKS
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "xyzzy"}


def broker(proc: Proc, bmc: Bmc | None = None, clock: Callable[[], float] = lambda: 0.0) -> Broker:
    return Broker(clock, str(proc.root), lambda: "/dev/ipmi0" if bmc else None, (bmc or Bmc()).open)


def told(answering: Broker, question: bytes) -> tuple[int, bytes]:
    return parse_answer(question, answering.answer(question))


def test_the_known_variables_of_a_process_are_reported_and_no_others(proc: Proc) -> None:
    proc.process(100, "/", SLURM)
    assert told(broker(proc), ask_variables(100, STARTED)) == (0, b"SLURM_JOB_ID=4711\0SLURM_JOB_NAME=llama\0")


@given(st.lists(st.tuples(st.one_of(st.sampled_from(sorted(KEYS)), st.binary(max_size=12)), st.binary(max_size=40))))
def test_nothing_else_of_any_environment_is_reported(entries: list[tuple[bytes, bytes]]) -> None:
    environ = b"\0".join(key + b"=" + value for key, value in entries)
    answered = joined(job_variables(environ))
    assert all(entry.partition(b"=")[0] in KEYS for entry in answered.split(b"\0")[:-1])
    assert joined(job_variables(answered)) == answered


def test_the_longest_environment_fits_into_an_answer(proc: Proc) -> None:
    proc.process(100, "/", b"\0".join(key + b"=" + b"x" * 10 * LONGEST for key in sorted(KEYS)))
    question = ask_variables(100, STARTED)
    answer = broker(proc).answer(question)
    assert len(answer) < LONGEST_ANSWER
    assert len(job_variables(parse_answer(question, answer)[1])) == len(KEYS)


@pytest.mark.parametrize("started", [0, STARTED - 1, STARTED + 1, 2**63])
def test_a_process_that_was_started_at_another_time_is_another_one(proc: Proc, started: int) -> None:
    proc.process(100, "/", SLURM)
    assert told(broker(proc), ask_variables(100, started)) == (errno.ESRCH, b"")


def test_a_process_that_is_gone_or_cannot_be_read_is_an_error_number(proc: Proc) -> None:
    proc.process(100, "/", None)  # its environ is a directory
    assert told(broker(proc), ask_variables(100, STARTED)) == (errno.EISDIR, b"")
    assert told(broker(proc), ask_variables(101, STARTED)) == (errno.ENOENT, b"")


@pytest.mark.parametrize("stat", [b"", b"100 (x)", b"100 (x) S 1", b"100 (x) S" + b" x" * 40, b"\xff" * 2000])
def test_a_garbled_stat_is_not_a_process(proc: Proc, stat: bytes) -> None:
    (proc.process(100, "/", SLURM) / "stat").write_bytes(stat)
    assert told(broker(proc), ask_variables(100, STARTED)) == (errno.ESRCH, b"")


def test_a_number_that_is_reused_between_the_two_files_reveals_nothing_of_the_new_process(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that was opened stays the old process's, as procfs has it too."""
    directory = proc.process(100, "/", {"SLURM_JOB_ID": "1"})
    import agent.broker.answering as answering

    read = answering._content

    def content(descriptor: int, name: str, most: int) -> bytes:
        data = read(descriptor, name, most)
        if name == "stat":
            directory.rename(proc.root / "gone")
            proc.process(100, "/", {"SLURM_JOB_ID": "2"}, started=6000)
        return data

    monkeypatch.setattr(answering, "_content", content)
    assert told(broker(proc), ask_variables(100, STARTED)) == (0, b"SLURM_JOB_ID=1\0")


def test_the_controller_is_asked_once_a_second_at_most_and_released_each_time(proc: Proc) -> None:
    times = iter([0.0, 0.5, 1.0])
    bmc = Bmc(b"\x00\xdc\x10")
    answering = broker(proc, bmc, lambda: next(times))
    answers = [told(answering, ask_power()) for _ in range(3)]
    assert answers == [(0, b"\x00\xdc\x10"), (errno.EBUSY, b""), (0, b"\x00\xdc\x10")]
    assert (bmc.opened, bmc.closed) == (2, 2)


def test_a_controller_that_fails_gives_an_error_number_and_is_released(proc: Proc) -> None:
    bmc = Bmc(TimeoutError(errno.ETIMEDOUT, "no answer"))
    assert told(broker(proc, bmc), ask_power()) == (errno.ETIMEDOUT, b"")
    assert bmc.closed == 1
    assert told(broker(proc), ask_power()) == (errno.ENODEV, b"")


QUESTIONS = st.one_of(
    st.binary(max_size=40), st.builds(ask_variables, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    st.binary(min_size=QUESTION.size, max_size=QUESTION.size),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(QUESTIONS)
@example(ask_power() + b"\0")
@example(b"pwr1" + b"\xff" * 12)
@example(ask_variables(0, 0))
def test_every_request_gets_its_own_answer_or_none(proc: Proc, question: bytes) -> None:
    answer = broker(proc, Bmc()).answer(question)
    if parse_question(question) is None:
        assert answer == b""
    else:
        parse_answer(question, answer)


def ask(path: Path, message: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(30)
        peer.connect(str(path))
        peer.send(message)
        return peer.recv(LONGEST_ANSWER)


def test_a_stranger_gets_no_answer(proc: Proc, broker_at: Callable[..., Path]) -> None:
    proc.process(100, "/", SLURM)
    question = ask_variables(100, STARTED)
    assert parse_answer(question, ask(broker_at(), question))[0] == 0
    strangers = broker_at(peers=frozenset({4711}))
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it may hang up before the question is sent
        assert ask(strangers, question) == b""


def test_a_peer_that_says_nothing_and_one_that_goes_away_block_nothing_for_long(
    proc: Proc, broker_at: Callable[..., Path]
) -> None:
    proc.process(100, "/", SLURM)
    path = broker_at()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hasty:
            hasty.connect(str(path))
            hasty.send(ask_variables(100, STARTED))
        assert ask(path, b"nonsense") == b""
        question = ask_variables(100, STARTED)
        assert parse_answer(question, ask(path, question))[0] == 0


def test_it_ends_when_there_are_no_requests(tmp_path: Path, proc: Proc) -> None:
    with listening(tmp_path / "broker.sock") as listener:
        serve(listener, broker(proc), frozenset(), 0.01)


def test_the_user_of_a_connection_is_the_kernels_word() -> None:
    import os

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert user_of(ours) == os.getuid()
