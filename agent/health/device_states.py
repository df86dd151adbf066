"""The state of one GPU or port at a moment, before a rule's `for` has passed: throttle causes and signs of faults."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.catalogue.gpu import WORKING_POWER
from agent.catalogue.xid_triage import XidClass, called, class_of, codes_of
from agent.health.seen_node import AGE, CLOCKS, POWER, SLOWDOWN, THROTTLE, UMBRELLA, SeenGpu, SeenNode
from agent.health.verdicts import GpuFinding, Verdict, by_rank
from agent.lib.wording import age, short_numbers
from agent.model import IbPort, Reason


class ThrottleReason(NamedTuple):
    """A reason for low clocks: how bad it is, and what it means, in a sentence and in few words."""

    verdict: Verdict
    text: str = ""
    cause: str = ""
    word: str = ""


POWER_CAP = "sw_power_cap"
THROTTLES = {
    "hw_thermal_slowdown": ThrottleReason(
        Verdict.CRITICAL, "the hardware halves its clocks because of heat", "heat", "heat (hw)"
    ),
    "hw_power_brake": ThrottleReason(
        Verdict.CRITICAL, "power brake by the node's power supply", "the power brake", "power brake"
    ),
    UMBRELLA: ThrottleReason(
        Verdict.WARNING, "the hardware slows it down because of heat or power", word="hw slowdown"
    ),
    "sw_thermal_slowdown": ThrottleReason(
        Verdict.WARNING, "the driver lowers its clocks because of heat", word="heat (sw)"
    ),
    **{
        reason: ThrottleReason(Verdict.SKIPPED, word=word)
        for reason, word in (
            ("sync_boost", "sync boost"), ("application_clocks", "app clocks"), ("display_clocks", "display clocks"),
            (POWER_CAP, "power cap"), ("gpu_idle", "idle"), ("low_utilization", "low utilization"),
        )
    },
}  # fmt: skip
"""Every reason of the driver; those without a text are normal, or intended."""

XID_VERDICTS = {XidClass.POWER: Verdict.WARNING, XidClass.RESET: Verdict.CRITICAL, XidClass.NODE: Verdict.CRITICAL}
"""How bad it is that an XID of a class was reported; the others ask for nothing on the node, as far as is known."""
HARMLESS_XIDS = codes_of(XidClass.NOTE, XidClass.APPLICATION, XidClass.CLEANUP)
"""XIDs after which the hardware is fine: a program's fault, the end of its process, a note by the driver."""

MARGIN_CELSIUS = 5.0
"""The least distance to the GPU's own slowdown threshold, as in the rule GpuHot and the shipped expectations."""
MEMORY_HOT_CELSIUS = 95.0
"""As in the rule GpuHot, sensor memory."""
BUSY = 0.7
BEHIND = 0.5
"""As in the rules of imbalance: how far below the busiest GPU of its job, if that one is busy."""
LOW_CLOCK = 0.75
"""Share of the highest clock, or of its peers' at the power cap: matrix products hold an H200 at 1,440 of 1,980 MHz."""
RECENT_SECONDS = 3600.0
"""Seconds for which an XID is a finding."""

REMAP_FAILURE, REMAP_PENDING = "coldplate_gpu_row_remap_failure", "coldplate_gpu_row_remap_pending"
MARGIN = "coldplate_gpu_temperature_margin_celsius"
MEMORY_HEAT = "coldplate_gpu_memory_temperature_celsius"
WIDTH, WIDTH_MAX = "coldplate_gpu_pcie_link_width", "coldplate_gpu_pcie_link_width_max"
LIMIT = "coldplate_gpu_power_limit_watts"
LIMIT_DEFAULT = "coldplate_gpu_power_limit_default_watts"
CLOCK, CLOCK_LIMIT = CLOCKS
PORT_UP = "coldplate_infiniband_port_up"
RATE = "coldplate_infiniband_rate_bytes_per_second"
STATE = "coldplate_infiniband_state_id"
PHYSICAL = "coldplate_infiniband_physical_state_id"
METRICS = (
    AGE, REMAP_FAILURE, REMAP_PENDING, MARGIN, MEMORY_HEAT, WIDTH, WIDTH_MAX, POWER, LIMIT, LIMIT_DEFAULT,
    THROTTLE, SLOWDOWN, *CLOCKS, PORT_UP, RATE, STATE, PHYSICAL,
)  # fmt: skip


