"""The agent's side: a broker that is absent, hangs, lies or floods is an error, and never an answer."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.broker import asking
from agent.broker.asking import BrokerClient, BrokerError, explained
from agent.broker.questions import LONGEST_ANSWER, answer_to, ask_power, ask_variables, parse_answer
from tests.broker.conftest import IDLE, Bmc, in_thread, listening
from tests.jobs.rig import TICKS, Proc

STARTED = 5000 * TICKS


def test_variables_and_the_power_reading_arrive(proc: Proc, broker_at: Callable[..., Path]) -> None:
    proc.process(100, "/", {"SLURM_JOB_NAME": "llama", "HOME": "/home/alice"})
    client = BrokerClient(str(broker_at(Bmc(b"\x00\xdc\x01"))))
    assert client.installed
    assert client.variables(100, STARTED) == b"SLURM_JOB_NAME=llama\0"
    assert client.power_reading() == b"\x00\xdc\x01"
    client.close()


def test_what_the_broker_could_not_read_is_distinguished_from_a_broker_that_failed(
    proc: Proc, broker_at: Callable[..., Path]
) -> None:
    client = BrokerClient(str(broker_at()))
    with pytest.raises(FileNotFoundError) as gone:
        client.variables(100, STARTED)
    proc.process(100, "/", {}, started=6000)
    with pytest.raises(ProcessLookupError) as another:
        client.variables(100, STARTED)
    assert not isinstance(gone.value, BrokerError)
    assert not isinstance(another.value, BrokerError)
    assert "the broker got the error" in explained(another.value)


def test_an_absent_broker_is_named_with_its_remedy(tmp_path: Path) -> None:
    client = BrokerClient(str(tmp_path / "none.sock"))
    assert not client.installed
    with pytest.raises(BrokerError) as told:
        client.power_reading()
    assert (told.value.errno, told.value.filename) == (errno.ENOENT, str(tmp_path / "none.sock"))
    assert "systemctl enable --now coldplate-broker.socket" in explained(told.value)
    (tmp_path / "none.sock").touch()
    with pytest.raises(BrokerError):
        client.power_reading()


def answering(path: Path, reply: Callable[[socket.socket], object]):
    """A server that takes one connection after the other and does with it what a test wants."""

    def work(listener: socket.socket) -> None:
        listener.settimeout(IDLE)
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(30)
            connection.recv(100)
            reply(connection)

    return in_thread(listening(path), work)


def test_a_broker_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "VARIABLES_PATIENCE_SECONDS", 0.05)
    with answering(tmp_path / "s", lambda connection: connection.recv(100)), pytest.raises(BrokerError) as told:
        BrokerClient(str(tmp_path / "s")).variables(1, 1)
    assert told.value.errno == errno.ETIMEDOUT
    assert "journalctl" in explained(told.value)


def test_one_that_takes_no_connection_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "VARIABLES_PATIENCE_SECONDS", 0.05)
    with listening(tmp_path / "s"):
        client = BrokerClient(str(tmp_path / "s"))
        for _ in range(20):  # more than wait in its queue
            with pytest.raises(BrokerError):
                client.variables(1, 1)


def test_one_that_hangs_up_is_asked_once_more_for_it_may_have_ended_as_we_came(tmp_path: Path) -> None:
    connections = 0
    question = ask_variables(1, 1)

    def second_time(connection: socket.socket) -> None:
        nonlocal connections
        connections += 1
        if connections == 2:
            connection.send(answer_to(question, 0, b"HOSTNAME=x\0"))

    with answering(tmp_path / "s", second_time):
        assert BrokerClient(str(tmp_path / "s")).variables(1, 1) == b"HOSTNAME=x\0"
        with pytest.raises(BrokerError, match="closed without an answer"):
            BrokerClient(str(tmp_path / "s")).variables(1, 1)
    assert connections == 4


REPLIES = {
    "nothing": b"",
    "the answer to another question": answer_to(ask_variables(2, 1), 0, b"SLURM_JOB_NAME=other\0"),
    "the same number started later": answer_to(ask_variables(1, 2), 0, b"SLURM_JOB_NAME=other\0"),
    "the power": answer_to(ask_power(), 0, b"\x00\xdc"),
    "an error that no kernel has": answer_to(ask_variables(1, 1), 2**32 - 1),
    "too much": answer_to(ask_variables(1, 1), 0, b"x" * LONGEST_ANSWER),
    "half of it": answer_to(ask_variables(1, 1), 0)[:-1],
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
def test_no_false_answer_is_accepted(tmp_path: Path, reply: bytes) -> None:
    with answering(tmp_path / "s", lambda connection: connection.send(reply)), pytest.raises(BrokerError) as told:
        BrokerClient(str(tmp_path / "s")).variables(1, 1)
    assert told.value.errno in (errno.EBADMSG, errno.ECONNRESET)


def test_a_flood_is_only_one_message(tmp_path: Path) -> None:
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        for _ in range(10_000):
            connection.send(b"x" * LONGEST_ANSWER)
            sent += 1

    with answering(tmp_path / "s", flood), pytest.raises(BrokerError):
        BrokerClient(str(tmp_path / "s")).variables(1, 1)
    assert sent < 10_000


QUESTION = ask_variables(1, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=64), st.builds(lambda error, text: answer_to(QUESTION, error, text),
                                                   st.integers(0, 2**32 - 1), st.binary(max_size=64))))  # fmt: skip
@example(QUESTION)
def test_any_message_is_an_answer_to_this_question_or_refused(message: bytes) -> None:
    try:
        error, content = parse_answer(QUESTION, message)
    except ValueError:
        return
    assert os.strerror(error)
    assert message == answer_to(QUESTION, error, content)
