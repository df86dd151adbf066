"""One sysfs file of a port: read through a descriptor that stays open, or opened for each read.

A read through an open descriptor costs a tenth of opening (sysfs regenerates the content for a read at offset 0).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from agent.backends.infiniband.parse import DECODERS, SIZE, UnreadableError, counter, reason_of, why
from agent.backends.infiniband.watch import LinkWatch
from agent.backends.sysfs import FLAGS, PAGE
from agent.model import Gap, Reading, Reason, Series

Pread = Callable[[int, int, int], bytes]
"""`os.pread`, or a test's substitute for it."""

STALE = frozenset({errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOENT, errno.EBADF})
"""Errors from a descriptor whose device went away; there may be a new device at the same path."""


class Attribute:
    """A sysfs attribute of a port, its series, and the descriptor that is kept open on it (-1: none).

    `keep` says whether there is room to keep one. While a reader is inside, nothing else may touch it.
    """

    __slots__ = ("_pread", "_raw", "_reading", "decode", "fd", "keep", "path", "scale", "series", "watch")

    def __init__(self, path: str, series: Series, scale: float, pread: Pread, watch: LinkWatch | None = None) -> None:
        self.path = path
        self.series = series
        self.scale = int(scale) if scale == int(scale) else scale  # so that counters stay exact integers
        self.decode = DECODERS.get(series.metric, counter)
        self.watch = watch
        self.fd = -1
        self.keep = False
        self._pread = pread
        self._raw: bytes | None = None
        self._reading = Reading(series, 0)

    def read(self) -> Reading | Gap:
        """The value, or why there is none."""
        try:
            raw = self._pread(self.fd, SIZE, 0) if self.fd >= 0 else self._open()
        except OSError as error:
            if self.fd < 0 or error.errno not in STALE:
                return self.gap(self._reason(error), why(error))
            if error.errno == errno.EBADF:
                self.fd = -1  # the number may belong to another file by now: do not close it
            self.release()
            return self.read()  # this time by its path, since no descriptor is kept now
        if raw != self._raw:  # most counters stand still most of the time
            try:
                self._reading = Reading(self.series, self.decode(raw) * self.scale)
            except UnreadableError as error:
                return self.gap(error.reason, error.why)
            self._raw = raw
        return self._reading

    def gap(self, reason: Reason, why: str) -> Gap:
        """The absence of this file's value."""
        return Gap(self.series.metric, self.series.entity, reason, f"{self.path}: {why}")

    def release(self) -> None:
        """Close the descriptor, if one is kept; it is gone even if closing it fails."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self) -> bytes:
        """Read a file that is not open; keep its descriptor if it was readable and there is room."""
        fd = os.open(self.path, FLAGS)
        keep = False
        try:
            content = self._pread(fd, SIZE, 0)
            keep = self.keep
        finally:
            if keep:
                self.fd = fd
            else:
                os.close(fd)
        return content

    def _reason(self, error: OSError) -> Reason:
        """Why the file could not be read. If the port exists but the file does not, the driver does not offer it."""
        if error.errno == errno.ENOENT and os.path.isdir(self.path.rpartition("/")[0]):  # noqa: PTH112 - Path's may raise
            return Reason.UNSUPPORTED
        return reason_of(error)


class TextFile:
    """A file that is read too seldom to stay open."""

    __slots__ = ("_pread", "path")

    def __init__(self, path: str, pread: Pread) -> None:
        self.path = path
        self._pread = pread

    def read(self) -> str | OSError:
        """Its text without the white space around it."""
        try:
            fd = os.open(self.path, FLAGS)
            try:
                return self._pread(fd, PAGE, 0).decode("utf-8", "replace").strip("\0 \t\r\n")
            finally:
                os.close(fd)
        except OSError as error:
            return error