class ComparedGpus:
    """The GPUs of several nodes or one, beside which each of them is judged."""

    def __init__(self, gpus: Iterable[SeenGpu]) -> None:
        self.busiest: dict[tuple[str, str], float] = {}
        """By job, the utilization of the busiest of its GPUs."""
        self.capped_clocks: dict[tuple[str, str], list[float]] = {}
        """By job, the clocks of its GPUs that only the power cap holds down, in hertz."""
        for gpu in gpus:
            job = gpu.only_job
            if job is None:
                continue
            if gpu.busy is not None:
                self.busiest[job] = max(self.busiest.get(job, 0.0), gpu.busy)
            if _is_capped(gpu) and CLOCK in gpu.values:
                self.capped_clocks.setdefault(job, []).append(gpu.values[CLOCK])

    def judge(self, gpu: SeenGpu, now: float | None) -> None:
        """Note what is wrong with a GPU at a moment in wall seconds."""
        gpu.findings = by_rank(self._findings(gpu, now))

    def _findings(self, gpu: SeenGpu, now: float | None) -> Iterator[GpuFinding]:
        if not gpu.up:
            yield _silent(gpu)
        if gpu.action:
            yield GpuFinding(Verdict.CRITICAL, "reset", f"the driver requests {gpu.action}")
        if gpu.values.get(REMAP_FAILURE):
            yield GpuFinding(Verdict.CRITICAL, "memory", "a row remap failed: the GPU must be replaced")
        if gpu.values.get(REMAP_PENDING):
            yield GpuFinding(Verdict.WARNING, "memory", "a row remap is pending until a reset of the GPU")
        if gpu.links_down and gpu.is_linked:
            yield GpuFinding(Verdict.CRITICAL, "link down", f"NVLink {short_numbers(gpu.links_down)} down")
        yield from _throttled(gpu)
        yield from _settings(gpu.values)
        yield from self._slowness(gpu)
        for wall, xid in sorted(gpu.xids, reverse=True):
            if now is not None and now - wall <= RECENT_SECONDS:
                yield GpuFinding(xid_verdict(xid), "XID", f"XID {called(xid)}, {age(now - wall)} ago")

    def _slowness(self, gpu: SeenGpu) -> Iterator[GpuFinding]:
        """Yield what only shows while it works: whether it does less than its peers, waits for them, or is slow."""
        values, busy = gpu.values, gpu.busy
        if busy is None:
            return
        most = self.busiest.get(gpu.only_job, 0.0) if gpu.only_job is not None else 0.0
        if most >= BUSY and busy < most - BEHIND:
            text = f"{busy:.0%} busy while another GPU of its job is {most:.0%} busy"
            yield GpuFinding(Verdict.WARNING, "behind", text)
        power, limit = values.get(POWER), max(values.get(LIMIT, 0.0), values.get(LIMIT_DEFAULT, 0.0))
        if busy < BUSY or power is None or not limit or any(_throttled(gpu)):
            return
        if power < WORKING_POWER * limit:
            text = f"busy at {power / limit:.0%} of its power limit: waiting for other GPUs"
            yield GpuFinding(Verdict.WARNING, "waits", text)
        elif CLOCK in values:
            yield from self._low_clock(gpu, values[CLOCK])

    def _low_clock(self, gpu: SeenGpu, clock: float) -> Iterator[GpuFinding]:
        """Yield a clock far below the highest, or below those of its peers if it is at the power cap as they are."""
        usual, name = gpu.values.get(CLOCK_LIMIT, 0.0), "the maximum"
        if _is_capped(gpu):
            peers = self.capped_clocks.get(gpu.only_job, ()) if gpu.only_job is not None else ()
            usual, name = _median(peers) or clock, "its job's other GPUs at the power cap"
        if clock < LOW_CLOCK * usual:
            yield GpuFinding(Verdict.WARNING, "slow", f"its clock is at {clock / usual:.0%} of {name}")


