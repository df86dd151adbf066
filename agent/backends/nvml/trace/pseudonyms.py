"""Replaces what identifies a machine: UUIDs, serial numbers, board parts, cluster ids, host names, bus ids if asked.

The same original always gets the same pseudonym within one run, so that lines still belong together.
"""

from __future__ import annotations

import re
from typing import Any

_UUID = re.compile(r"^(GPU|MIG)-.+$")
_SHORT = 6
"""Originals shorter than this are not searched for in free text: `0` is a serial number on some boards."""

_KINDS = {
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetBoardPartNumber": "part",
    "nvmlDeviceGetPciInfo_v3": "bus",
}


def slot_like(bus_id: str) -> str:
    """`00000000:1B:00.0` as Linux writes it."""
    return bus_id[4:].lower()


class Pseudonyms:
    """Originals and their pseudonyms."""

    def __init__(self, hosts: tuple[str, ...] = (), *, bus_ids: bool = False) -> None:
        self._known: dict[str, str] = {host: "HOST" for host in hosts if host}
        self._counts: dict[str, int] = {}
        self._bus_ids = bus_ids

    def _stand_in(self, kind: str, original: str) -> str:
        if original not in self._known:
            n = self._counts[kind] = self._counts.get(kind, 0) + 1
            made = {
                "uuid": f"{original[:4]}00000000-0000-4000-8000-{n:012x}",
                "serial": f"{n:013d}",
                "part": f"PART-{n:04d}",
                "cluster": f"{n:032x}",
                "bus": f"00000000:{n:02X}:00.0",
            }
            self._known[original] = made[kind]
        return self._known[original]

    def of(self, call: str, value: Any) -> Any:
        """An argument or the answer of an NVML call, without identifying parts."""
        if isinstance(value, dict):
            cluster = value.get("cluster_uuid")
            if isinstance(cluster, str) and cluster.strip("0"):
                return {**value, "cluster_uuid": self._stand_in("cluster", cluster)}
            return value
        if not isinstance(value, str) or not value:
            return value
        kind = "uuid" if _UUID.match(value) else _KINDS.get(call)
        if kind is None or (kind == "bus" and not self._bus_ids):
            return value
        return self._stand_in(kind, value)

    def learn(self, uuid: str, serial: str, part: str) -> None:
        """Learn a GPU's identifiers before they occur."""
        for kind, original in (("uuid", uuid), ("serial", serial), ("part", part)):
            if original:
                self._stand_in(kind, original)

    def hide_slot(self, slot: str) -> None:
        """Learn a PCI bus id as Linux writes it, `0000:1b:00.0`, and as NVML does."""
        if slot:
            domain, _, rest = slot.partition(":")
            pseudonym = self._stand_in("bus", f"{int(domain, 16):08X}:{rest.upper()}")
            self._known[slot] = slot_like(pseudonym)

    def scrub(self, text: str) -> str:
        """Free text with every known original replaced; the longest first, because one may contain another."""
        for original in sorted(self._known, key=len, reverse=True):
            if len(original) >= _SHORT or self._known[original] == "HOST":
                text = re.sub(rf"(?<![\w-]){re.escape(original)}(?![\w-])", self._known[original], text)
        return text

    def left_in(self, text: str) -> list[str]:
        """Originals that the text still contains."""
        for pseudonym in set(self._known.values()):
            text = text.replace(pseudonym, "")
        return [each for each in self._known if len(each) >= _SHORT and each in text]
