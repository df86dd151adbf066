"""Words of device families and profiles, in a file that the command line can import at no cost."""

from __future__ import annotations

DEVICES = ("auto", "nvml", "synthetic", "replay", "none")


PROFILES = ("none", "lean", "default", "full")
