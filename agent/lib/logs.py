"""Log lines in logfmt or JSON on standard error, in the format of Prometheus's own programs.

A line has `ts`, `level`, `logger` and `msg`, then the pairs that the caller gave as
`extra={"facts": {...}}`. The standard library's logger is sufficient; there is no third-party one.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TextIO

_NAMES = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}


def _quote(value: object) -> str:
    text = str(value)
    if text and not any(c in text for c in ' "=\n\r\t\\') and text.isprintable():
        return text
    return _visible(json.dumps(text, ensure_ascii=False))


def _visible(text: str) -> str:
    """JSON with every character escaped that a terminal does not show, or obeys: names in it are others'."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


class _Formatter(logging.Formatter):
    def __init__(self, style: str) -> None:
        super().__init__()
        self._layout = style

    def format(self, record: logging.LogRecord) -> str:
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))  # `datetime` would cost the worker 0.3 MiB
        pairs: dict[str, object] = {
            "ts": f"{stamp}.{milliseconds:03d}Z",
            "level": _NAMES.get(record.levelname, record.levelname.lower()),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        pairs.update(getattr(record, "facts", {}))
        if record.exc_info:
            pairs["trace"] = self.formatException(record.exc_info)
        if self._layout == "json":
            return _visible(json.dumps(pairs, ensure_ascii=False, default=str))
        return " ".join(f"{key}={_quote(value)}" for key, value in pairs.items())


def set_up(level: str, style: str, stream: TextIO) -> None:
    """Send all log lines of at least `level` to `stream`, in `style`; may be called again."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter(style))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel({"warn": "WARNING"}.get(level, level.upper()))
