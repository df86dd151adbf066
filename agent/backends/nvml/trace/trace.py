"""The trace of a driver: the answers of one machine, call by call, in lines of JSON.

The first line is the provenance. Then one line for each call, in order:

    {"at": 0.1534, "us": 12, "call": "nvmlDeviceGetClockInfo", "args": [{"is": "gpu0"}, 1], "value": 1980}

`at` is seconds since the recording started, `us` the duration of the call in microseconds; `code` replaces
`value` if it failed. Handles and other opaque things are `{"is": NAME}`. A batch of fields has
`fields`, the (field, scope) pairs, and `slots`: [type, value] each, or the field's own error code; GPM has `metrics`
and `results`, [code, value] each. The last line lists the metrics that the recorded run showed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1


class TraceError(Exception):
    """The file is not a trace that can be replayed; the text names it and the line."""


class Trace:
    """A trace that was read. Raises TraceError if it is not a trace, and OSError."""

    def __init__(self, path: Path) -> None:
        lines = []
        for number, text in enumerate(path.read_bytes().splitlines(), 1):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise TraceError(f"{path}:{number}: is not JSON: {error}") from error
            if not isinstance(line, dict):
                raise TraceError(f"{path}:{number}: is not a JSON object")
            lines.append(line)
        if len(lines) < 3 or lines[0].get("trace") != FORMAT or "shown" not in lines[-1]:
            raise TraceError(f"{path}: is not a complete trace of format {FORMAT}; record it again with --record")
        self.provenance: dict[str, Any] = lines[0]
        self.shown: dict[str, list[str]] = lines[-1]["shown"]
        self.calls: list[dict[str, Any]] = lines[1:-1]
