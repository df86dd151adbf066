"""Reads the channels: one thread for all of them, as long as each is quick.

A thread per GPU would do little but pass the interpreter's lock around, and the driver serialises
its callers on its own lock. So one reader goes through the due channels, and when one of them
blocks it for longer than `QUICK_SECONDS` another reader takes over the rest. There are never more readers
than channels, and a channel never has more than one read in flight: a GPU that hangs blocks one thread
and nothing else.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from agent.backends.protocol import BackendSample, Channel, DeviceError, SourceError
from agent.model import EMPTY_LAYOUT, LANES, Framer, Gap, Instant, Lane, Layout, Reason
from agent.worker.worker_messages import (
    GAPS_OF_LANE,
    PROCESSES,
    SERIES_OF_LANE,
    TEXT,
    MessageError,
    clean,
    encode,
    encode_gaps,
    encode_processes,
    encode_series,
)

log = logging.getLogger("coldplate.worker")

QUICK_SECONDS = 0.02
"""Seconds after which the waiting channels get another reader."""
Send = Callable[[bytes], None]
Clock = Callable[[], Instant]


class _SentEditions:
    """The last editions that were sent for one lane of a channel; a sample refers to them."""

    __slots__ = ("editions", "framer", "gaps", "layout")

    def __init__(self) -> None:
        self.editions = [0, 0]
        """Editions of the layout and the gaps; 0 stands for none."""
        self.framer = Framer()
        self.layout = EMPTY_LAYOUT
        self.gaps: Sequence[Gap] = ()


class DeviceChannel:
    """One channel, the lanes that are due, and what was last sent about it."""

    def __init__(self, number: int, channel: Channel, send: Send, clock: Clock) -> None:
        self.channel = channel
        self.due_lanes: set[Lane] = set()
        self.busy = False
        """Waiting for a reader, or being read."""
        self.must_resend = False
        """Whether the main process has requested everything again."""
        self._number = number
        self._send = send
        self._clock = clock
        self._sent: dict[Lane, _SentEditions] = {}
        self._edition = 0
        self._failing = ""

    def read(self) -> None:
        """Read the due lanes, and send the results. Raises SourceError."""
        if self.must_resend:
            self.must_resend = False
            self._sent.clear()
        due, self.due_lanes = self.due_lanes, set()
        for lane in LANES:
            if lane in due:
                self._read(lane)

    def _read(self, lane: Lane) -> None:
        began = self._clock()
        try:
            self._send_sample(lane, began, self.channel.read(lane, began))
            self._failing = ""
        except SourceError:
            raise
        except DeviceError as error:
            self._send_error(lane, began, error.reason, error.detail)
        except Exception as error:
            # An unexpected error affects only this device's sample, and is logged once in full.
            detail = f"{type(error).__name__}: {error}"
            if detail != self._failing:
                log.exception("reading %s of %s failed", lane.value, self.channel.key)
            self._failing = detail
            self._send_error(lane, began, Reason.MALFORMED, detail)

    def _send_sample(self, lane: Lane, began: Instant, sample: BackendSample) -> None:
        sent = self._sent.get(lane)
        if sent is None:
            sent = self._sent[lane] = _SentEditions()
        processes, gaps = sample.processes, sample.gaps
        if processes is not None and len(processes) > PROCESSES:
            raise MessageError(f"{len(processes)} processes on one GPU")
        layout, values = sent.framer.frame(sample.readings)
        if layout is not sent.layout:
            self._send_layout(lane, sent, layout)
        if sent.gaps is not gaps and list(sent.gaps) != list(gaps):
            sent.editions[1] = self._send_rows("gaps", lane, encode_gaps(gaps[:GAPS_OF_LANE]))
            sent.gaps = gaps
        took = round(self._clock().mono - began.mono, 6)
        parts = (began.mono, took, sample.calls, values, encode_processes(processes))
        self._send(encode("sample", self._number, lane.value, sent.editions, *parts))

    def _send_layout(self, lane: Lane, sent: _SentEditions, layout: Layout) -> None:
        series = layout.series
        if len(set(series)) != len(series) or len(series) > SERIES_OF_LANE:
            raise MessageError(f"{len(series)} series, of which {len(set(series))} are different")
        sent.editions[0] = self._send_rows("layout", lane, encode_series(series))
        sent.layout = layout

    def _send_rows(self, kind: str, lane: Lane, rows: object) -> int:
        """Send what later samples refer to; returns its edition."""
        self._edition += 1
        self._send(encode(kind, self._number, lane.value, self._edition, rows))
        return self._edition

    def _send_error(self, lane: Lane, began: Instant, reason: Reason, detail: str) -> None:
        self._send(encode("error", self._number, lane.value, began.mono, reason.value, clean(detail, TEXT)))


class ReaderPool:
    """The readers. `add_channel`, `order`, `resend_all` and `add_reader` belong to the main thread."""

    def __init__(self, devices: Sequence[DeviceChannel], broken: Callable[[SourceError], None]) -> None:
        self._devices = list(devices)
        self._broken = broken
        self._due: deque[DeviceChannel] = deque()
        self._idle: list[threading.Semaphore] = []
        """What each reader without work waits for; the last one is called first, as what it needs is still cached."""
        self._readers = 0
        self._short = False
        """Whether the system had no thread to give when one was last needed."""

    def add_channel(self, device: DeviceChannel) -> None:
        """Add a channel; all its lanes are read at once."""
        self._devices.append(device)
        self._add_lanes(device, set(LANES))
        self._ensure_reader()

    def order(self, lanes: set[Lane]) -> None:
        """Read these lanes of every channel; a busy one reads them with the next order that finds it free."""
        for device in self._devices:
            self._add_lanes(device, lanes)
        self._ensure_reader()

    def resend_all(self) -> None:
        """Send again, with the next read of each channel, everything that its samples refer to."""
        for device in self._devices:
            device.must_resend = True

    @property
    def waiting(self) -> bool:
        """Whether any channel waits for a reader."""
        return bool(self._due)

    def add_reader(self) -> None:
        """Add a reader, because the others did not get through in time."""
        if self._due and not self._wake_reader() and self._readers < len(self._devices):
            self._start_reader()

    @property
    def busy(self) -> list[str]:
        """Keys of the channels that are waiting or being read."""
        return [device.channel.key for device in self._devices if device.busy]

    def _add_lanes(self, device: DeviceChannel, lanes: set[Lane]) -> None:
        device.due_lanes |= lanes
        if not device.busy:
            device.busy = True
            self._due.append(device)

    def _ensure_reader(self) -> None:
        if not self._wake_reader() and self._readers == 0:
            self._start_reader()

    def _wake_reader(self) -> bool:
        """Have an idle reader look for work; returns whether there is one."""
        try:
            self._idle.pop().release()
        except IndexError:
            return False
        return True

    def _start_reader(self) -> None:
        """Start another reader, if the system has a thread to give; otherwise the channels wait for the next order."""
        self._readers += 1
        try:
            threading.Thread(target=self._run, name=f"reader-{self._readers}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._readers -= 1
            if not self._short:
                log.error("cannot start a thread to read a device: %s; its samples are late", error)
            self._short = True
        else:
            self._short = False

    def _run(self) -> None:
        work = threading.Semaphore(0)
        while True:
            self._read_due()
            self._idle.append(work)
            if self._due:  # a channel became due before this reader was known to be idle
                self._wake_reader()
            work.acquire()

    def _read_due(self) -> None:
        while self._due:
            try:
                device = self._due.popleft()
            except IndexError:
                break  # another reader was quicker
            self._read(device)

    def _read(self, device: DeviceChannel) -> None:
        try:
            device.read()
        except SourceError as error:
            self._broken(error)
        except Exception:
            # Neither the sample nor its failure could be sent: the reader goes on with the next channel.
            log.exception("reading %s failed", device.channel.key)
        finally:
            device.busy = False
