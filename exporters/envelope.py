"""The envelope of Prometheus's HTTP API, around every answer in JSON: what reads the one reads the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def success(data: Mapping[str, Any]) -> bytes:
    """An answer. A number that JSON cannot write is a defect, and raises ValueError."""
    return _encode({"status": "success", "data": data})


def failure(kind: str, text: str) -> bytes:
    """An error; `kind` is one of Prometheus's error types, such as `bad_data` and `unavailable`."""
    return _encode({"status": "error", "errorType": kind, "error": text})


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
