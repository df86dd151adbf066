"""Record every driver call of a few samples, so that what this machine answers becomes a test of coldplate.

`coldplate doctor --bundle` runs this module in a process of its own, because a driver may hang or crash.
"""

import logging
import platform
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agent import __version__
from agent.backends.nvml.driver import Driver
from agent.backends.nvml.nvml_source import NvmlSource
from agent.backends.nvml.trace import IdentifierLeakError, Pseudonyms, RecordingDriver
from agent.backends.protocol import AbsentError, SourceError
from agent.lib.clock import clock
from agent.model import LANES, GpuIdentity, Lane

TURNS = 12
PERIOD_SECONDS = 0.12
"""Seconds between samples: the driver's performance counters need more than 0.1."""
STAND_IN = "stand-in"
"""What the tests' library for libnvidia-ml.so.1 says of itself in its error texts."""


def record_session(driver: Driver, names: Pseudonyms, provenance: Mapping[str, Any]) -> str:
    """Return the trace of opening the GPUs and reading each: the fast lane, and in the first and the last turn every
    lane. Raises AbsentError, SourceError and IdentifierLeakError.
    """
    recording = RecordingDriver(driver, lambda: clock().mono, names)
    source = NvmlSource(recording, wall=lambda: clock().wall)
    shown: dict[Lane, set[str]] = {lane: set() for lane in LANES}
    try:
        channels = source.open(clock())
        for turn in range(TURNS):
            for channel in channels:
                for lane in LANES if turn in (0, TURNS - 1) else (Lane.FAST,):
                    shown[lane] |= {each.metric.name for each in channel.read(lane, clock()).readings}
            time.sleep(PERIOD_SECONDS)
    finally:
        source.close()
    return recording.text(provenance, {lane.value: sorted(found) for lane, found in shown.items()})


def facts_of_trace(identities: list[GpuIdentity], driver: Driver, command: str) -> dict[str, Any]:
    """Return what a trace says about where it comes from; nothing of it identifies the machine."""
    facts = [dict(each.facts) for each in identities]
    models = Counter(each.model or "unknown" for each in identities)
    answer: Any = driver.call("nvmlErrorString", 999)
    return {
        "stand_in": STAND_IN in (answer.decode() if isinstance(answer, bytes) else str(answer)),
        "GPUs": ", ".join(f"{number} x {model}" for model, number in models.items()),
        "driver": ", ".join(sorted({each.get("driver_version", "?") for each in facts})),
        "VBIOS": ", ".join(sorted({each.get("vbios", "?") for each in facts})),
        "date": time.strftime("%Y-%m-%d", time.gmtime(clock().wall)),
        "coldplate": __version__,
        "Python": platform.python_version(),
        "command": command,
    }


def main() -> int:
    """Write the trace to standard output; without one, return exit status 3 and say why on standard error."""
    from agent.backends.nvml.pynvml_driver import PynvmlDriver

    logging.disable()
    try:
        driver = PynvmlDriver()
        source = NvmlSource(driver, wall=lambda: clock().wall)
        identities = [each.identity for each in source.open(clock()) if each.identity is not None]
        names = Pseudonyms((socket.gethostname(),))
        for each in identities:
            names.learn(each.gpu.uuid, each.serial, dict(each.facts).get("board_part", ""))
        provenance = facts_of_trace(identities, driver, "coldplate doctor --bundle")
        source.close()
        trace = record_session(driver, names, provenance)
    except (AbsentError, SourceError, IdentifierLeakError, ImportError) as error:
        print(error, file=sys.stderr)
        return 3
    sys.stdout.write(trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
