"""The part of a push's queue that survives a restart: one file for each request that was not sent.

A file's name has its place in the order, and the time and number of the request's samples, so that a start reads no
contents. It appears whole, has a checksum, and is removed when its request has been sent: a crash leaves nothing torn,
and what was sent is not sent again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from agent.lib.state_files import DamagedError, clear_unfinished, read_whole, replace_file, seal, unseal

FORM = "coldplate-push-1"
_NAME = re.compile(r"([0-9]{10})-([0-9]{1,12}\.[0-9]{6})-([0-9]{1,9})\.request")


class QueuedRequest(Struct, eq=False, gc=False):
    """A request that waits: its time in wall seconds, its samples, and its bytes in memory or on the disk.

    Without `body` it is on the disk, as the file of this number.
    """

    wall: float
    samples: int
    size: int
    body: bytes | None = None
    number: int = 0


class RequestFolder:
    """The files below `path`. Not thread-safe by itself: its owner holds a lock. Every method raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest = 0

    def file_of(self, request: QueuedRequest) -> Path:
        return self._path / f"{request.number:010d}-{request.wall:.6f}-{request.samples}.request"

    def load(self) -> list[QueuedRequest]:
        """Return what an earlier run left, in order. Call it once, before the other methods."""
        self._path.mkdir(parents=True, exist_ok=True)
        clear_unfinished(self._path)
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if match := _NAME.fullmatch(entry.name):
                    number, wall, samples = match.groups()
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append(QueuedRequest(float(wall), int(samples), size, None, int(number)))
        found.sort(key=lambda each: each.number)
        self._newest = found[-1].number if found else 0
        return found

    def write(self, request: QueuedRequest) -> None:
        """Move a request from memory to the disk."""
        content = seal(FORM, request.body or b"")
        request.number = self._newest + 1
        replace_file(self.file_of(request), content)
        self._newest = request.number
        request.size, request.body = len(content), None

    def read(self, request: QueuedRequest) -> bytes:
        """Return the body of a request on the disk. Raises DamagedError, and OSError."""
        body = unseal(FORM, read_whole(self.file_of(request)))
        if not body:
            raise DamagedError("holds no request")
        return body

    def remove(self, request: QueuedRequest) -> None:
        self.file_of(request).unlink(missing_ok=True)
