"""Log alerts in lines: one when an incident fires and one when it is resolved.

Under systemd they go to the journal with separate fields, over its native protocol, `journalctl
COLDPLATE_ALERTNAME=GpuHot`; elsewhere, and if the journal does not accept them at once, they are ordinary lines. There
is no queue, and nothing waits: a line is written at once.
"""

import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence

from agent.model import Alert, Phase
from alerts.changes import ANNOTATION as CHANGES
from alerts.notify.receiver import Counts, Notice

SOCKET = "/run/systemd/journal/socket"
LONGEST_NAME = 64
"""journald drops a field with a longer name."""


def find_journal(environment: Mapping[str, str], descriptor: int = 2) -> str | None:
    """Return the journal's socket, if `descriptor` (standard error) leads there: systemd says so in JOURNAL_STREAM
    (systemd.exec(5)).

    The variable is inherited by what runs under a service but writes elsewhere, hence the comparison.
    """
    stream = environment.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return SOCKET if stream == f"{status.st_dev}:{status.st_ino}" else None


def field_name(name: str) -> str:
    """Return a name as journald accepts it: capitals, digits and underscores, at most 64 characters."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.upper())[:LONGEST_NAME]


def _field(name: str, value: str) -> bytes:
    """Return a field; before a value with line breaks is its length, and no equals sign (Native Journal Protocol)."""
    data = value.encode("utf-8", "replace")
    if b"\n" in data:
        return b"%b\n%b%b\n" % (name.encode("ascii"), len(data).to_bytes(8, "little"), data)
    return b"%b=%b\n" % (name.encode("ascii"), data)


_log = logging.getLogger("coldplate.alert")

_LEVELS = {"critical": logging.ERROR, "warning": logging.WARNING}
"""The level of the line for a firing alert, by its severity."""
_PRIORITIES = {logging.ERROR: "3", logging.WARNING: "4", logging.INFO: "6"}
"""Priorities of syslog(3)."""
_NOTES = ("description", "owner", CHANGES, "command", "runbook_url")
"""Annotations that become facts of the line; the summary is the message."""
_RESERVED_KEYS = frozenset({"ts", "level", "logger", "msg", "trace", "alertstate", "value", *_NOTES})
"""Keys of a log line that a label must not replace."""


class LogReceiver:
    """The log, and journald where its socket is given.

    A line that the journal refused counts as failed and, since it is written elsewhere, also as sent.
    """

    name = "log"
    url = ""
    repeats = False
    queued = 0

    def __init__(self, journal: str | None = None) -> None:
        self.counts = Counts()
        self._journal = journal

    def accept_notices(self, notices: Sequence[Notice], at: float) -> None:
        del at  # lines have the time at which they are written
        for notice in notices:
            self._write(notice.alert)

    def stop(self, grace: float) -> None:
        del grace  # nothing waits

    def _write(self, alert: Alert) -> None:
        labels = dict(alert.labels)
        firing = alert.phase is Phase.FIRING
        level = _LEVELS.get(labels.get("severity", ""), logging.INFO) if firing else logging.INFO
        if not _log.isEnabledFor(level):
            return
        message = _message(alert, labels)
        if not self._to_journal(alert, labels, level, message):
            _log.log(level, "%s", message, extra={"facts": _facts(alert, labels)})
        self.counts.add(sent=1)

    def _to_journal(self, alert: Alert, labels: dict[str, str], level: int, message: str) -> bool:
        if self._journal is None:
            return False
        data = b"".join(_field(name, value) for name, value in _fields(alert, labels, level, message))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
                speaker.setblocking(False)
                speaker.sendto(data, self._journal)
        except OSError:
            self.counts.add(failed=1)
            return False
        return True


def _message(alert: Alert, labels: dict[str, str]) -> str:
    name = labels.get("alertname", alert.rule)
    summary = alert.annotations.get("summary") or alert.annotations.get("description", "")
    return f"{alert.phase.value}: {name}: {summary}" if summary else f"{alert.phase.value}: {name}"


def _facts(alert: Alert, labels: dict[str, str]) -> dict[str, object]:
    facts: dict[str, object] = {"alertname": alert.rule, "alertstate": alert.phase.value}
    if "severity" in labels:
        facts["severity"] = labels["severity"]
    facts.update((f"label_{name}" if name in _RESERVED_KEYS else name, value) for name, value in labels.items())
    facts["value"] = alert.value if math.isfinite(alert.value) else str(alert.value)
    facts.update((name, alert.annotations[name]) for name in _NOTES if name in alert.annotations)
    return facts


def _fields(alert: Alert, labels: dict[str, str], level: int, message: str) -> Iterator[tuple[str, str]]:
    yield "MESSAGE", message
    yield "PRIORITY", _PRIORITIES[level]
    yield "SYSLOG_IDENTIFIER", "coldplate"
    yield "COLDPLATE_ALERTNAME", labels.get("alertname", alert.rule)
    yield "COLDPLATE_ALERTSTATE", alert.phase.value
    yield "COLDPLATE_SEVERITY", labels.get("severity", "")
    yield "COLDPLATE_VALUE", str(alert.value)
    for name in _NOTES:
        if name in alert.annotations:
            yield f"COLDPLATE_{name.upper()}", alert.annotations[name]
    for name, value in alert.labels:
        yield field_name(f"COLDPLATE_LABEL_{name}"), value
