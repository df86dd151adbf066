"""Messages to journald with separate fields, over its native protocol, so that journalctl can search them.

Nothing here waits: a message that the journal does not accept at once is dropped.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping

SOCKET = "/run/systemd/journal/socket"
LONGEST_NAME = 64
"""journald drops a field with a longer name."""


def find_journal(environment: Mapping[str, str], descriptor: int = 2, path: str = SOCKET) -> Journal | None:
    """Return the journal, if `descriptor` (standard error) leads there: systemd says so in JOURNAL_STREAM
    (systemd.exec(5)).

    The variable is inherited by what runs under a service but writes elsewhere, hence the comparison.
    """
    stream = environment.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return Journal(path) if stream == f"{status.st_dev}:{status.st_ino}" else None


def field_name(name: str) -> str:
    """Return a name as journald accepts it: capitals, digits and underscores, at most 64 characters."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.upper())[:LONGEST_NAME]


class Journal:
    """journald's socket."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path

    def send(self, fields: Iterable[tuple[str, str]]) -> None:
        """Send one message. Raises OSError if it cannot be sent, or not at once."""
        message = b"".join(_field(name, value) for name, value in fields)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
            speaker.setblocking(False)
            speaker.sendto(message, self._path)


def _field(name: str, value: str) -> bytes:
    """Return a value with line breaks is preceded by its length instead of an equals sign (Native Journal Protocol)."""
    data = value.encode("utf-8", "replace")
    if b"\n" in data:
        return b"%b\n%b%b\n" % (name.encode("ascii"), len(data).to_bytes(8, "little"), data)
    return b"%b=%b\n" % (name.encode("ascii"), data)
