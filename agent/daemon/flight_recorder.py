"""The flight recorder: keeps the last minutes in memory, and writes them to a file around each alert and XID error.

The sampling thread only hands snapshots over. They are packed in a thread of their own and written in another, so that
a disk that hangs costs the files, and nothing else.
"""

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.layout_columns import RoundMemo
from agent.lib.state_files import clear_unfinished, replace_file
from agent.lib.threads import CLOSING_SECONDS, KeptThread, Threads
from agent.model import EMPTY_FRAME, Frame, Instant, Labels, Layout, Series, Snapshot
from agent.recording.file_records import RecordingHeader
from agent.recording.recording_file import SUFFIX, SegmentPacker

log = logging.getLogger("coldplate.flight")

FIRING, XID = "firing", "xid"
"""Events after which the last minutes are written."""
AFTER_SECONDS = 60.0
"""Seconds after such an event that its file has as well; events meanwhile are in the same file."""
LONGEST_SEGMENT_SECONDS, LEAST_SEGMENT_SECONDS = 120.0, 10.0
"""Seconds that are forgotten at a time. Shorter ones take more memory: each repeats the series of its values."""
SEGMENTS = 6
"""Segments that the configured span is divided into, where that makes shorter ones."""
PACKING_SECONDS = 29.0
"""Seconds of snapshots that are packed at a time: each series costs as much in a block of 10 s as in one of 30 s."""
MOST_WAITING = 600
"""Snapshots that may wait to be packed; more are forgotten, the oldest first."""
REASONS = 8
"""Events that a file names."""
MAKER = "flight recorder"
_ODD = re.compile(r"[^A-Za-z0-9]+")
_ALERT, _XIDS = BY_NAME["coldplate_alert"], BY_NAME["coldplate_gpu_xid_errors_total"]


class FlightSettings(Struct, frozen=True):
    """What is kept. `span` in seconds; `triggers` of FIRING and XID; `keep` in bytes of all files together."""

    span: float
    triggers: frozenset[str]
    folder: Path
    keep: float


class _Segment(Struct):
    """Some packed minutes; times in monotonic seconds."""

    began: float
    last: float
    parts: list[bytes] = field(default_factory=list)
    written: bool = False


