"""XID events: they occur when a channel is read, because nothing here knows the time otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import inf
from queue import Empty, SimpleQueue
from typing import NamedTuple

from agent.backends.synthetic.scenario import Scenario, ScenarioFault, Window
from agent.catalogue.xid_triage import TRIAGE, XidClass
from agent.model import Instant, Xid

FALLEN_OFF_THE_BUS = 79
GSP_RPC_TIMEOUT = 119


UNSAID = "unsaid"
"""The log line of an NVLink 5 error is not there, or cannot be read."""


class _Source(NamedTuple):
    """An XID that comes whenever its window begins."""

    window: Window
    uuid: str
    code: int
    text: str


class XidFeed:
    """Puts each XID of the scenario on a queue when it is due. For any number of threads."""

    def __init__(self, scenario: Scenario, uuids: tuple[str, ...], begin: float) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Xid | None] = SimpleQueue()
        self._sources = tuple(_sources(scenario, uuids))
        self._due = [_first_after(source.window, begin) for source in self._sources]
        self._next = min(self._due, default=inf)

    def advance(self, t: float, now: Instant) -> None:
        """Queue everything that is due by `t`."""
        if t < self._next:
            return
        with self._lock:
            happened: list[tuple[float, Xid]] = []
            for number, source in enumerate(self._sources):
                while self._due[number] <= t:
                    due = self._due[number]
                    happened.append((due, Xid(source.uuid, source.code, now.wall - (t - due), "nvml", source.text)))
                    self._due[number] = _first_after(source.window, due + _NEXT_SECONDS)
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


def _sources(scenario: Scenario, uuids: tuple[str, ...]) -> Iterator[_Source]:
    for fault in scenario.faults:
        code = _code(fault)
        if code is not None:
            text = _text(code, fault.options.get("words", UNSAID))
            yield from (_Source(fault.window, uuids[gpu], code, text) for gpu in fault.gpus)


def _code(fault: ScenarioFault) -> int | None:
    if fault.kind == "xid":
        return int(fault.parameters["code"])
    return {"lost": FALLEN_OFF_THE_BUS, "hang": GSP_RPC_TIMEOUT}.get(fault.kind)


def _text(code: int, words: str) -> str:
    """What a log line says; that of NVLink 5 in the driver's form, if the scenario says how grave it is."""
    row = TRIAGE.get(code)
    if row is None:
        return ""
    if row.triage is not XidClass.WORDS:
        return row.name
    if words == UNSAID:
        return ""
    unit = row.name.rpartition(" ")[2]
    return f"{code}, {unit} {words.capitalize()} XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000 0x00000000)"
