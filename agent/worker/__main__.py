"""The device worker's entry: `python -m agent.worker OPTIONS`, started by the daemon and by nobody else.

It loads no more than its source needs: the fewer libraries share an address space with the driver's,
the less there is to lose.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
from types import FrameType

from agent.backends.protocol import DeviceSource
from agent.clock import clock
from agent.logs import set_up
from agent.worker.loop import Terminated, WorkerLoop


def _source(options: dict[str, object]) -> DeviceSource:
    if options["source"] == "synthetic":
        from agent.backends.synthetic import SyntheticSource, load_scenario

        return SyntheticSource(load_scenario(str(options["scenario"])), float(str(options["epoch"])))
    from agent.backends.nvml import NvmlSource

    return NvmlSource(wall=time.time)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def main(arguments: list[str]) -> int:
    """Run the worker described by the JSON object in `arguments[0]`."""
    options = json.loads(arguments[0])
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    set_up(str(options["log_level"]), str(options["log_format"]), sys.stderr)
    # Orders come on 0 and messages leave on a copy of 1, so that a stray print of a library goes to the log.
    messages = os.dup(1)
    os.dup2(2, 1)
    loop = WorkerLoop(_source(options), 0, messages, clock)
    gc.freeze()
    return loop.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
