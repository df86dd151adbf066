"""The recent past of those series that some rule reads, and of no other."""

from __future__ import annotations

from alerts.windows.needs import Needs
from alerts.windows.store import Windows

__all__ = ["Needs", "Windows"]
