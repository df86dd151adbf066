"""The faults that change only what is read: lost and silent GPUs, corrupted values, error counters, XIDs and SXids.

The plausibility filter, the deadlines and the isolation of failures are outside a source; the values here are
deliberately raw, so that these have something to do.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from agent.backends.protocol import DeviceError, SourceError
from agent.backends.synthetic.activity import hash64
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, Window
from agent.backends.synthetic.supported_series import Key
from agent.catalogue import BY_NAME
from agent.catalogue.xid_triage import TRIAGE, XidClass
from agent.model import Gap, Instant, Labels, Node, Reading, Reason, Series, Xid

SPOILING = frozenset({"missing", "sentinel", "counter-back", "reading"})
SENTINELS = {"nan": float("nan"), "inf": float("inf"), "huge": 1e19, "negative": -1.0}
GSP_TIMEOUT = "Timeout waiting for RPC from GSP"


class ReadGate:
    """Lets a read pass, raises the scenario's error, or blocks the read until the source is closed."""

    def __init__(self, scenario: Scenario, gpu: int | None, released: threading.Event) -> None:
        self._unloaded = scenario.faults_of("driver-unloaded")
        self._lost = scenario.faults_of("lost", gpu) if gpu is not None else ()
        self._hangs = scenario.faults_of("hang", gpu) if gpu is not None else ()
        self._released = released

    def source(self, t: float) -> None:
        """Raise SourceError while the driver is away, and after close()."""
        if self._released.is_set():
            raise SourceError("the synthetic source is closed")
        if any(fault.window.holds(t) for fault in self._unloaded):
            raise SourceError("nvmlInit_v2: Driver Not Loaded (synthetic fault driver-unloaded)")

    def silence(self, t: float) -> DeviceError | None:
        """Return why the device does not identify itself at `t`; None if it does. Never blocks."""
        if any(fault.window.holds(t) for fault in self._lost):
            return DeviceError(Reason.LOST, "nvmlDeviceGetHandleByIndex_v2: GPU is lost (synthetic fault lost)")
        if any(fault.window.holds(t) for fault in self._hangs):
            detail = "it does not answer when asked to identify itself (synthetic fault hang)"
            return DeviceError(Reason.TIMEOUT, detail)
        return None

    def device(self, t: float) -> None:
        """Raise or block as this device's faults demand at `t`."""
        self.source(t)
        if any(fault.window.holds(t) for fault in self._lost):
            raise DeviceError(Reason.LOST, "nvmlDeviceGetFieldValues: GPU is lost (synthetic fault lost)")
        for fault in self._hangs:
            begun = fault.window.begun(t)
            if begun is not None:
                length = fault.window.duration
                self._released.wait(None if length is None else begun + length - t)
                raise DeviceError(Reason.TIMEOUT, f"nvmlDeviceGetFieldValues: {GSP_TIMEOUT} (synthetic fault hang)")


class ReadingCorruptor:
    """Removes values, or replaces them by impossible ones or by those that a scenario sets."""

    def __init__(self, scenario: Scenario, gpu: int | None = None, port: str = "", part: str = "") -> None:
        """Take a GPU, an InfiniBand port, or the part that is an optical interface."""
        self._faults = tuple(
            fault
            for fault in scenario.faults
            if fault.kind in SPOILING
            and (gpu in fault.gpus if gpu is not None else (fault.port, fault.part) == (port, part))
        )

    def active(self, t: float) -> Sequence[ScenarioFault]:
        return [fault for fault in self._faults if fault.window.holds(t)] if self._faults else ()

    def readings(self, readings: Sequence[Reading], t: float) -> tuple[Sequence[Reading], list[Gap]]:
        """Return the readings that are left, and the gaps in place of the others."""
        gaps: list[Gap] = []
        for fault in self.active(t):
            readings = list(_spoilt(readings, fault, gaps))
        return readings, gaps


