"""The words for where GPU readings come from, in a file that the command line can import at no cost."""

from __future__ import annotations

DEVICES = ("auto", "nvml", "synthetic", "replay", "none")
