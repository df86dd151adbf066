"""Writes a recording: a new file to which whole records are appended, of use whenever its writer ends."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from agent.lib.wording import one_line
from agent.model import Instant, Snapshot
from agent.recording.file_records import RecordingError
from agent.recording.provenance import Provenance
from agent.recording.redaction import Redaction
from agent.recording.segment_packer import SegmentPacker

BLOCK_SECONDS = 9.0
"""Most seconds of snapshots in a block: with one a second, nothing waits longer than ten for being written."""
EARLY_SHARE, LEAST_BLOCK_SECONDS = 0.2, 1.0
"""At first a block is this share of the recording so far, or this long: of a short one that is killed, most is left."""
SEGMENT_SECONDS = 600.0
"""Seconds after which another segment begins: damage to a file costs no more than this."""
SUFFIX = ".coldplate"


class RecordingFile:
    """A recording that is being written. After an error it takes nothing more, and what was written stays."""

    def __init__(self, path: Path, header: Provenance, redaction: Redaction | None = None) -> None:
        """Creates the file. Raises RecordingError where there is one of that name, or none can be made."""
        self.path = path
        self.snapshots = 0
        """Those in the file; what waits for its block is not counted."""
        self.bytes = 0
        self._header, self._redaction = header, redaction
        self._packer = SegmentPacker(header, redaction)
        self._began = self._segment_began = header.mono
        self._file = self._create(path)
        self._broken = False
        self._append(self._packer.begin())

    def add(self, snapshot: Snapshot) -> None:
        """Take in a snapshot, and write if it is time. Raises RecordingError if the disk is full, say."""
        if self._broken:
            return
        if self._packer.waiting == 0 and self._is_time_for_another(snapshot.at):
            self._begin_another(snapshot.at)
        try:
            self._packer.add(snapshot)
            since = self._packer.since
            if self._packer.full or (
                since is not None and snapshot.at.mono - since >= self._block_seconds(snapshot.at)
            ):
                self.flush()
        except RecordingError:
            raise
        except Exception:  # what the packer has half taken in would spoil the rest of the segment
            self._begin_another(snapshot.at)
            raise

    def flush(self) -> None:
        """Write what waits. Raises RecordingError."""
        waiting = self._packer.waiting
        if waiting and not self._broken:
            self._append(self._packer.pack())
            self.snapshots += waiting

    def continue_as(self, header: Provenance, redaction: Redaction | None) -> None:
        """Go on with what comes from elsewhere, in a segment of its own. Raises RecordingError."""
        self.flush()
        self._header, self._redaction = header, redaction
        self._begin_another(header.began)

    def close(self) -> None:
        """Write what waits, and have it outlast a power failure. Raises RecordingError."""
        try:
            self.flush()
            if not self._broken:
                with contextlib.suppress(OSError):  # a pipe or an odd filesystem: nothing needs it to be right
                    os.fsync(self._file)
        finally:
            if self._file >= 0:
                os.close(self._file)
            self._file, self._broken = -1, True

    def _block_seconds(self, at: Instant) -> float:
        return min(BLOCK_SECONDS, max(LEAST_BLOCK_SECONDS, EARLY_SHARE * (at.mono - self._began)))

    def _is_time_for_another(self, at: Instant) -> bool:
        return self._packer.plenty or at.mono - self._segment_began >= SEGMENT_SECONDS

    def _begin_another(self, at: Instant) -> None:
        self._packer = SegmentPacker(replace(self._header, wall=at.wall, mono=at.mono), self._redaction)
        self._segment_began = at.mono
        self._append(self._packer.begin())

    def _create(self, path: Path) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise RecordingError(f"{_shown(path)}: exists already; remove it, or give another name") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RecordingError(
                f"{_shown(path)}: cannot be created: {reason}; name a file in a folder that you may write to"
            ) from None

    def _append(self, data: bytes) -> None:
        """Write all of it, or nothing: a half record at the end would hide what may be written once there is room."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._broken = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.bytes)
            raise RecordingError(
                f"{_shown(self.path)}: cannot be written any more: {error.strerror}; "
                f"the {self.snapshots} snapshots before are whole"
            ) from None
        self.bytes += len(data)


def _shown(path: Path) -> str:
    return one_line(str(path), 4096)
