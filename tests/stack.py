"""Calls from far down the stack, as code is called that others call in turn."""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def far_down(call: Callable[[], T]) -> T:
    """Calls from where almost half of the calls within each other are used up."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back

    def below(frames: int) -> T:
        return call() if frames <= 0 else below(frames - 1)

    return below(sys.getrecursionlimit() * 45 // 100 - depth)
