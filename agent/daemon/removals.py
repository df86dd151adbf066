"""GPUs that the kernel is taking away from the driver: it waits until no process has them open any more.

A program that unbinds a GPU (`echo 0000:1b:00.0 > /sys/bus/pci/drivers/nvidia/unbind`) hangs until then, and the agent
has every GPU open. The driver says in the kernel log that it waits, once for each attempt. What is released is taken up
again after a while, whether or not others still have the GPU open.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agent.model import Instant

log = logging.getLogger("coldplate.pause")

RELEASE_SECONDS = 60.0
"""Most seconds for which the driver is released for one attempt."""
SHORTEST_SECONDS = 10.0
"""Fewest of them: what removes a GPU often has more to do, such as binding another driver."""
QUIET_SECONDS = 300.0
"""Seconds in which further attempts on the same GPU change nothing: a loop must not blind the agent."""
GPUS = "driver/nvidia/gpus"
"""The folder of procfs that has an entry for each GPU of the driver, which goes once no process has it open."""


class _Removal(NamedTuple):
    """An attempt. `entry` is what goes with the GPU; None where it was not there, as in some containers."""

    slot: str
    at: Instant
    entry: Path | None


class GpuRemovals:
    """Knows until when the driver is to be released for GPUs that are being removed. For any thread."""

    def __init__(self, procfs: Path, clock: Callable[[], Instant]) -> None:
        self._gpus = procfs / GPUS
        self._clock = clock
        self._lock = threading.Lock()
        self._going: dict[str, _Removal] = {}
        self._seen_at: dict[str, float] = {}
        """When the last attempt on each GPU that counted was seen, in monotonic seconds."""

    def announce(self, slot: str) -> None:
        """Take note that the kernel waits to remove the GPU at this PCI address."""
        now = self._clock()
        with self._lock:
            if now.mono - self._seen_at.get(slot, -QUIET_SECONDS) < QUIET_SECONDS:
                log.warning("GPU %s is being removed, again: the driver is not released a second time", slot)
                return
            self._seen_at = {each: at for each, at in self._seen_at.items() if now.mono - at < QUIET_SECONDS}
            self._seen_at[slot] = now.mono
            entry = self._gpus / slot
            self._going[slot] = _Removal(slot, now, entry if entry.exists() else None)
        log.warning(
            "GPU %s is being removed, and the kernel waits for its users: releasing the driver for at most %.0f s",
            slot,
            RELEASE_SECONDS,
        )

    @property
    def current(self) -> tuple[float, str] | None:
        """Until when the driver is released at most, in seconds since the epoch, and for which GPU; or None."""
        if not self._going:  # the usual case, at each tick
            return None
        now = self._clock()
        with self._lock:
            for slot, removal in list(self._going.items()):
                passed = now.mono - removal.at.mono
                gone = removal.entry is not None and not removal.entry.exists()
                if passed >= RELEASE_SECONDS or (gone and passed >= SHORTEST_SECONDS):
                    del self._going[slot]
                    log.info("GPU %s %s", slot, "has been removed" if gone else "is not released any longer")
            last = max(self._going.values(), key=lambda removal: removal.at.mono, default=None)
        return None if last is None else (last.at.wall + RELEASE_SECONDS, last.slot)
