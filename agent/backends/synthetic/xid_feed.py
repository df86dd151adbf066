"""XID events: they occur when a channel is read, because nothing here knows the time otherwise."""

from __future__ import annotations

import threading
from math import inf
from queue import Empty, SimpleQueue

from agent.backends.synthetic.scenario import Scenario, Window
from agent.model import Instant, Xid

FALLEN_OFF_THE_BUS = 79
GSP_RPC_TIMEOUT = 119

_TEXTS = {
    13: "Graphics Engine Exception",
    31: "MMU Fault",
    43: "GPU stopped processing",
    45: "Preemptive Channel Removal",
    48: "Double Bit ECC Error",
    63: "Row Remapper: new row marked for remapping, reset gpu to activate",
    64: "Row Remapper: failed to remap row",
    74: "NVLINK Error",
    FALLEN_OFF_THE_BUS: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    GSP_RPC_TIMEOUT: "Timeout waiting for RPC from GSP",
    154: "GPU recovery action changed",
}


class XidFeed:
    """Puts each XID of the scenario on a queue when it is due. For any number of threads."""

    def __init__(self, scenario: Scenario, uuids: tuple[str, ...], begin: float) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Xid | None] = SimpleQueue()
        self._sources = tuple(_sources(scenario, uuids))
        self._due = [_first_after(window, begin) for window, _, _ in self._sources]
        self._next = min(self._due, default=inf)

    def advance(self, t: float, now: Instant) -> None:
        """Queue everything that is due by `t`."""
        if t < self._next:
            return
        with self._lock:
            happened: list[tuple[float, Xid]] = []
            for number, (window, uuid, code) in enumerate(self._sources):
                while self._due[number] <= t:
                    due = self._due[number]
                    happened.append((due, Xid(uuid, code, now.wall - (t - due), "nvml", _TEXTS.get(code, ""))))
                    self._due[number] = _first_after(window, due + _NEXT_SECONDS)
            self._next = min(self._due, default=inf)
            for _, event in sorted(happened, key=lambda each: each[0]):
                self._queue.put(event)

    def wait(self, timeout: float) -> list[Xid]:
        """What has happened: returns at once if anything has, else after at most `timeout` seconds, or when closed."""
        events: list[Xid] = []
        try:
            # On Python 3.10 a get with a timeout of 0 may wait forever.
            event = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
            while event is not None:
                events.append(event)
                event = self._queue.get_nowait()
        except Empty:
            pass
        return events

    def close(self) -> None:
        """Wake up the waiting threads."""
        self._queue.put(None)


_NEXT_SECONDS = 1e-3


def _first_after(window: Window, t: float) -> float:
    """The first moment at or after `t` at which the window begins."""
    times = window.started(t)
    if times == 0:
        return window.at
    latest = window.at + (times - 1) * (window.repeat or 0.0)
    if latest >= t:
        return latest
    return inf if window.repeat is None else latest + window.repeat


def _sources(scenario: Scenario, uuids: tuple[str, ...]) -> list[tuple[Window, str, int]]:
    found: list[tuple[Window, str, int]] = []
    for fault in scenario.faults:
        if fault.kind == "xid":
            code = int(fault.parameters["code"])
        elif fault.kind == "lost":
            code = FALLEN_OFF_THE_BUS
        elif fault.kind == "hang":
            code = GSP_RPC_TIMEOUT
        else:
            continue
        found += [(fault.window, uuids[gpu], code) for gpu in fault.gpus]
    return found
