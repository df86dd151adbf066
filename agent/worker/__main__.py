"""Entry point of the device worker: `python -m agent.worker OPTIONS`, started only by the daemon.

It loads only what its source needs: the fewer libraries share an address space with the driver's,
the less can be corrupted.
"""

import contextlib
import faulthandler
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
from types import FrameType

from agent.backends.protocol import SourceOptions, make_device_source
from agent.lib.clock import clock
from agent.lib.logs import set_up
from agent.worker.loop import Terminated, WorkerLoop

MEMORY = 2**30
"""Bytes of data that the process may map, in case a library would take all memory at once.

The supervisor ends a worker that holds far less. This counts writable memory, resident or not: 57 MB with 8 GPUs on the
substitute for the driver's library, 155 MB with 16 that all hang, each of which occupies a thread with 8 MiB of stack.
A thread beyond the bound is refused, which costs a sample.
"""
OOM_STEP = 100
"""How much sooner than the main process the kernel should kill this one for memory, in thousandths of the memory."""


def _confine() -> None:
    """Bound, before the library is loaded, the memory and make this process the first that the kernel kills for it."""
    with contextlib.suppress(OSError, ValueError):  # it may be forbidden; the supervisor watches the memory, too
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    # A value below 0 is for a service that should outlive others, which applies only to the main process.
    # Without pathlib, which would take 0.7 MiB for this.
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+b", 0) as score:  # noqa: PTH123
        score.write(b"%d" % min(max(int(score.read()) + OOM_STEP, 0), 1000))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def main(arguments: list[str]) -> int:
    """Run the worker described by the JSON object in `arguments[0]`."""
    options = json.loads(arguments[0])
    _confine()
    # What is written there faster than it is read is lost: no thread may wait until its log line is read.
    os.set_blocking(2, False)
    logging.raiseExceptions = False
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    set_up(options["log_level"], options["log_format"], sys.stderr)
    # Orders come on 0 and messages leave on a copy of 1, so that a stray print of a library goes to the log.
    messages = os.dup(1)
    os.dup2(2, 1)
    source_options = SourceOptions(options["scenario"], options["epoch"], time.time, options["trace"])
    loop = WorkerLoop(make_device_source(options["source"], source_options), 0, messages, clock)
    gc.freeze()
    return loop.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