def _median(values: Collection[float]) -> float:
    """Return the higher one of two in the middle, and 0 of none; `statistics` would take 0.3 MiB of the daemon."""
    return sorted(values)[len(values) // 2] if values else 0.0


def _is_capped(gpu: SeenGpu) -> bool:
    """Return whether nothing but the default power limit holds its clocks down, as with every GPU at full work."""
    return gpu.throttles == [POWER_CAP] and not _is_limit_lowered(gpu.values)


def _is_limit_lowered(values: Mapping[str, float]) -> bool:
    limit, default = values.get(LIMIT), values.get(LIMIT_DEFAULT)
    return limit is not None and default is not None and limit < default


def _silent(gpu: SeenGpu) -> GpuFinding:
    detail = "" if gpu.silence is None else gpu.silence.detail
    if gpu.is_paused:
        return GpuFinding(Verdict.WARNING, "paused", f"paused: {detail}" if detail else "paused")
    word = "lost" if gpu.silence is not None and gpu.silence.reason is Reason.LOST else "no answer"
    parts = [detail if detail.startswith(word) else f"{word}: {detail}" if detail else word]
    since = gpu.values.get(AGE)
    if since is not None:
        parts.append(f"last sample {age(since)} ago")
    return GpuFinding(Verdict.CRITICAL, word, "; ".join([*parts, *gpu.place]))


def _throttled(gpu: SeenGpu) -> Iterator[GpuFinding]:
    explained = any(cause_of(reason) for reason in gpu.throttles)
    for reason in gpu.throttles:
        known = THROTTLES.get(reason, ThrottleReason(Verdict.WARNING, reason))
        if known.text and not (reason == UMBRELLA and explained):
            yield GpuFinding(known.verdict, "throttled", f"{known.text} ({reason})")


def cause_of(reason: str) -> str:
    """Return why the hardware itself slows a GPU down, which no healthy load causes; empty for other reasons."""
    return THROTTLES[reason].cause if reason in THROTTLES else ""


def throttle_verdict(reason: str) -> Verdict:
    """Return how bad a reason for low clocks is; an unknown one may be bad."""
    return THROTTLES[reason].verdict if reason in THROTTLES else Verdict.WARNING


def throttle_word(reason: str) -> str:
    """Return a reason for low clocks in few words; an unknown one by the driver's name."""
    return THROTTLES[reason].word if reason in THROTTLES else reason


def xid_verdict(xid: str) -> Verdict:
    """Return how bad it is that a code was reported; one whose log line decides may be bad."""
    code = int(xid) if xid.isdecimal() else 0
    return Verdict.SKIPPED if code in HARMLESS_XIDS else XID_VERDICTS.get(class_of(code), Verdict.WARNING)


def _settings(values: Mapping[str, float]) -> Iterator[GpuFinding]:
    margin, memory = values.get(MARGIN), values.get(MEMORY_HEAT)
    if margin is not None and margin < MARGIN_CELSIUS:
        below = f"{margin:.0f} °C below" if margin >= 0.5 else "at or above"
        yield GpuFinding(Verdict.WARNING, "hot", f"{below} its slowdown threshold")
    if memory is not None and memory >= MEMORY_HOT_CELSIUS:
        yield GpuFinding(Verdict.WARNING, "hot", f"its memory is at {memory:.0f} °C")
    width, lanes = values.get(WIDTH), values.get(WIDTH_MAX)
    if width is not None and lanes is not None and width < lanes:
        yield GpuFinding(Verdict.WARNING, "PCIe", f"PCIe runs with {width:.0f} of {lanes:.0f} lanes")
    if _is_limit_lowered(values):
        text = f"power limit set to {values[LIMIT]:.0f} of {values[LIMIT_DEFAULT]:.0f} W"
        yield GpuFinding(Verdict.SKIPPED, "power limit", text)


_STATES = {1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "ActiveDefer"}
_PHYSICAL_STATES = {
    1: "Sleep", 2: "Polling", 3: "Disabled", 4: "Training", 5: "LinkUp", 6: "LinkErrorRecovery", 7: "PhyTest",
}  # fmt: skip
"""The kernel's words: include/rdma/ib_verbs.h and drivers/infiniband/core/sysfs.c of Linux."""
DISABLED = 3
PHYSICAL_LINK_UP = 5
"""The physical state of a port with a working cable; the subnet manager makes it active."""
BELOW_RATE = 0.95
"""Share of the usual rate, as in the rule InfinibandRateDegraded."""


class PortState(NamedTuple):
    """A port, how it is in a word, and its states in the kernel's words; the rate in bytes per second."""

    port: IbPort
    verdict: Verdict
    word: str
    link: str
    rate: float | None

    @property
    def is_up(self) -> bool:
        return self.word in ("up", "slow")


def port_states(view: SeenNode) -> list[PortState]:
    """Return the ports that report whether they are up, and those that do not answer, as down; none that is paused."""
    unheard = (entity for entity, gap in view.silent.items() if gap.reason is not Reason.PAUSED)
    known = {port: False for port in unheard if isinstance(port, IbPort)}
    known |= {each.entity: each.value == 1 for each in view.all(PORT_UP) if isinstance(each.entity, IbPort)}
    rates, states, physical = (view.by_entity(metric) for metric in (RATE, STATE, PHYSICAL))
    usual = _median(rates.values())
    found = []
    for port, up in known.items():
        rate, verdict, word = rates.get(port), Verdict.OK, "up"
        if not up and physical.get(port) == DISABLED:  # switched off by an operator
            verdict, word = Verdict.SKIPPED, "off"
        elif not up:
            verdict, word = Verdict.CRITICAL, "silent" if port in view.silent else "down"
        elif rate is not None and rate < BELOW_RATE * usual:
            verdict, word = Verdict.WARNING, "slow"
        words = (_word(_STATES, states.get(port)), _word(_PHYSICAL_STATES, physical.get(port)))
        found.append(PortState(port, verdict, word, ", ".join(filter(None, words)), rate))
    return found


def _word(words: dict[int, str], code: float | None) -> str:
    return "" if code is None else words.get(int(code), f"{code:.0f}")
