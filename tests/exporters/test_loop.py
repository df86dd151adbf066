"""A fault at any place of the server's loop costs a turn or a client, never the port."""

import errno
import logging
import selectors
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import pytest

from agent.lib.threads import KeptThread, Threads, ThreadState
from exporters import server as server_module
from exporters.http_messages import Request, Response
from exporters.listeners import Acceptor
from tests.exporters.conftest import Running, Serve
from tests.waiting import wait_until

GET = b"GET /a HTTP/1.1\r\nHost: n\r\n\r\n"


class Fault:
    """Raises at the call that is so many calls away."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._lock = threading.Lock()
        self._left = 0
        self.raised = 0

    def arm(self, calls: int) -> None:
        """Raise at the call that is so many away; never for 0."""
        with self._lock:
            self._left = calls

    def pass_through(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
            self.raised += 1
        raise self._error


def provoke(running: Running, fault: Fault, place: int) -> None:
    """A client in the middle of a conversation, and a new one, while the fault comes at that place."""
    talking = running.client()
    with suppress(OSError):
        talking.send(GET)
        talking.response()
        fault.arm(place)
        talking.send(GET * 2)
        running.client().send(GET[:10])
        running.client().close()
        running.get("/b")
    for path in ("/c", "/d"):
        with suppress(OSError):
            running.get(path)
    fault.arm(0)


def test_a_clock_that_fails_at_any_call_does_not_end_the_service(serve: Serve, caplog) -> None:
    fault = Fault(OSError("no clock"))

    def clock() -> float:
        fault.pass_through()
        return time.monotonic()

    running = serve(clock=clock)
    for place in range(1, 80):
        provoke(running, fault, place)
        assert running.get("/after")[2] == b"GET /after", f"after a fault at call {place}"
    assert fault.raised > 10
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 0 < len(said) < 15, "once for each place in the code, not once for each fault"


@pytest.mark.parametrize("method", ["select", "register", "modify", "unregister", "get_map"])
def test_a_selector_that_fails_at_any_call_does_not_end_the_service(serve: Serve, monkeypatch, method: str) -> None:
    fault = Fault(OSError(errno.EBADF, "Bad file descriptor"))

    whole = getattr(selectors.DefaultSelector, method)

    def failing(self: Any, *arguments: Any) -> Any:
        fault.pass_through()
        return whole(self, *arguments)

    Failing = type("Failing", (selectors.DefaultSelector,), {method: failing})  # noqa: N806
    monkeypatch.setattr(selectors, "DefaultSelector", Failing)
    running = serve()
    for place in range(1, 15):
        for _ in range(3):
            provoke(running, fault, place)
            assert running.get("/after")[2] == b"GET /after", f"after a fault at call {place}"
    assert fault.raised > 0


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_idle_clients_go_one_by_one_until_the_system_can_give_another_descriptor(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    running, accept, short = serve(), socket.socket.accept, 0
    idle = [running.client() for _ in range(5)]
    wait_until(lambda: running.server.connections == 5)

    def refused(listener: socket.socket) -> Any:
        nonlocal short
        if short > 0:
            short -= 1
            raise OSError(code, "no more of them")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", refused)
    short = 2
    assert running.get()[0] == 200
    assert [each.is_cut_off() for each in idle] == [True, True, False, False, False]


def test_if_no_client_waits_none_is_evicted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel wants a descriptor before it looks whether there is a client."""
    running, accept, waits = serve(), socket.socket.accept, Acceptor.has_pending_client
    answers: list[bool] = []
    idle = running.client()
    wait_until(lambda: running.server.connections == 1)

    def refused(listener: socket.socket) -> Any:
        if not answers:
            accept(listener)[0].close()  # the client that woke the server leaves the queue
        raise OSError(errno.EMFILE, "no more of them")

    def has_pending_client(acceptor: Acceptor, listener: socket.socket) -> bool:
        answers.append(waits(acceptor, listener))
        return answers[-1]

    monkeypatch.setattr(Acceptor, "has_pending_client", has_pending_client)
    with monkeypatch.context() as shortage:
        shortage.setattr(socket.socket, "accept", refused)
        running.client()
        wait_until(lambda: answers)
    assert running.get()[0] == 200
    assert not idle.is_cut_off()


def test_a_client_that_the_selector_keeps_does_not_harm_the_next_of_its_descriptor(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [False]

    def unregister(self: Any, fileobj: Any) -> Any:
        if broken[0]:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return selectors.EpollSelector.unregister(self, fileobj)

    Failing = type("Failing", (selectors.DefaultSelector,), {"unregister": unregister})  # noqa: N806
    monkeypatch.setattr(selectors, "DefaultSelector", Failing)
    running = serve()
    for _ in range(10):
        broken[0] = True
        gone = running.client()
        wait_until(lambda: running.server.connections == 1)
        gone.close()
        wait_until(lambda: running.server.connections == 0)
        broken[0] = False
        heir = running.client()
        heir.send(GET[:10])
        wait_until(lambda: running.server.connections == 1)
        heir.send(GET[10:])
        assert heir.response()[0] == 200
        heir.close()
        wait_until(lambda: running.server.connections == 0)


def test_a_selector_that_is_gone_for_good_is_replaced_and_takes_no_client_along(serve: Serve) -> None:
    running = serve()
    client = running.client()
    for _ in range(2):  # after the second one it is certainly known to the selector
        client.send(GET)
        assert client.response()[0] == 200
    running.server._selector._selector.close()  # type: ignore[attr-defined]  # the kernel's side of it alone, under our feet

    def serves() -> bool:
        with suppress(OSError):  # those who come at that moment may be lost
            return running.get("/new")[2] == b"GET /new"
        return False

    wait_until(serves)
    client.send(GET)
    assert client.response()[2] == b"GET /a"


def test_a_thread_that_fails_begins_again_with_its_clients(serve: Serve) -> None:
    def handler(request: Request) -> Response:
        if request.path == "/die":
            raise SystemExit  # no Exception: nothing that the loop survives
        return Response(HTTPStatus.OK, request.path.encode())

    threads = Threads()
    running = serve(handler, threads=threads)
    client = running.client()
    client.send(GET)
    assert client.response()[0] == 200
    for falls in range(1, 4):
        unlucky = running.client()
        unlucky.send(b"GET /die HTTP/1.0\r\n\r\n")
        assert unlucky.rest() == b""  # at once: it need not wait for an answer that never comes
        client.send(GET)
        assert client.response()[2] == b"/a"
        assert running.get("/new")[2] == b"/new"
        assert threads.states() == [ThreadState("http", False, falls)]  # until it has gone well for a while


def test_a_server_without_an_available_thread_gets_one_later_or_can_be_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads()
    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", refuse)
        waiting = serve(threads=threads)
        stopped = serve(threads=threads)
        stopped.server.stop()
        assert stopped.server.addresses == []
    threads.tend()
    assert waiting.get()[0] == 200


def test_the_quiet_loop_shows_that_it_runs_and_does_not_run_for_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []
    monkeypatch.setattr(KeptThread, "beat", lambda kept: turns.append(kept.name))
    running = serve()
    client = running.client()
    client.send(GET)
    assert client.response()[0] == 200
    before = len(turns)
    time.sleep(0.3)
    assert len(turns) <= before + 2
    running.server.stop()
    monkeypatch.setattr(server_module, "HEARTBEAT_SECONDS", 0.02)
    turns.clear()
    serve()
    wait_until(lambda: len(turns) > 5)
