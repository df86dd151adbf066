"""Until when certificates are valid. The standard library tells it only of a peer's certificate that is valid today."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import datetime, timezone

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
"""Tags of DER (X.690): a certificate is nested sequences, and its version is optional (RFC 5280, 4.1)."""
_BEFORE_VALIDITY = 3
"""Fields between the version and the validity: serial number, signature algorithm, issuer."""


def first_expiry(chain: bytes) -> float | None:
    """The Unix second at which the first certificate of a PEM file expires; None if none can be understood.

    A chain is as good as its worst part: a client refuses an issuer's certificate that has expired as well.
    """
    found = []
    for coded in _PEM.findall(chain):
        try:
            found.append(_expiry(base64.b64decode(coded)))
        except (ValueError, IndexError, StopIteration):
            continue
    return min(found, default=None)


def _expiry(certificate: bytes) -> float:
    """Raises ValueError, IndexError or StopIteration for what is no certificate."""
    _, whole = next(_elements(certificate))
    _, signed = next(_elements(whole))
    fields = list(_elements(signed))
    if fields[0][0] == _VERSION:
        del fields[0]
    tag, validity = fields[_BEFORE_VALIDITY]
    if tag != _SEQUENCE:
        raise ValueError("no validity where it belongs")
    _, (kind, text) = _elements(validity)
    return _time(kind, text.decode("ascii"))


def _time(kind: int, text: str) -> float:
    """A time in UTC, in the two forms of RFC 5280, 4.1.2.5: years of two digits are those from 1950 to 2049."""
    if kind == _UTC_TIME:
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    elif kind != _GENERALIZED_TIME:
        raise ValueError("no time where it belongs")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element."""
    place = 0
    while place < len(data):
        tag, size, place = data[place], data[place + 1], place + 2
        if size >= 0x80:
            digits = size & 0x7F
            size = int.from_bytes(data[place : place + digits], "big")
            place += digits
        if place + size > len(data):
            raise ValueError("an element ends beyond its parent")
        yield tag, data[place : place + size]
        place += size
