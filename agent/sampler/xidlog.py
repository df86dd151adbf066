"""Log lines about XID errors: each kind at once, and a storm of them once a minute with its count.

A GPU may report an error every second for a day, and a broken library thousands. The counters have them all.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from agent.catalogue.xid_triage import ACTIONS, TRIAGE, XidClass, class_of
from agent.model import Gpu, Xid

log = logging.getLogger("coldplate.xid")

QUIET_SECONDS = 60.0
"""Seconds in which a kind is logged once."""
LINES = 60
"""Most lines in that time, of all kinds together."""
TEXT = 200
"""Most characters of the kernel's text that are logged."""

Kind = tuple[Gpu, str]


@dataclass(slots=True)
class _Entry:
    """What has come of one kind since it was last logged, and when that was."""

    newest: Xid
    times: int = 0
    told_at: float | None = None


class XidLog:
    """Gathers XIDs, and logs them within a bound."""

    def __init__(self) -> None:
        self._entries: dict[Kind, _Entry] = {}
        self._window_at = 0.0
        self._lines = 0

    def enter(self, kind: Kind, xid: Xid) -> None:
        """Take in one more of this kind."""
        xid = replace(xid, text=xid.text[:TEXT])
        entry = self._entries.get(kind)
        if entry is None:
            entry = self._entries[kind] = _Entry(xid)
        entry.newest = xid
        entry.times += 1

    def tell(self, now: float) -> None:
        """Log what is due; `now` in monotonic seconds."""
        if now - self._window_at >= QUIET_SECONDS:
            self._window_at, self._lines = now, 0
        for kind, entry in list(self._entries.items()):
            quiet = entry.told_at is None or now - entry.told_at >= QUIET_SECONDS
            if quiet and entry.times == 0:
                del self._entries[kind]
            elif quiet and self._lines < LINES:
                self._lines += 1
                self._line(kind, entry)
                entry.times, entry.told_at = 0, now

    def _line(self, kind: Kind, entry: _Entry) -> None:
        gpu, code = kind
        xid = entry.newest
        facts: dict[str, object] = {"xid": code, "gpu": gpu.index, "uuid": gpu.uuid, "reporter": xid.reporter}
        facts |= _meaning(xid)
        facts["text"] = xid.text
        if entry.times > 1:
            facts["times"] = entry.times
        log.warning("XID %d", xid.code, extra={"facts": facts})


def _meaning(xid: Xid) -> dict[str, object]:
    """What the code is called and what it asks for, which those who read logs would otherwise look up."""
    row = TRIAGE.get(xid.code)
    if row is None:
        return {"action": ACTIONS[XidClass.LOOK]}
    decided = class_of(xid.code, xid.text)
    return {"name": row.name, "action": row.action if decided is row.triage else ACTIONS[decided]}
