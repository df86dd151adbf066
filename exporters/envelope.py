"""The envelope of Prometheus's HTTP API, around every JSON response, for clients of that API."""

import json

_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def dump(content: object) -> bytes:
    """Return the content as JSON. A number that JSON cannot write is a defect, and raises ValueError."""
    return _encoder.encode(content).encode("ascii")


def success(data: object) -> bytes:
    """Return the answer to a request that succeeded, with its data."""
    return dump({"status": "success", "data": data}) + b"\n"
