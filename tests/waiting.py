"""Waiting for what another thread or process brings about."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], within: float = 30.0) -> None:
    """Return once the condition holds; fail after so many seconds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)