def _spoilt(readings: Sequence[Reading], fault: ScenarioFault, gaps: list[Gap]) -> Iterator[Reading]:
    metric = fault.options["metric"]
    for reading in readings:
        series, value = reading
        if series.metric.name != metric:
            yield reading
        elif fault.kind == "missing":
            detail = f"synthetic fault missing: {metric}"
            gap = Gap(series.metric, series.entity, Reason(fault.options["reason"]), detail)
            if gap not in gaps:
                gaps.append(gap)
        elif fault.kind == "sentinel":
            yield Reading(series, SENTINELS[fault.options["value"]])
        elif fault.kind == "reading":
            label = fault.options["label"]
            is_meant = not label or label in (text for _, text in series.labels)
            yield Reading(series, fault.parameters["value"]) if is_meant else reading
        else:
            yield Reading(series, value - fault.parameters["by"])


class ErrorTally:
    """Error counts of one device in closed form: some at each onset of a fault, and a rate while it lasts."""

    def __init__(self, faults: Sequence[ScenarioFault], rate: str, burst: str) -> None:
        self._terms = tuple(
            (fault.window, fault.parameters.get(rate, 0.0), fault.parameters.get(burst, 0.0)) for fault in faults
        )

    def at(self, t: float) -> float:
        return sum(window.elapsed(t) * rate + window.started(t) * burst for window, rate, burst in self._terms) // 1.0


ECC = "coldplate_gpu_ecc_errors_total"
ECC_OF_LIFE = "coldplate_gpu_ecc_aggregate_errors_total"
REMAPS = "coldplate_gpu_row_remaps_total"
ACTION = "coldplate_gpu_recovery_action"
LINK_ERRORS = "coldplate_nvlink_errors_total"
TOTALS = "coldplate_gpu_nvlink_errors_total"
TOTAL_OF = {"crc": "crc_flit"}
"""The GPU's name for a type of error summed over all links, where it differs from the link's own."""


class SyntheticErrorCounters:
    """Error counters and fault flags of one GPU and its links: values that differ from the healthy constants, by key.

    A link's key has the link's number second.
    """

    def __init__(self, scenario: Scenario, gpu: int) -> None:
        ecc, self._remaps = scenario.faults_of("ecc", gpu), scenario.faults_of("row-remap", gpu)
        self._down, self._pcie = scenario.faults_of("nvlink-down", gpu), scenario.faults_of("pcie", gpu)
        self._corrected = ErrorTally(ecc, "corrected_rate", "corrected")
        self._uncorrected = ErrorTally(ecc, "uncorrected_rate", "uncorrected")
        self._remapped = {cause: ErrorTally(self._remaps, "", cause) for cause in ("correctable", "uncorrectable")}
        self._replays = ErrorTally(self._pcie, "replay_rate", "replays")
        self._life = float(hash64(scenario.seed, gpu, 41) % 7)  # corrected errors of the years before
        links: dict[tuple[int, str], list[ScenarioFault]] = {}
        for fault in scenario.faults_of("nvlink-errors", gpu):
            links.setdefault((fault.link, fault.options["type"]), []).append(fault)
        self._links = {place: ErrorTally(faults, "rate", "burst") for place, faults in links.items()}

    def at(self, t: float) -> dict[Key, float]:
        corrected, uncorrected = self._corrected.at(t), self._uncorrected.at(t)
        values: dict[Key, float] = {
            (ECC, "corrected"): corrected,
            (ECC, "uncorrected"): uncorrected,
            (ECC_OF_LIFE, "corrected"): corrected + self._life,
            (ECC_OF_LIFE, "uncorrected"): uncorrected,
        }
        if self._remaps:
            self._rows(values, t)
        if self._pcie:
            self._bus(values, t)
        for link in self.links_down(t):
            values["coldplate_nvlink_up", str(link)] = 0.0
        for (link, kind), tally in self._links.items():
            count = tally.at(t)
            values[LINK_ERRORS, str(link), kind] = count
            total = (TOTALS, TOTAL_OF.get(kind, kind))
            values[total] = values.get(total, 0.0) + count
        return values

    def links_down(self, t: float) -> set[int]:
        return {fault.link for fault in self._down if fault.window.holds(t)}

    def _rows(self, values: dict[Key, float], t: float) -> None:
        for cause, tally in self._remapped.items():
            values[REMAPS, cause] = tally.at(t)
        for fault in self._remaps:
            if not fault.window.holds(t):
                continue
            if fault.parameters["pending"]:
                values["coldplate_gpu_row_remap_pending",] = 1.0
                values[ACTION, "none"], values[ACTION, "gpu_reset"] = 0.0, 1.0
            if fault.parameters["failure"]:
                values["coldplate_gpu_row_remap_failure",] = 1.0
                values[ACTION, "none"], values[ACTION, "gpu_reset"] = 0.0, 0.0
                values[ACTION, "drain_and_reset"] = 1.0

    def _bus(self, values: dict[Key, float], t: float) -> None:
        values["coldplate_gpu_pcie_replays_total",] = self._replays.at(t)
        for fault in self._pcie:
            if fault.window.holds(t):
                values["coldplate_gpu_pcie_link_width",] = fault.parameters["width"]
                values["coldplate_gpu_pcie_link_generation",] = fault.parameters["generation"]


