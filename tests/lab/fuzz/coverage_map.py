"""Which steps between lines of the product an input takes, with nothing but the interpreter's own tracing.

A function that has shown nothing new for many calls is traced no more, so a run gets faster as it learns.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tests.lab.fuzz.target import ROOT

PRODUCT = tuple(str(ROOT / top) + "/" for top in ("agent", "alerts", "exporters"))
STALE_CALLS = 3000

Step = tuple[CodeType, int, int]


class CoverageMap:
    """What all inputs so far have reached."""

    def __init__(self) -> None:
        self.steps: set[Step] = set()
        self._patience: dict[CodeType, int] = {}
        self._new: set[Step] = set()

    @property
    def lines(self) -> int:
        """The number of lines of the product that were reached."""
        return len({(code.co_filename, line) for code, _, line in self.steps})

    @property
    def files(self) -> set[str]:
        """The product's files in which something was reached, from the root on."""
        return {code.co_filename.removeprefix(f"{ROOT}/") for code, _, _ in self.steps}

    def run(self, call: Callable[[], object]) -> None:
        """Call it, and remember what was new; see `take`. What was traced before goes on being traced afterwards."""
        self._new.clear()
        before = sys.gettrace()
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            call()
        finally:
            threading.settrace(before)
            sys.settrace(before)

    def take(self) -> set[Step]:
        """The steps of the last call that no call before it took."""
        new = self._new - self.steps
        self.steps |= new
        for code, _, _ in new:
            self._patience[code] = STALE_CALLS
        return new

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        patience = self._patience.get(code)
        if patience is None:
            patience = STALE_CALLS if code.co_filename.startswith(PRODUCT) else 0
        if not patience:
            self._patience[code] = 0
            return None
        self._patience[code] = patience - 1
        last, steps, new = 0, self.steps, self._new

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                step = (code, last, frame.f_lineno)
                last = frame.f_lineno
                if step not in steps:
                    new.add(step)
            return line

        return line
