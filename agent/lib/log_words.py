"""The words for log lines on the command line, in a file that costs nothing to import."""

from __future__ import annotations

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("logfmt", "json")
