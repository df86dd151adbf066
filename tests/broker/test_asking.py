"""The agent's side: a broker that is absent, hangs, lies or floods is an error, and never an answer."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.broker import asking
from agent.broker.answering import Broker, user_of
from agent.broker.asking import BrokerClient, BrokerError, explained
from agent.broker.questions import (
    KEYS,
    LONGEST,
    LONGEST_ANSWER,
    QUESTION,
    answer_to,
    ask_power,
    ask_variables,
    job_variables,
    parse_answer,
    parse_question,
)
from tests.broker.conftest import IDLE, Bmc, in_thread, listening
from tests.jobs.rig import TICKS, Proc

STARTED = 5000 * TICKS


def test_variables_and_the_power_reading_arrive(proc: Proc, broker_at: Callable[..., Path]) -> None:
    proc.process(100, "/", {"SLURM_JOB_NAME": "llama", "HOME": "/home/alice"})
    client = BrokerClient(str(broker_at(Bmc(b"\x00\xdc\x01"))))
    assert client.installed
    assert client.variables(100, STARTED) == b"SLURM_JOB_NAME=llama\0"
    assert client.power_reading() == b"\x00\xdc\x01"
    # What the broker could not read is distinguished from a broker that failed.
    with pytest.raises(FileNotFoundError) as gone:
        client.variables(101, STARTED)
    with pytest.raises(ProcessLookupError) as another:
        client.variables(100, STARTED + 1)
    assert not isinstance(gone.value, BrokerError)
    assert not isinstance(another.value, BrokerError)
    assert "the broker got the error" in explained(another.value)
    client.close()


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


def test_a_broker_that_hangs_or_takes_no_connection_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "VARIABLES_TIMEOUT_SECONDS", 0.05)
    with answering(tmp_path / "s", lambda connection: connection.recv(100)), pytest.raises(BrokerError) as told:
        BrokerClient(str(tmp_path / "s")).variables(1, 1)
    assert told.value.errno == errno.ETIMEDOUT
    assert "journalctl" in explained(told.value)
    with listening(tmp_path / "full"):
        client = BrokerClient(str(tmp_path / "full"))
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


# What the privileged side tells, to whom, and that nothing which is asked makes it say more.
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "xyzzy"}


def broker(proc: Proc, bmc: Bmc | None = None, clock: Callable[[], float] = lambda: 0.0) -> Broker:
    return Broker(clock, str(proc.root), lambda: "/dev/ipmi0" if bmc else None, (bmc or Bmc()).open)


def told(answering: Broker, question: bytes) -> tuple[int, bytes]:
    return parse_answer(question, answering.answer(question))


def test_the_known_variables_of_a_process_are_reported_and_no_others(proc: Proc) -> None:
    proc.process(100, "/", SLURM)
    question = ask_variables(100, STARTED)
    assert told(broker(proc), question) == (0, b"SLURM_JOB_ID=4711\0SLURM_JOB_NAME=llama\0")
    proc.process(100, "/", b"\0".join(key + b"=" + b"x" * 10 * LONGEST for key in sorted(KEYS)))
    answer = broker(proc).answer(question)
    assert len(answer) < LONGEST_ANSWER, "the longest environment fits into an answer"
    assert len(job_variables(parse_answer(question, answer)[1])) == len(KEYS)


GARBLED = (b"", b"100 (x)", b"100 (x) S 1", b"100 (x) S" + b" x" * 40, b"\xff" * 2000)


@pytest.mark.parametrize(
    ("started", "stat"),
    [*((other, None) for other in (0, STARTED - 1, STARTED + 1, 2**63)), *((STARTED, stat) for stat in GARBLED)],
)
def test_a_process_of_another_time_is_another_one_and_a_garbled_stat_is_none(
    proc: Proc, started: int, stat: bytes | None
) -> None:
    folder = proc.process(100, "/", SLURM)
    if stat is not None:
        (folder / "stat").write_bytes(stat)
    assert told(broker(proc), ask_variables(100, started)) == (errno.ESRCH, b"")


def test_a_process_that_is_gone_or_cannot_be_read_is_an_error_number(proc: Proc) -> None:
    proc.process(100, "/", None)  # its environ is a directory
    assert told(broker(proc), ask_variables(100, STARTED)) == (errno.EISDIR, b"")
    assert told(broker(proc), ask_variables(101, STARTED)) == (errno.ENOENT, b"")


def test_a_process_id_reused_between_two_files_reveals_nothing_of_the_new_one(
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
    failing = Bmc(TimeoutError(errno.ETIMEDOUT, "no answer"))
    assert told(broker(proc, failing), ask_power()) == (errno.ETIMEDOUT, b"")
    assert failing.closed == 1
    assert told(broker(proc), ask_power()) == (errno.ENODEV, b"")


QUESTIONS = st.one_of(
    st.binary(max_size=40),
    st.builds(ask_variables, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    st.binary(min_size=QUESTION.size, max_size=QUESTION.size),
)


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


def test_a_stranger_gets_no_answer_and_the_kernel_says_who_is_one(proc: Proc, broker_at: Callable[..., Path]) -> None:
    proc.process(100, "/", SLURM)
    question = ask_variables(100, STARTED)
    assert parse_answer(question, ask(broker_at(), question))[0] == 0
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert user_of(ours) == os.getuid()
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


# The broker as a process: started with its socket as systemd does, and as small as it claims to be.
ROOT = Path(__file__).resolve().parents[2]
COSTLY = {
    "typing",
    "re",
    "ctypes",
    "logging",
    "json",
    "subprocess",
    "pathlib",
    "dataclasses",
    "threading",
    "ssl",
    "inspect",
}
"""Modules that cost memory, or give whoever takes the process over more to work with."""


def test_it_loads_nothing_else_of_coldplate_and_nothing_costly() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "import agent.broker.__main__; loaded = sorted(set(sys.modules) - before)\n"
        "import json; print(json.dumps(loaded))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    ours = {name for name in loaded if name.split(".")[0] in ("agent", "alerts", "exporters", "dashboards")}
    assert all(name == "agent" or name.startswith("agent.broker") for name in ours), ours
    assert not loaded & COSTLY


def test_it_serves_the_socket_that_systemd_hands_over(tmp_path: Path) -> None:
    with listening(tmp_path / "broker.sock") as listener:
        process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" -I -m agent.broker', sys.executable],
            preexec_fn=lambda: os.dup2(listener.fileno(), 3),
            pass_fds=[3],
        )
        try:
            # About itself: a process that once was another user, as that of the tests may have been, is hidden.
            stat = Path(f"/proc/{process.pid}/stat").read_text()
            started = int(stat.rpartition(")")[2].split()[19])
            client = BrokerClient(str(tmp_path / "broker.sock"))
            assert isinstance(client.variables(process.pid, started), bytes)
        finally:
            process.terminate()
            process.wait(30)


def test_a_request_that_never_ends_costs_the_process_and_the_next_one_gets_another(tmp_path: Path) -> None:
    """A pipe stands for an environment under a lock: who opens it waits, and nothing but its own end helps."""
    (tmp_path / "proc/100").mkdir(parents=True)
    (tmp_path / "proc/100/stat").write_text("100 (x) S" + " 1" * 18 + " 77" + " 0" * 30)
    os.mkfifo(tmp_path / "proc/100/environ")
    code = (
        "import os, socket, sys, time; from agent.broker import answering, __main__ as main\n"
        "answering.DEADLINE_SECONDS = 0.2\n"
        "broker = answering.Broker(time.monotonic, sys.argv[1])\n"
        "answering.serve(socket.socket(fileno=3), broker, frozenset({os.getuid()}), 60, main.end_in)"
    )
    with listening(tmp_path / "broker.sock") as listener:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "proc")],
            cwd=ROOT,
            preexec_fn=lambda: os.dup2(listener.fileno(), 3),
            pass_fds=[3],
        )
        with pytest.raises(BrokerError):
            BrokerClient(str(tmp_path / "broker.sock")).variables(100, 77)
        assert process.wait(30) == -signal.SIGALRM


def test_without_its_socket_it_says_how_it_is_started() -> None:
    done = subprocess.run([sys.executable, "-m", "agent.broker"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "systemctl start coldplate-broker.socket" in done.stderr
