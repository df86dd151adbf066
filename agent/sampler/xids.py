"""XID errors as counters and log lines. The driver reports each twice, by event and in the kernel log: it is counted
once.

The sums include every report, and nonsense reports cannot exhaust the memory: beyond a bound far above reality, an
error counts under the code `other`, or under the device `other`. A GPU may report an error every second for a day, and
a broken library thousands: each kind is logged at once, and a storm once a minute with its count.
"""

import logging
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.catalogue.xid_triage import ACTIONS, TRIAGE, Grade, XidClass, class_of, grade_of
from agent.lib.logs import LogOnce
from agent.model import Frame, Gpu, Labels, Xid
from agent.sampler.inventory import Inventory

log = logging.getLogger("coldplate.xid")

QUIET_SECONDS = 60.0
"""Seconds in which a kind is logged once."""
LINES = 60
"""Most lines in that time, of all kinds together."""
TEXT = 200
"""Most characters of the kernel's text that are logged."""

STRANGER = "unknown"
"""The index under which a GPU is shown that the inventory has not."""

Kind = tuple[Gpu, str]
"""A device, and a code or `other`."""


class _Reports(Struct):
    """What has been reported of one kind: how often, when last by the wall clock, and what the log has not said yet."""

    newest: Xid
    count: int = 0
    last: float = 0.0
    unlogged: int = 0
    logged_at: float | None = None
    """The monotonic second of the last log line."""


def _log_line(gpu: Gpu, code: str, reports: _Reports) -> None:
    xid = reports.newest
    facts: dict[str, object] = {"xid": code, "gpu": gpu.index, "uuid": gpu.uuid, "reporter": xid.reporter}
    facts |= _meaning(xid)
    if xid.text:
        facts["text"] = xid.text[:TEXT]
    if reports.unlogged > 1:
        facts["times"] = reports.unlogged
    log.warning("XID %d", xid.code, extra={"facts": facts})


def _meaning(xid: Xid) -> dict[str, object]:
    """Return what the code is called and what it asks for, which those who read logs would otherwise look up."""
    row = TRIAGE.get(xid.code)
    if row is None:
        return {"action": ACTIONS[XidClass.LOOK]}
    decided = class_of(xid.code, xid.text)
    return {"name": row.name, "action": row.action if decided is row.triage else ACTIONS[decided]}


OTHER = "other"
CODES = 256
"""Most codes with counters of their own on one GPU; the catalogue has some 170."""
KINDS = 4096
"""The same for all devices together. One fault causes a handful of codes on each GPU."""
STRANGERS = 64
"""Most devices outside the inventory with counters of their own."""
PAIRING_SECONDS = 10.0
"""Seconds within which the two reports of one error come."""
UNPAIRED, UNPAIRED_KINDS = 512, 256
"""Most reports of one kind that wait for their second one, and most kinds of such reports. In a larger storm, an error
that is reported twice may count twice."""


