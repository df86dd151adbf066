"""The inside of the device worker: the main thread takes orders, readers read, and one thread waits for events.

The main thread never calls the driver, so it answers every order at once: this distinguishes a hung driver
from a hung worker.
"""

import logging
import os
import select
import threading
from collections.abc import Iterable

from agent.backends.protocol import AbsentError, Channel, DeviceSource, Roster, SourceError, Unidentified
from agent.model import LANES, Reason
from agent.worker.reader_pool import QUICK_SECONDS, Clock, DeviceChannel, ReaderPool
from agent.worker.worker_messages import (
    ANEW,
    STOP,
    TEXT,
    MessageError,
    check_channels,
    clean,
    encode,
    encode_events,
    encode_identity,
    encode_unidentified,
)

log = logging.getLogger("coldplate.worker")

EXIT_ABSENT = 3
EXIT_SOURCE = 4


EVENT_WAIT_SECONDS = 2.0
"""Seconds of one wait for events: a shutdown waits until it ends."""
_LANES = {lane.value: lane for lane in LANES}


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
        self._pool = ReaderPool((), self._broken)
        self._channels: dict[Channel, list[object]] = {}
        """The channels that have joined, in the order of their numbers, and what was sent about each."""
        self._roster: Roster | None = None
        """The last `hello` that was sent."""
        self._is_open = False
        self._wake_out, self._wake_in = os.pipe()

    def run(self) -> int:
        """Work until an order or SIGTERM stops it; return the process's exit status."""
        opener = threading.Thread(target=self._open, name="opener", daemon=True)
        try:
            opener.start()
            self._run_orders()
        except Terminated:
            pass
        self._shut_down(opener)
        return 0

    def _open(self) -> None:
        """Open the source. In a thread of its own, since opening a library may hang like any other call of it."""
        try:
            self._source.open(self._clock())
        except AbsentError as error:
            self._leave("absent", str(error), EXIT_ABSENT)
        except SourceError as error:
            self._broken(error)
        except Exception as error:
            log.exception("opening %s failed", self._source.name)
            self._leave("failed", f"{type(error).__name__}: {error}", EXIT_SOURCE)
        self._is_open = True
        os.write(self._wake_in, b".")
        self._follow_events()

    def _run_orders(self) -> None:
        poll = select.poll()
        poll.register(self._orders, select.POLLIN | select.POLLHUP)
        poll.register(self._wake_out, select.POLLIN)
        buffer = b""
        while not self._stopping.is_set():
            ready = [descriptor for descriptor, _ in poll.poll(QUICK_SECONDS * 1000 if self._pool.waiting else None)]
            if self._wake_out in ready:
                os.read(self._wake_out, 64)
                self._report_roster()
            if self._orders in ready:
                data = os.read(self._orders, 4096)
                if not data:
                    return  # the main process is gone
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    if not self._run_order(line.decode("ascii", "replace").split()):
                        return
            elif not ready:
                self._pool.add_reader()

    def _run_order(self, words: list[str]) -> bool:
        """Carry out one order; False if it was the last."""
        if words and words[0].isdecimal():
            self._send(encode("alive", int(words[0])))
        if STOP in words:
            return False
        if self._is_open:
            if ANEW in words:
                self._roster = None
                self._pool.resend_all()
            self._report_roster()
            lanes = {_LANES[word] for word in words if word in _LANES}
            if lanes:
                self._pool.order(lanes)
        return True

    def _report_roster(self) -> None:
        """Find out which devices have joined, and report it if that has changed."""
        try:
            roster = self._source.roster(self._clock())
        except SourceError as error:
            self._broken(error)
        if roster == self._roster:
            return
        self._roster = roster
        missing = list(roster.unidentified)
        joined = []
        for channel in roster.channels:
            if channel not in self._channels:
                rejected = self._add_channel(channel)
                if rejected is None:
                    joined.append(channel)
                else:
                    missing.append(rejected)
        hello = encode("hello", self._source.name, list(self._channels.values()), encode_unidentified(missing))
        self._send(hello + hello)  # what is sent only once is not believed
        for channel in joined:
            number = list(self._channels).index(channel)
            self._pool.add_channel(DeviceChannel(number, channel, self._send, self._clock))

    def _add_channel(self, channel: Channel) -> Unidentified | None:
        """Give the channel its number, if the main process will accept what it says about itself."""
        try:
            check_channels([(c.key, c.identity) for c in (*self._channels, channel)])
        except MessageError as error:
            index = "?" if channel.identity is None else channel.identity.gpu.index
            return Unidentified(index, Reason.MALFORMED, f"it reports an invalid identity: {error}")
        self._channels[channel] = encode_identity(channel.key, channel.identity)
        return None

    def _follow_events(self) -> None:
        number, failing = 0, ""
        while not self._stopping.is_set():
            try:
                events = self._source.events(EVENT_WAIT_SECONDS)
                failing = ""
            except SourceError as error:
                self._broken(error)
            except Exception as error:
                # The driver's XID events are worth another attempt, whatever one of them did to the binding.
                if failing != str(error):
                    log.exception("waiting for XID events failed; retrying")
                failing = str(error)
                self._stopping.wait(EVENT_WAIT_SECONDS)
                continue
            if events:
                number += 1
                self._send(encode_events(number, events))

    def _send(self, line: bytes) -> None:
        with self._write_lock:
            view = memoryview(line)
            while view:
                try:
                    view = view[os.write(self._out, view) :]
                except OSError:
                    self._stopping.set()  # nothing reads the messages any more
                    return

    def _broken(self, error: SourceError) -> None:
        """Note that the library is unusable: a new process must load it again."""
        self._leave("failed", str(error), EXIT_SOURCE)

    def _leave(self, kind: str, detail: str, status: int) -> None:
        """End at once: closing a library that lost its driver may hang, and the main thread waits for orders."""
        self._send(encode(kind, clean(detail, TEXT)))
        os._exit(status)

    def _shut_down(self, opener: threading.Thread) -> None:
        """Close the source if no read is in flight within a second, so that no call is interrupted."""
        self._stopping.set()
        nap = threading.Event()
        for _ in range(20):
            busy = self._hanging(opener)
            if not busy:
                break
            nap.wait(0.05)
        else:
            log.warning("exiting without a clean shutdown: a call hangs on %s", ", ".join(busy))
            os._exit(0)
        closer = threading.Thread(target=self._source.close, daemon=True)
        closer.start()
        closer.join(3.0)
        if closer.is_alive():
            log.warning("the device library did not shut down within 3 s; exiting without it")
            os._exit(0)

    def _hanging(self, opener: threading.Thread) -> Iterable[str]:
        """Return what is hanging: keys of channels, or the source itself while it is being opened."""
        opening = [self._source.name] if opener.is_alive() and not self._is_open else []
        return [*opening, *self._pool.busy]
