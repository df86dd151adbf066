"""The envelope of Prometheus's HTTP API, around every JSON response, for clients of that API.

Long responses are generated piece by piece, so that their producer can do something else in between.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

BEGIN, END = b'{"status":"success","data":', b"}\n"
"""What is before and after the data of an answer."""
_BATCH = 64
"""Items of a list that are encoded at once: some tenths of a millisecond."""

_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def dump(content: object) -> bytes:
    """Return the content as JSON. A number that JSON cannot write is a defect, and raises ValueError."""
    return _encoder.encode(content).encode("ascii")


def array(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Yield elements that are already JSON, as a list; empty ones are left out."""
    yield b"["
    comma = b""
    for element in elements:
        if element:
            yield comma + element
            comma = b","
        else:
            yield b""
    yield b"]"


def batches(contents: Iterable[Any]) -> Iterator[bytes]:
    """Yield elements for `array`, many in one piece."""
    contents = iter(contents)
    while batch := list(islice(contents, _BATCH)):
        yield dump(batch)[1:-1]