class XidLedger:
    """Counts XIDs by GPU and code, for as long as the agent runs, and logs them within a bound."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._reports: dict[Kind, _Reports] = {}
        self._codes: dict[Gpu, int] = {}
        """How many codes of its own a device has, beside those that exist from the start."""
        self._graded: Tally[tuple[Gpu, int, Grade]] = Tally()
        """What log lines said of errors whose code says nothing: seven codes, and two grades of each."""
        self._strangers: dict[str, Gpu] = {}
        self._unpaired = _Unpaired()
        self._series = OwnSeries()
        self._frame: Frame | None = None
        self._window_at = 0.0
        self._lines = 0
        self._once = LogOnce(log)

    def inventory_changed(self) -> None:
        """Note that the inventory may have changed."""
        self._frame = None

    def add_xid(self, xid: Xid) -> None:
        """Count one report, unless it is the second one of an error that was already counted.

        Only one of the two has the driver's words, so these count whichever comes first.
        """
        gpu = self._device(xid.device)
        self._enter_grade(gpu, xid)
        if self._unpaired.second(gpu, xid):
            return
        kind = self._kind(gpu, xid.code)
        self._frame = None
        reports = self._reports.get(kind)
        if reports is None:
            reports = self._reports[kind] = _Reports(xid)
        reports.newest = xid
        reports.count += 1
        reports.unlogged += 1
        reports.last = max(xid.wall, reports.last)

    def _enter_grade(self, gpu: Gpu, xid: Xid) -> None:
        grade = grade_of(xid.code, xid.text)
        if grade is not None:
            self._graded[gpu, xid.code, grade] += 1
            self._frame = None

    def flush_log(self, now: float) -> None:
        """Log what is due of what came since the last call; `now` in monotonic seconds."""
        if now - self._window_at >= QUIET_SECONDS:
            self._window_at, self._lines = now, 0
        for (gpu, code), reports in self._reports.items():
            quiet = reports.logged_at is None or now - reports.logged_at >= QUIET_SECONDS
            if reports.unlogged and quiet and self._lines < LINES:
                self._lines += 1
                _log_line(gpu, code, reports)
                reports.unlogged, reports.logged_at = 0, now

    def frame(self) -> Frame:
        """Return the counters of every known GPU, and when each code that occurred was last seen."""
        if self._frame is None:
            self._frame = self._series.frame(self._make_rows())
        return self._frame

    def _device(self, device: str) -> Gpu:
        """Return the GPU; one that was never enumerated is shown under the driver's name for it."""
        entity = self._inventory.find(device) or self._strangers.get(device)
        if entity is None:
            full = len(self._strangers) >= STRANGERS
            entity = Gpu(STRANGER, OTHER if full else device)
            if full:
                self._report_full(f"XID errors of more than {STRANGERS} unknown devices are counted together")
            else:
                self._strangers[device] = entity
        return entity

    def _kind(self, gpu: Gpu, code: int) -> Kind:
        kind = (gpu, str(code))
        is_own = gpu.index != STRANGER
        if kind in self._reports or (is_own and code in TRIAGE):  # rules read these codes of this node's GPUs
            return kind
        own = self._codes.get(gpu, 0)
        if own >= CODES or len(self._reports) >= KINDS:
            self._report_full(f"too many different XIDs; new ones are counted as {OTHER!r}")
            return gpu, OTHER
        self._codes[gpu] = own + 1
        return kind

    def _report_full(self, table: str) -> None:
        self._once.problem("full", "%s", table, level=logging.ERROR)

    def _make_rows(self) -> Iterator[OwnReading]:
        sums = dict.fromkeys((identity.gpu for identity in self._inventory.gpus.values()), 0)
        for (gpu, code), reports in self._reports.items():
            labels: Labels = (("xid", code),)
            yield OwnReading("coldplate_gpu_xid_errors_total", reports.count, labels, gpu)
            yield OwnReading("coldplate_gpu_xid_last_timestamp_seconds", reports.last, labels, gpu)
            sums[gpu] = sums.get(gpu, 0) + reports.count
        for gpu, count in sums.items():
            yield OwnReading("coldplate_gpu_xids_total", count, (), gpu)
        for (gpu, number, grade), count in self._graded.items():
            labels = (("xid", str(number)), ("grade", grade.value))
            yield OwnReading("coldplate_gpu_xid_graded_errors_total", count, labels, gpu)


class _Unpaired:
    """Reports whose second one has not come yet: by device and code, one reporter and when its reports came."""

    def __init__(self) -> None:
        self._waiting: dict[Kind, tuple[str, deque[float]]] = {}

    def second(self, gpu: Gpu, xid: Xid) -> bool:
        """Return whether this is the second report of an error; if not, it is kept until that comes."""
        kind = (gpu, str(xid.code))
        reporter, walls = self._waiting.pop(kind, (xid.reporter, deque[float](maxlen=UNPAIRED)))
        while walls and walls[0] < xid.wall - PAIRING_SECONDS:
            walls.popleft()
        is_second = reporter != xid.reporter and bool(walls) and walls[0] <= xid.wall + PAIRING_SECONDS
        if is_second:
            walls.popleft()
        else:
            walls = walls if reporter == xid.reporter else deque(maxlen=UNPAIRED)
            reporter = xid.reporter
            walls.append(xid.wall)
        if walls:
            self._waiting[kind] = reporter, walls  # now the last to be forgotten
        if len(self._waiting) > UNPAIRED_KINDS:
            del self._waiting[next(iter(self._waiting))]
        return is_second