FIRST_BUS = 0xC1
"""The PCI bus of switch 0; the others follow it."""


class SwitchErrors:
    """SXids of the node's NVSwitches: counts the onsets of all faults of this kind, by switch, code and grade.

    A counter appears with its first error, as the kernel log would have been read.
    """

    def __init__(self, scenario: Scenario) -> None:
        row = BY_NAME["coldplate_node_nvswitch_sxid_errors_total"]
        self._faults: dict[Series, list[ScenarioFault]] = {}
        for fault in scenario.faults_of("sxid"):
            self._faults.setdefault(Series(row, Node(), _labels(fault)), []).append(fault)

    def readings(self, t: float) -> Iterator[Reading]:
        for series, faults in self._faults.items():
            count = sum(fault.window.started(t) * fault.parameters["times"] for fault in faults)
            if count:
                yield Reading(series, count)


def _labels(fault: ScenarioFault) -> Labels:
    pci = f"0000:{FIRST_BUS + int(fault.parameters['switch']):02x}:00.0"
    return ("pci", pci), ("sxid", str(int(fault.parameters["code"]))), ("grade", fault.options["words"])


_XID_OF = {"lost": 79, "hang": 119}
"""The codes of a GPU that has fallen off the bus, and of a timeout of the GPU's firmware (GSP RPC)."""
UNKNOWN = "unknown"
"""The log line of an NVLink 5 error is not there, or cannot be read."""


class XidFeed:
    """Puts each XID of the scenario on a queue when it is due, and a channel is read. For any number of threads."""

    def __init__(self, scenario: Scenario, uuids: tuple[str, ...], begin: float) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Xid | None] = SimpleQueue()
        self._xids = list(_xids(scenario, uuids))
        self._counts = [_onsets_before(window, begin) for window, _ in self._xids]
        """How often each of them has come."""

    def advance(self, t: float, now: Instant) -> None:
        due = []
        with self._lock:
            for place, (window, xid) in enumerate(self._xids):
                onsets = range(self._counts[place] + 1, window.started(t) + 1)
                due += [(window.onset(number), place, xid) for number in onsets]
                self._counts[place] += len(onsets)
            for onset, _, xid in sorted(due):
                self._queue.put(replace(xid, wall=now.wall - (t - onset)))

    def wait(self, timeout: float) -> list[Xid]:
        """Return what has happened: at once if anything has, else after `timeout` seconds, or when closed."""
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
        self._queue.put(None)


def _onsets_before(window: Window, t: float) -> int:
    """Return how often the window has begun before `t`, not counting an onset at `t` itself."""
    times = window.started(t)
    return times - 1 if times and window.onset(times) >= t else times


def _xids(scenario: Scenario, uuids: tuple[str, ...]) -> Iterator[tuple[Window, Xid]]:
    """Yield each XID, which comes whenever its window begins."""
    for fault in scenario.faults:
        code = fault.parameters["code"] if fault.kind == "xid" else _XID_OF.get(fault.kind)
        if code is not None:
            text = _text(int(code), fault.options.get("words", UNKNOWN))
            yield from ((fault.window, Xid(uuids[gpu], int(code), 0.0, "nvml", text)) for gpu in fault.gpus)


def _text(code: int, words: str) -> str:
    """Return the log line of an NVLink 5 error, if the scenario says how grave it is; empty in all other cases."""
    row = TRIAGE.get(code)
    if row is None or row.triage is not XidClass.WORDS or words == UNKNOWN:
        return ""
    unit = row.name.rpartition(" ")[2]
    return f"{code}, {unit} {words.capitalize()} XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000 0x00000000)"
