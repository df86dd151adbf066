"""The recent past of the series that rules read, and of no others."""

from alerts.windows.needs import Needs
from alerts.windows.store import Windows

__all__ = ["Needs", "Windows"]
