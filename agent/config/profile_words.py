"""The words of `agent.catalogue.profiles`, in a file that the command line can import at no cost."""

from __future__ import annotations

PROFILES = ("none", "lean", "default", "full")
