"""XID errors as counters. The driver reports each twice, by event and in the kernel log: counted once."""

from __future__ import annotations

import logging

from agent.catalogue import BY_NAME
from agent.model import Gpu, Reading, Series, Xid
from agent.sampler.inventory import Inventory

log = logging.getLogger("coldplate.xid")

TOTAL = BY_NAME["coldplate_gpu_xid_errors_total"]
LAST = BY_NAME["coldplate_gpu_xid_last_timestamp_seconds"]

ZEROED = (13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 136, 140, 143, 154)
"""Codes whose counters exist from the start, at 0: increase() does not see a series that is born at 1.

NVIDIA's Xid catalogue has over a hundred; these are the ones on which rules act.
"""

PAIRING = 10.0
"""Seconds within which the two reports of one error come."""


class XidLedger:
    """Counts XIDs by GPU and code, for as long as the agent runs."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._counts: dict[tuple[Gpu, int], int] = {}
        self._last: dict[tuple[Gpu, int], float] = {}
        self._unpaired: dict[tuple[Gpu, int], list[tuple[str, float]]] = {}
        self._series: dict[tuple[Gpu, int], tuple[Series, Series]] = {}
        self._rows: list[Reading] | None = None

    def inventory_changed(self) -> None:
        """The inventory may know other GPUs than before."""
        self._rows = None

    def enter(self, xid: Xid) -> None:
        """Count one report, unless it is the second one of an error that was counted."""
        # Never dropped: an XID of a GPU that was never enumerated is shown under the name the driver gave it.
        gpu = self._inventory.find(xid.device) or Gpu("unknown", xid.device)
        key = (gpu, xid.code)
        waiting = [one for one in self._unpaired.get(key, []) if abs(xid.wall - one[1]) <= PAIRING]
        self._unpaired[key] = waiting
        for one in waiting:
            if one[0] != xid.reporter:
                waiting.remove(one)
                return
        waiting.append((xid.reporter, xid.wall))
        self._rows = None
        self._counts[key] = self._counts.get(key, 0) + 1
        self._last[key] = max(xid.wall, self._last.get(key, 0.0))
        facts = {"xid": xid.code, "gpu": gpu.index, "uuid": gpu.uuid, "reporter": xid.reporter, "text": xid.text}
        log.warning("XID %d", xid.code, extra={"facts": facts})

    def readings(self) -> list[Reading]:
        """The counters of every known GPU, and when each code that occurred was last seen."""
        if self._rows is None:
            self._rows = self._make_rows()
        return self._rows

    def _make_rows(self) -> list[Reading]:
        for identity in self._inventory.gpus.values():
            for code in ZEROED:
                self._counts.setdefault((identity.gpu, code), 0)
        rows = []
        for key, count in self._counts.items():
            total, last = self._series.get(key) or self._make(key)
            rows.append(Reading(total, count))
            if key in self._last:
                rows.append(Reading(last, self._last[key]))
        return rows

    def _make(self, key: tuple[Gpu, int]) -> tuple[Series, Series]:
        gpu, code = key
        labels = (("xid", str(code)),)
        pair = self._series[key] = (Series(TOTAL, gpu, labels), Series(LAST, gpu, labels))
        return pair
