"""Log lines in logfmt or JSON on standard error, in the format of Prometheus's own programs, and what is logged once.

A line has `ts`, `level`, `logger` and `msg`, then the pairs that the caller gave as `extra={"facts": {...}}`.
"""

import json
import logging
import time
import traceback
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TextIO

QUIET_SECONDS = 60.0
"""Seconds after which a problem that has not occurred again is over, for those who never see that it is."""
_NO_FACTS: Mapping[str, object] = MappingProxyType({})

_NAMES = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}


def _quote(value: object) -> str:
    text = str(value)
    if text and not any(c in text for c in ' "=\n\r\t\\') and text.isprintable():
        return text
    return _visible(json.dumps(text, ensure_ascii=False))


def _visible(text: str) -> str:
    """Return JSON with every character escaped that a terminal does not show, or obeys: names in it are others'."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


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


class LogOnce:
    """Logs a problem once when it begins, and once when it is over, however often it occurs. For one thread.

    Each problem has a key. Where times are given, they are always by the same clock, in seconds.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._standing: dict[Hashable, object] = {}
        self._last: dict[Hashable, tuple[float, str]] = {}

    def problem(
        self,
        key: Hashable,
        text: str,
        *args: object,
        cause: object = None,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        facts: Mapping[str, object] = _NO_FACTS,
    ) -> None:
        """Log a problem, unless it stands already; one that stands is logged again if `what` has changed."""
        if key not in self._standing or self._standing[key] != cause:
            self._standing[key] = cause
            self._log.log(level, text, *args, exc_info=error, extra={"facts": facts})

    def over(self, key: Hashable, text: str = "", *args: object, facts: Mapping[str, object] = _NO_FACTS) -> None:
        """End a problem; the text is logged if it stood."""
        if key in self._standing:
            del self._standing[key]
            if text:
                self._log.info(text, *args, extra={"facts": facts})

    def passing(self, now: float, key: Hashable, text: str, *args: object, over: str) -> None:
        """Log a problem that is over, with the text `over`, once it has not occurred for a while."""
        self.problem(key, text, *args)
        self._last[key] = now, over

    def defect(self, now: float, error: BaseException, text: str, *args: object) -> None:
        """Log a defect in our code, with its traceback, once for each place in the code; its end is not logged."""
        places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        key = type(error), *places[-1:]
        self.problem(key, text, *args, level=logging.ERROR, error=error)
        self._last[key] = now, ""

    def ease(self, now: float) -> None:
        """End the passing problems and defects that have not occurred for a while."""
        for key in [key for key, (last, _) in self._last.items() if now - last >= QUIET_SECONDS]:
            self.over(key, self._last.pop(key)[1])
