"""Starts processes beside the measurement of coverage."""

from __future__ import annotations

import os


def unmeasured() -> dict[str, str]:
    """The environment, without what has a Python that is started in it measure itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