class FlightTriggers:
    """Notices what is new in a snapshot: alerts that fire, and XID errors. A layout is looked at once."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._firing_of, self._places_of = RoundMemo(_firing), RoundMemo(_xid_places)
        self._firing: list[frozenset[Labels]] = []
        self._all_firing: frozenset[Labels] = frozenset()
        self._counts: dict[Series, float] | None = None
        self._last: Frame = EMPTY_FRAME

    def begun_events(self, snapshot: Snapshot) -> list[str]:
        """Return what has begun with this snapshot, in a word or two each."""
        layouts = [frame.layout for frame in snapshot.frames]
        begun = self._newly_firing(layouts) if FIRING in self._names else []
        return begun + self._new_xids(layouts, snapshot.frames) if XID in self._names else begun

    def _newly_firing(self, layouts: list[Layout]) -> list[str]:
        firing = self._firing_of.of(layouts)
        if firing is self._firing:  # the layouts are those of the snapshot before
            return []
        self._firing = firing
        before, self._all_firing = self._all_firing, frozenset().union(*firing)
        return sorted({dict(labels).get("alertname", "") for labels in self._all_firing - before})

    def _new_xids(self, layouts: list[Layout], frames: Sequence[Frame]) -> list[str]:
        begun: list[str] = []
        for places, frame in zip(self._places_of.of(layouts), frames, strict=True):
            if places and frame is not self._last:
                self._last = frame
                counts = {frame.layout.series[place]: frame.values[place] for place in places}
                before = counts if self._counts is None else self._counts
                grown = [series for series, count in counts.items() if count > before.get(series, 0.0)]
                begun += [f"XID {dict(series.labels).get('xid', '')}" for series in grown]
                self._counts = counts
        if self._counts is None:
            self._counts = {}  # the series of a code begins with its first error
        return list(dict.fromkeys(begun))


def _xid_places(layout: Layout) -> tuple[int, ...]:
    return tuple(place for place, series in enumerate(layout.series) if series.metric is _XIDS)


def _firing(layout: Layout) -> frozenset[Labels]:
    return frozenset(
        series.labels
        for series in layout.series
        if series.metric is _ALERT and ("alertstate", "firing") in series.labels
    )


class FlightRecorder:
    """Follows the hub. `header` says whose recordings these are."""

    def __init__(self, settings: FlightSettings, header: RecordingHeader, threads: Threads) -> None:
        self._settings, self._header, self._threads = settings, header, threads
        self._segment_seconds = min(max(settings.span / SEGMENTS, LEAST_SEGMENT_SECONDS), LONGEST_SEGMENT_SECONDS)
        self._triggers = FlightTriggers(settings.triggers)
        self._gathered: list[Snapshot] = []
        self._reasons: list[str] = []
        self._event: Instant | None = None
        self._unwritten: tuple[str, ...] = ()
        """The events of a file that could not be written."""
        self._work = threading.Condition()
        self._handed: deque[Snapshot] = deque(maxlen=MOST_WAITING)
        self._ordered: tuple[Instant, tuple[str, ...]] | None = None
        self._stopping = False
        self._segments: deque[_Segment] = deque()
        self._packer: SegmentPacker | None = None
        self._thread: KeptThread | None = None
        self._writer: KeptThread | None = None
        self._files, self._failures, self._on_disk, self._good = 0, 0, 0, True
        self._own = OwnSeries()
        self._written_at: float | None = None
        """Time of the last file, in seconds since the epoch."""

    def start(self) -> None:
        clear_unfinished(self._settings.folder)
        self._on_disk = sum(size for _, size in _kept_files(self._settings.folder))
        self._thread = self._threads.begin("flight", self._run)

    def stop(self, seconds: float = CLOSING_SECONDS) -> None:
        """Write what an event of the last minute asked for, and end; wait so long at most for the disk."""
        self._hand_over(due=self._event is not None)
        with self._work:
            self._stopping = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._writer is not None and not self._writer.join(seconds):
            log.warning("flight recording not written within %.0f s; stopping without it", seconds)

    def observe(self, snapshot: Snapshot) -> None:
        """Take in a snapshot. In the sampling thread: it is only looked at for what is new."""
        self._gathered.append(snapshot)
        begun = self._triggers.begun_events(snapshot)
        if self._event is None and self._unwritten:  # retry the file of the last events
            begun, self._unwritten = [*self._unwritten, *begun], ()
        if begun:
            if self._event is None:
                self._event = snapshot.at
            self._reasons += [reason for reason in begun if reason not in self._reasons]
        due = self._event is not None and snapshot.at.mono - self._event.mono >= AFTER_SECONDS
        if due or snapshot.at.mono - self._gathered[0].at.mono >= PACKING_SECONDS:
            self._hand_over(due=due)

    def frame(self, now: Instant) -> Frame:
        segments = list(self._segments)
        held = max(now.mono - segments[0].began, 0.0) if segments else 0.0
        memory = sum(len(part) for segment in segments for part in segment.parts)
        values = {
            "span_seconds": held,
            "memory_bytes": memory,
            "files_bytes": self._on_disk,
            "files_total": self._files,
            "failures_total": self._failures,
            "last_success_timestamp_seconds": self._written_at,
        }
        return self._own.frame(
            OwnReading(f"coldplate_flight_recorder_{name}", value)
            for name, value in values.items()
            if value is not None
        )

    def _hand_over(self, *, due: bool) -> None:
        with self._work:
            self._handed.extend(self._gathered)
            self._gathered.clear()
            if due and self._event is not None and self._ordered is None:
                self._ordered = self._event, tuple(self._reasons[:REASONS])
                self._event, self._reasons = None, []
            self._work.notify()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._handed or self._ordered or self._stopping)
                handed = list(self._handed)
                self._handed.clear()
                ordered, self._ordered = self._ordered, None
                ended = self._stopping
            try:
                self._pack(handed)
            except BaseException:
                self._packer = None  # what it has half taken in would spoil the segment
                raise
            if ordered is not None:
                self._order(*ordered)
            if ended:
                return

    def _pack(self, snapshots: Iterable[Snapshot]) -> None:
        for snapshot in snapshots:
            mono = snapshot.at.mono
            if (
                self._packer is None
                or self._packer.is_large
                or mono - self._segments[-1].began >= self._segment_seconds
            ):
                self._close_block()
                self._begin_segment(snapshot.at)
            assert self._packer is not None
            self._packer.add(snapshot)
            self._segments[-1].last = mono
            if self._packer.is_full:
                self._close_block()
        self._close_block()
        while len(self._segments) > 1 and self._segments[-1].last - self._segments[0].last > self._settings.span:
            self._segments.popleft()

    def _begin_segment(self, at: Instant) -> None:
        self._packer = SegmentPacker(replace(self._header, wall=at.wall, mono=at.mono))
        self._segments.append(_Segment(at.mono, at.mono, [self._packer.header_record()]))

    def _close_block(self) -> None:
        if self._packer is not None and self._packer.waiting:
            self._segments[-1].parts.append(self._packer.pack())

    def _order(self, event: Instant, reasons: tuple[str, ...]) -> None:
        """Have written what no file has yet: the disk gets each second once, however often alerts begin."""
        if self._writer is not None and not self._writer.done:
            self._fail("the disk has not finished the one before", reasons)
            return
        fresh = [segment for segment in self._segments if not segment.written]
        self._packer = None  # what comes now belongs to the next file
        title = replace(self._header, wall=event.wall, mono=event.mono, maker=f"{MAKER}: {', '.join(reasons)}")
        content = b"".join((SegmentPacker(title).header_record(), *(part for block in fresh for part in block.parts)))
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(event.wall))
        name = f"flight-{moment}-{_ODD.sub('-', reasons[0]) if reasons else 'event'}{SUFFIX}"
        self._writer = self._threads.begin("flight-writer", partial(self._write, name, content, fresh, reasons))

    def _write(self, name: str, content: bytes, segments: Sequence[_Segment], reasons: tuple[str, ...]) -> None:
        folder = self._settings.folder
        try:
            if len(content) > self._settings.keep:
                self._fail(f"{len(content)} bytes are more than recorder.max_size allows")
                return
            folder.mkdir(parents=True, exist_ok=True)
            _make_room(folder, self._settings.keep - len(content))
            replace_file(folder / name, content)
            self._on_disk = sum(size for _, size in _kept_files(folder))
        except OSError as error:
            self._fail(f"{folder}: {error.strerror or error}", reasons)
            return
        for segment in segments:
            segment.written = True
        self._written_at = time.time()
        self._files += 1
        log.info("flight recording written", extra={"facts": {"file": str(folder / name), "bytes": len(content)}})
        self._good = True

    def _fail(self, problem: str, again: tuple[str, ...] = ()) -> None:
        """Count the failure, and log the first one; `again` are the events for which the file is to be retried."""
        self._unwritten = again
        self._failures += 1
        if self._good:
            log.warning("flight recording not written: %s", problem)
        self._good = False


def _kept_files(folder: Path) -> list[tuple[Path, int]]:
    """Return the recordings in a folder and their sizes, the oldest first; no other file is ever touched."""
    files = []
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # it is not there yet, or may not be read: writing the next one says so
        return []
    for path in paths:
        if not (path.name.startswith("flight-") and path.name.endswith(SUFFIX)):
            continue
        try:
            files.append((path, path.stat().st_size))
        except OSError:
            continue
    return files


def _make_room(folder: Path, most: float) -> None:
    """Remove the oldest recordings until the remaining ones have at most `most` bytes. Raises OSError."""
    kept = _kept_files(folder)
    total = sum(size for _, size in kept)
    for path, size in kept:
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size
