"""The InfiniBand backend: one read of a lane over all ports.

All reads go through a relay, one leg for each adapter: a file that hangs affects only itself, and an adapter whose
firmware does not answer only its own ports. A file that hangs is a gap with the reason `timeout`, never a stale value.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeGuard

from agent.backends.file_relay import FileRelay, Unread
from agent.backends.infiniband.attribute import Attribute, Pread
from agent.backends.infiniband.census import Census
from agent.backends.infiniband.facts import describe
from agent.backends.infiniband.layout import FileLayout, spare_descriptors
from agent.backends.protocol import AbsentError, BackendSample
from agent.catalogue import metric
from agent.model import Backend, Gap, Instant, Lane, Reading, Series

LEFT_OUT = Series(metric("coldplate_backend_series_left_out"), Backend("infiniband"))


class InfinibandBackend:
    """Every file of every port under `sysfs`/class/infiniband.

    `descriptors` tells how many may be kept open. `pread` is `os.pread`, or a test's substitute for it.
    """

    name = "infiniband"
    lanes = frozenset({Lane.FAST, Lane.SLOW, Lane.COLD})
    shortest = 0.0

    def __init__(
        self,
        sysfs: Path | str = "/sys",
        *,
        descriptors: Callable[[], int] = spare_descriptors,
        pread: Pread = os.pread,
    ) -> None:
        self._root = f"{sysfs}/class/infiniband"
        self._pread = pread
        self._relay = FileRelay(self.name)
        self._census = Census(self._root, self._relay, pread)
        self._layout = FileLayout(self._relay, pread, descriptors)

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read one lane. Raises AbsentError while this node has never shown a port."""
        gaps: list[Gap] = []
        if lane is Lane.SLOW or not self._census.ports:
            gaps = self._look(now.mono)
        if lane is Lane.COLD:
            return self._describe(now.mono)
        return self._sample(lane, now.mono, gaps if lane is Lane.SLOW else [])

    def close(self) -> None:
        """Close every descriptor, and end the reader."""
        self._layout.release()
        self._relay.close()

    def _look(self, mono: float) -> list[Gap]:
        """Learn which ports and files there are."""
        try:
            changed, gaps = self._census.take(mono)
        except AbsentError:
            self._layout.release()
            raise
        if changed:
            self._layout.renew(self._census.ports.values(), self._census.ignored)
        self._layout.share_descriptors()
        return gaps

    def _sample(self, lane: Lane, mono: float, gaps: list[Gap]) -> BackendSample:
        readings: list[Reading] = []
        files = unread = 0
        answers = self._relay.round(self._layout.legs[lane], mono)
        layout = self._layout
        for attributes, watches, leg in zip(layout.attributes[lane], layout.watches[lane], answers, strict=True):
            files += len(leg)
            if _all_read(leg):  # nearly always, and it saves a check of each file
                readings += leg
                for place, watch in watches:
                    readings += watch.saw(leg[place].value)
                continue
            for attribute, answer in zip(attributes, leg, strict=True):
                if isinstance(answer, Reading):
                    readings.append(answer)
                    if attribute.watch is not None:
                        readings += attribute.watch.saw(answer.value)
                    continue
                unread += isinstance(answer, Unread)
                gap = attribute.gap(answer.reason, answer.detail) if isinstance(answer, Unread) else answer
                self._miss(attribute, gap, readings, gaps)
        if lane is Lane.SLOW and self._layout.left_out:
            readings.append(Reading(LEFT_OUT, self._layout.left_out))
        return BackendSample(readings, gaps, calls=files - unread)

    def _miss(self, attribute: Attribute, gap: Gap, readings: list[Reading], gaps: list[Gap]) -> None:
        gaps.append(gap)
        if attribute.watch is not None:
            unknown, counted = attribute.watch.missed(gap)
            gaps.append(unknown)
            readings.append(counted)

    def _describe(self, mono: float) -> BackendSample:
        told = describe(self._root, self._census.ports.values(), self._relay, self._pread, mono)
        readings = [each for each in told if isinstance(each, Reading)]
        gaps = [each for each in told if isinstance(each, Gap)]
        return BackendSample(readings, gaps, calls=len(told))


def _all_read(leg: list[Reading | Gap | Unread]) -> TypeGuard[list[Reading]]:
    return {Reading}.issuperset(map(type, leg))
