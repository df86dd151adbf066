"""The inside of the device worker: one thread a channel, one for events, and the main thread for orders.

A channel's thread has at most one read in flight. A tick that finds it still busy is not queued: the
lanes are owed, and asked for together with the next tick that finds it free.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from agent.backends.protocol import AbsentError, Channel, DeviceError, DeviceSource, SourceError
from agent.model import Gap, Instant, Lane, Reason, Series, Xid
from agent.worker.wire import encode, encode_gaps, encode_identity, encode_series

log = logging.getLogger("coldplate.worker")

EXIT_ABSENT = 3
EXIT_SOURCE = 4
ALL_LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
Send = Callable[[bytes], None]
Clock = Callable[[], Instant]


class Terminated(BaseException):
    """Raised in the main thread by the handler of SIGTERM, to end a blocking read."""


class ChannelThread:
    """Reads one channel when told, and sends what it gave."""

    def __init__(
        self, number: int, channel: Channel, send: Send, clock: Clock, broken: Callable[[SourceError], None]
    ) -> None:
        self.channel = channel
        self._number = number
        self._send = send
        self._clock = clock
        self._broken = broken
        self._orders: SimpleQueue[tuple[Lane, ...] | None] = SimpleQueue()
        self._owed: set[Lane] = set()
        self._layouts: dict[Lane, tuple[Series, ...]] = {}
        self._gaps: dict[Lane, Sequence[Gap]] = {}
        self.busy = False
        self._thread = threading.Thread(target=self._run, name=f"channel-{number}", daemon=True)
        self._thread.start()

    def order(self, lanes: set[Lane]) -> None:
        """Read these lanes, now or together with a later tick. Called by the main thread alone."""
        self._owed |= lanes
        if not self.busy:
            self.busy = True
            due = tuple(lane for lane in ALL_LANES if lane in self._owed)
            self._owed.clear()
            self._orders.put(due)

    def stop(self) -> None:
        self._orders.put(None)

    def _run(self) -> None:
        while (lanes := self._orders.get()) is not None:
            try:
                for lane in lanes:
                    self._read(lane)
            except SourceError as error:
                self._broken(error)
            finally:
                self.busy = False

    def _read(self, lane: Lane) -> None:
        began = self._clock()
        try:
            sample = self.channel.read(lane, began)
        except SourceError:
            raise
        except DeviceError as error:
            self._error(lane, began, error.reason, error.detail)
            return
        except Exception as error:
            # Whatever a binding did not foresee costs this device's sample, and is told in full.
            log.exception("reading %s of %s failed", lane.value, self.channel.key)
            self._error(lane, began, Reason.MALFORMED, f"{type(error).__name__}: {error}")
            return
        self._send_layout(lane, tuple(reading.series for reading in sample.readings), sample.gaps)
        took = self._clock().mono - began.mono
        values = [reading.value for reading in sample.readings]
        self._send(encode("sample", self._number, lane.value, began.mono, round(took, 6), sample.calls, values))
        if sample.events:
            self._send(encode_events(sample.events))

    def _send_layout(self, lane: Lane, layout: tuple[Series, ...], gaps: Sequence[Gap]) -> None:
        if self._layouts.get(lane) != layout:
            self._layouts[lane] = layout
            self._send(encode("layout", self._number, lane.value, encode_series(layout)))
        known = self._gaps.get(lane, ())
        if known is not gaps and list(known) != list(gaps):
            self._gaps[lane] = gaps
            self._send(encode("gaps", self._number, lane.value, encode_gaps(gaps)))

    def _error(self, lane: Lane, began: Instant, reason: Reason, detail: str) -> None:
        self._send(encode("error", self._number, lane.value, began.mono, reason.value, detail))


def encode_events(events: Sequence[Xid]) -> bytes:
    """XID events as one message."""
    return encode("xid", [[each.device, each.code, each.wall, each.reporter, each.text] for each in events])


class WorkerLoop:
    """Opens a source, obeys orders from `orders`, and writes messages to the descriptor `out`."""

    def __init__(self, source: DeviceSource, orders: int, out: int, clock: Clock) -> None:
        self._source = source
        self._orders = orders
        self._out = out
        self._clock = clock
        self._write_lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[ChannelThread] = []

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
        self._threads = [
            ChannelThread(number, channel, self._send, self._clock, self._broken)
            for number, channel in enumerate(channels)
        ]
        threading.Thread(target=self._follow_events, name="events", daemon=True).start()

    def _obey(self) -> None:
        buffer = b""
        while not self._stopping.is_set():
            data = os.read(self._orders, 4096)
            if not data:
                return  # the main process is gone
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                words = line.decode("ascii", "replace").split()
                if "stop" in words:
                    return
                lanes = {Lane(word) for word in words}
                for thread in self._threads:
                    thread.order(lanes)

    def _follow_events(self) -> None:
        while not self._stopping.is_set():
            try:
                events = self._source.events(1.0)
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
        for thread in self._threads:
            thread.stop()
        patience = threading.Event()
        for _ in range(20):
            if not any(thread.busy for thread in self._threads):
                break
            patience.wait(0.05)
        else:
            stuck = [thread.channel.key for thread in self._threads if thread.busy]
            log.warning("leaving without a clean shutdown: a read hangs on %s", ", ".join(stuck))
            os._exit(0)
        closer = threading.Thread(target=self._source.close, daemon=True)
        closer.start()
        closer.join(3.0)
        if closer.is_alive():
            log.warning("the device library did not shut down within 3 s; leaving it")
            os._exit(0)
