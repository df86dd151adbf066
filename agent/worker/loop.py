"""The inside of the device worker: the main thread takes orders, readers read, and one thread waits for events."""

from __future__ import annotations

import logging
import os
import select
import threading

from agent.backends.protocol import AbsentError, DeviceSource, SourceError
from agent.model import Lane
from agent.worker.crew import QUICK, Clock, Crew, Post, encode_events
from agent.worker.wire import encode, encode_identity

log = logging.getLogger("coldplate.worker")

EXIT_ABSENT = 3
EXIT_SOURCE = 4


EVENT_WAIT = 2.0
"""Seconds of one wait for events: a shutdown waits for it to end."""


class Terminated(BaseException):
    """Raised in the main thread by the handler of SIGTERM, to end a blocking read."""


class WorkerLoop:
    """Opens a source, obeys orders from `orders`, and writes messages to the descriptor `out`."""

    def __init__(self, source: DeviceSource, orders: int, out: int, clock: Clock) -> None:
        self._source = source
        self._orders = orders
        self._out = out
        self._clock = clock
        self._write_lock = threading.Lock()
        self._stopping = threading.Event()
        self._crew = Crew((), self._broken)

    def run(self) -> int:
        """Work until told to stop; the process's exit status."""
        try:
            self._open()
            self._obey()
        except Terminated:
            pass
        except AbsentError as error:
            self._send(encode("absent", str(error)))
            return EXIT_ABSENT
        except SourceError as error:
            self._send(encode("failed", str(error)))
            return EXIT_SOURCE
        self._shut_down()
        return 0

    def _open(self) -> None:
        channels = self._source.open(self._clock())
        self._send(encode("hello", self._source.name, [encode_identity(c.key, c.identity) for c in channels]))
        self._crew = Crew(
            [Post(number, channel, self._send, self._clock) for number, channel in enumerate(channels)], self._broken
        )
        threading.Thread(target=self._follow_events, name="events", daemon=True).start()

    def _obey(self) -> None:
        poll = select.poll()
        poll.register(self._orders, select.POLLIN | select.POLLHUP)
        buffer = b""
        while not self._stopping.is_set():
            if not poll.poll(QUICK * 1000 if self._crew.waiting else None):
                self._crew.reinforce()
                continue
            data = os.read(self._orders, 4096)
            if not data:
                return  # the main process is gone
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                words = line.decode("ascii", "replace").split()
                if "stop" in words:
                    return
                self._crew.order({Lane(word) for word in words})

    def _follow_events(self) -> None:
        while not self._stopping.is_set():
            try:
                events = self._source.events(EVENT_WAIT)
            except SourceError as error:
                self._broken(error)
                return
            if events:
                self._send(encode_events(events))

    def _send(self, line: bytes) -> None:
        with self._write_lock:
            view = memoryview(line)
            while view:
                try:
                    view = view[os.write(self._out, view) :]
                except BrokenPipeError:
                    self._stopping.set()
                    return

    def _broken(self, error: SourceError) -> None:
        """The library is of no use any more: a new process must load it anew.

        Leaves at once: closing a library that lost its driver may hang, and the main thread sits in
        a read that nothing would end.
        """
        self._send(encode("failed", str(error)))
        os._exit(EXIT_SOURCE)

    def _shut_down(self) -> None:
        """Close the source if no read is in flight within a second, so that no call is cut in the middle."""
        self._stopping.set()
        patience = threading.Event()
        for _ in range(20):
            if not self._crew.busy:
                break
            patience.wait(0.05)
        else:
            log.warning("leaving without a clean shutdown: a read hangs on %s", ", ".join(self._crew.busy))
            os._exit(0)
        closer = threading.Thread(target=self._source.close, daemon=True)
        closer.start()
        closer.join(3.0)
        if closer.is_alive():
            log.warning("the device library did not shut down within 3 s; leaving it")
            os._exit(0)
