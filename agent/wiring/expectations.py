"""The expectations that the configuration or the command line names."""

from __future__ import annotations

from pathlib import Path

from agent.health.expectation_files import load_expectations
from agent.health.expected_node import GENERIC, Expected

AUTO = "auto"
"""Whatever is shipped for the GPUs that the node shows."""
NONE = "none"
"""Nothing but what holds for any node."""


def load_expected(source: str, folder: Path) -> Expected:
    """Shipped expectations by name, or a file, whose relative path begins in `folder`. Raises ExpectationError."""
    if source == NONE:
        return GENERIC
    is_file = "/" in source or source.endswith((".yaml", ".yml"))
    return load_expectations(str(folder / source) if is_file else source)
