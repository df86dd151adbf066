"""XID errors as the driver reports them: one NVML event set over all GPUs, waited on by one thread.

The wait costs the device nothing. It may fail at once and permanently when a GPU falls off
the bus, so after an error this waits out its time and creates a new set without that GPU. XIDs from
before the registration are lost here; the kernel log has them.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from agent.backends.nvml.driver import PERMANENT_CODES, TIMEOUT, CallThreads, Driver, DriverError, escalate_source
from agent.lib.logs import LogOnce
from agent.model import Xid

log = logging.getLogger("coldplate.nvml")

XID_CRITICAL_ERROR = 8  # nvmlEventTypeXidCriticalError
BURST = 256
"""Most events taken at once; one fault causes many XIDs on many GPUs."""


class XidEventSet:
    """The event set, and the GPUs registered with it. `pause` waits, and ends early when closing."""

    def __init__(
        self, driver: Driver, wall: Callable[[], float], pause: Callable[[float], object], call_threads: CallThreads
    ) -> None:
        self._driver = driver
        self._wall = wall
        self._pause = pause
        self._call_threads = call_threads
        self._gpus: dict[object, str] = {}
        self._left_out: dict[object, str] = {}
        """Why a GPU is not registered, for GPUs that may be registered later."""
        self._set: object | None = None
        self._registered = False
        self._once = LogOnce(log)
        self._busy = threading.Lock()
        self._closed = False

    def open(self) -> None:
        """Create the set; without one, wait() returns nothing."""
        try:
            self._set = self._driver.call("nvmlEventSetCreate")
        except DriverError as error:
            escalate_source(error)
            log.warning("XID events are not available from NVML: %s", error)

    def watch(self, handle: object, uuid: str) -> None:
        """Register a GPU, if it offers XID events. Returns at once: one that hangs keeps a thread of its own."""
        self._gpus[handle] = uuid
        self._call_threads.start(_call_name(uuid), lambda: self._register(handle, uuid))

    def wait_for_registrations(self, seconds: float) -> None:
        """Wait until the registrations under way are done, for at most `seconds` seconds in all."""
        self._call_threads.wait([_call_name(uuid) for uuid in list(self._gpus.values())], seconds)

    def _register(self, handle: object, uuid: str) -> None:
        """Register with the current set; a GPU that hung while the set was replaced is registered with the new one."""
        registered: object | None = None
        while True:
            events = self._set
            if events is None or events is registered:
                return
            try:
                if not self._driver.call("nvmlDeviceGetSupportedEventTypes", handle) & XID_CRITICAL_ERROR:
                    log.info("%s does not offer XID events", uuid)
                    return
                self._driver.call("nvmlDeviceRegisterEvents", handle, XID_CRITICAL_ERROR, events)
            except DriverError as error:
                self._leave_out(handle, uuid, error)
                return
            self._left_out.pop(handle, None)
            registered, self._registered = events, True

    def _leave_out(self, handle: object, uuid: str, error: DriverError) -> None:
        if self._left_out.get(handle) != str(error):
            log.warning("no XID events from %s: %s", uuid, error)
        if error.code not in PERMANENT_CODES:
            self._left_out[handle] = str(error)

    def _watch_again(self) -> None:
        for handle in list(self._left_out):
            self.watch(handle, self._gpus[handle])

    def wait(self, timeout: float) -> Sequence[Xid]:
        """Return the events of the next `timeout` seconds at most. Raises SourceError."""
        with self._busy:
            if self._closed or self._set is None or not self._registered:
                self._pause(timeout)
                self._watch_again()
                return ()
            events: list[Xid] = []
            milliseconds = max(1, round(timeout * 1000))
            try:
                while len(events) < BURST:
                    event = self._next(milliseconds)
                    if event is not None:
                        events.append(event)
                    milliseconds = 0  # then take whatever else is there already
            except DriverError as error:
                escalate_source(error)
                if error.code != TIMEOUT:
                    self._back_off(error, timeout)
                elif not events:
                    self._watch_again()
            return tuple(events)

    def _next(self, milliseconds: int) -> Xid | None:
        handle, kind, data = self._driver.call("nvmlEventSetWait_v2", self._set, milliseconds)
        uuid = self._gpus.get(handle)
        if kind != XID_CRITICAL_ERROR or uuid is None:
            log.warning("NVML event of type %#x, data %s, for a GPU that is not registered", kind, data)
            return None
        return Xid(uuid, int(data), self._wall(), "nvml")

    def _back_off(self, error: DriverError, timeout: float) -> None:
        text = "waiting for XID events failed, creating a new event set: %s"
        self._once.problem("waiting", text, error, cause=str(error))
        self._pause(timeout)
        self._free()
        self._registered = False
        self.open()
        for handle, uuid in list(self._gpus.items()):
            self.watch(handle, uuid)
        self.wait_for_registrations(timeout)

    def _free(self) -> None:
        events, self._set = self._set, None  # before the look at the registrations: later ones find none
        in_use = any(self._call_threads.is_in_flight(_call_name(uuid)) for uuid in list(self._gpus.values()))
        if events is not None and in_use:
            # A GPU that hangs while it is being registered delays nothing, but the set must stay: otherwise the library
            # would write into freed memory.
            log.info("NVML event set not freed: a GPU registration is in progress")
        elif events is not None:
            try:
                self._driver.call("nvmlEventSetFree", events)
            except DriverError as error:
                log.info("%s", error)

    def close(self) -> None:
        """Free the set once no wait is under way; may be called more than once."""
        with self._busy:
            self._closed = True
            self._free()


def _call_name(uuid: str) -> str:
    return f"events-{uuid}"
