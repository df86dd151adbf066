"""Observations on lost time (a straggler, clocks held down, no data, no work) and on the kind of work.

NVIDIA's user guide of DCGM says that a DRAM activity of about 0.8 is the most that is achievable, that an SM activity
below 0.5 is likely ineffective and an effective one needs 0.8. For tensor activity 0.4 is our choice: large training
runs are thought good from 40 % of the peak on.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from agent.catalogue.gpu import WORKING_POWER
from agent.lib.wording import one_line
from agent.recording.report import report_series as chosen
from agent.recording.report.hardware_observations import hardware_observations
from agent.recording.report.observation import NOTE, RANKS, SLOW, Observation, format_gpus, share_text, span_text
from agent.recording.report.report_series import StepTime, step_time
from agent.recording.report.run_facts import GpuFacts, Measured, RecordedRun, busy_parts, imbalance_of

THROTTLED = 0.01
"""Share of the time with reduced clocks from which on it is worth a remark."""
SLOW_CLOCK, SLOW_POWER = 0.9, 0.7
"""Clock and power relative to the median of the peers below which a GPU is slow; healthy ones were above 0.91."""
STARVED, IDLE = 0.4, 0.05
"""Utilization below which a job waits for something, and below which it does nothing."""
_GIB = 2.0**30


def _uneven(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    found = imbalance_of(gpus)
    if found is None or not found.lags:
        return
    title, lagged = max(found.lags.items(), key=lambda lag: lag[1])
    share = found.sharp / found.seconds
    figures = {"uneven_seconds": found.sharp, "lagging_seconds": lagged, "least_utilization_ratio": found.least}
    how = f"for {span_text(found.sharp)} ({share_text(share)} of the time)"
    who = f"GPU {title} was the least busy for {span_text(lagged)} of it, down to {share_text(found.least)}"
    if found.busy_power is not None:
        figures["busy_power_ratio"] = found.busy_power
    if found.busy_power is not None and found.busy_power < WORKING_POWER:
        text = (
            f"Peers waited for GPU {title} {how}: {who}, while the others were busy at only "
            f"{share_text(found.busy_power)} of their power limit, as GPUs are that wait in a collective. "
            f"Look at what the process on GPU {title} does alone: checkpoints, evaluation, logging, its own input."
        )
        kind = "waiting-for-peer"
    else:
        drawn = f" and at {share_text(found.busy_power)} of their power limit" if found.busy_power is not None else ""
        text = (
            f"Uneven work {how}: {who}, while the busiest were above {share_text(0.7)}{drawn}. "
            "Part of the allocation does less than the rest: uneven batches, experts or pipeline stages."
        )
        kind = "uneven-work"
    limits = f"Compared as means over {span_text(found.window)}; shorter waits do not show."
    yield Observation(SLOW, kind, text, (title,), figures, limits)


def _slow_silicon(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    parts = busy_parts(gpus)
    clocks = {gpu: clock for gpu in gpus if (clock := gpu.mean_in(parts, chosen.CLOCK))}
    powers = {gpu: power for gpu in gpus if (power := gpu.mean_in(parts, chosen.POWER))}
    if len(clocks) < 3 or len(parts) * gpus[0].node.grid.width < 60:
        return
    middle = median(clocks.values())
    for gpu, clock in clocks.items():
        ratio = clock / middle
        drawn = powers[gpu] / median(powers.values()) if gpu in powers else None
        if (ratio >= SLOW_CLOCK and (drawn is None or drawn >= SLOW_POWER)) or (drawn is not None and drawn > 1):
            continue  # a GPU with a lower clock and more power has more to do, and is the one that works
        figures = {"clock_ratio": ratio}
        with_power = ""
        if drawn is not None:
            figures["power_ratio"] = drawn
            with_power = f" and {share_text(drawn)} of their power"
        yield Observation(
            SLOW, "slow-gpu",
            f"{format_gpus([gpu])} was slower than its peers: {share_text(ratio)} of their median SM clock "
            f"({clock / 1e6:.0f} of {middle / 1e6:.0f} MHz){with_power} while busy. In a synchronous job all wait "
            "for it. Look for heat, a power brake, a clock lock or a lower power limit.",
            (gpu.title,), figures,
            "Means over all the time in which all of them were busy; what began in its midst weighs less.",
        )  # fmt: skip


def _throttled(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    by_reason: dict[str, list[tuple[GpuFacts, Measured]]] = {}
    for gpu in gpus:
        for reason, lost in gpu.slowed().items():
            if lost.per_second >= THROTTLED:
                by_reason.setdefault(reason, []).append((gpu, lost))
    for reason, found in sorted(by_reason.items()):
        worst = max((lost for _, lost in found), key=lambda lost: lost.per_second)
        share = f"{'up to ' if len(found) > 1 else ''}{share_text(worst.per_second)} of the time"
        how = "as the driver counted" if worst.source == "driver" else "as seen at each sample"
        yield Observation(
            SLOW, "throttled",
            f"{format_gpus(gpu for gpu, _ in found)}: clocks reduced by {reason} for {span_text(worst.amount)} "
            f"({share}), {how}. {_REMEDY.get(reason, '')}".strip(),
            tuple(gpu.title for gpu, _ in found),
            {"throttled_seconds": worst.amount, "over_seconds": worst.seconds},
            "By how much the clocks were reduced is another matter: see the SM clock.",
        )  # fmt: skip


_REMEDY = {
    "sw_thermal_slowdown": "The driver holds the GPU at its temperature target: look at inlet air or coolant.",
    "hw_thermal_slowdown": "The hardware protects itself from heat: look at fans, inlet air or coolant at once.",
    "hw_power_brake": "The chassis or the rack asked for less power: look at power supplies and the rack's budget.",
}


def _stalled(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    """Yield all at full utilization and next to no power: a collective that does not end."""
    grid = gpus[0].node.grid
    unseen: list[float | None] = [None] * grid.count
    columns = [
        (gpu, gpu.power_limit or 0.0, used, gpu.means(chosen.POWER) or unseen, gpu.means(chosen.TENSOR) or unseen)
        for gpu in gpus
        if (used := gpu.means(chosen.UTILIZATION)) is not None
    ]
    if len(gpus) < 2 or len(columns) < len(gpus):
        return
    stalled = 0.0
    waiting: set[GpuFacts] = set()
    for part in range(grid.count):
        states = {
            gpu: _spins(share, watts[part], limit, tensor[part])
            for gpu, limit, used, watts, tensor in columns
            if (share := used[part]) is not None
        }
        if len(states) > 1 and all(states.values()):
            stalled += grid.width
            waiting |= states.keys()
    some = [gpu for gpu in gpus if gpu in waiting]
    if stalled >= 60:
        yield Observation(
            SLOW, "stalled",
            f"{format_gpus(some)} all waited for {span_text(stalled)}: fully utilized at less than "
            f"{share_text(WORKING_POWER)} of their power limit. They wait for each other, another node or storage.",
            tuple(gpu.title for gpu in some), {"stalled_seconds": stalled},
            "Memory-bound decoding looks alike where tensor activity is not measured.",
        )  # fmt: skip


def _spins(used: float, watts: float | None, limit: float, tensor: float | None) -> bool:
    """Return whether a GPU is busy with waiting: at full utilization, and without the power of work."""
    has_low_power = watts is not None and watts < WORKING_POWER * limit
    return used >= 0.9 and has_low_power and (tensor is None or tensor < 0.05)


def _starved(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    means = [gpu.mean(chosen.UTILIZATION) for gpu in gpus]
    memory = [(gpu.mean(chosen.MEMORY), gpu.mean(chosen.MEMORY_TOTAL)) for gpu in gpus]
    is_loaded = any(used and whole and used / whole >= 0.3 for used, whole in memory)
    known = [mean for mean in means if mean is not None]
    if len(known) != len(gpus) or not IDLE <= max(known) < STARVED or not is_loaded:
        return
    figures = {"utilization_ratio": max(known)}
    signs = []
    pcie = max(gpu.mean(chosen.PCIE_IN) or 0.0 for gpu in gpus)
    if pcie > 1e9:
        figures["pcie_receive_bytes_per_second"] = pcie
        signs.append(f"up to {pcie / 1e9:.1f} GB/s came in over PCIe")
    nodes = {gpu.node.name: gpu.node for gpu in gpus}.values()
    waits = max((share for node in nodes if (share := node.io_waiting()) is not None), default=None)
    if waits is not None and waits > 0.05:
        figures["io_waiting_ratio"] = waits
        signs.append(f"tasks waited for storage {share_text(waits)} of the time")
    cpu = max((share for node in nodes if (share := node.processor_share()) is not None), default=None)
    if cpu is not None and cpu > 0.7:
        figures["processor_busy_ratio"] = cpu
        signs.append(f"the processors of {one_line(gpus[0].node.name, 64)} were {share_text(cpu)} busy")
    state = "the host was not recorded" if waits is None and cpu is None else "nothing on the host was busy"
    clues = f"; {', '.join(signs)}" if signs else f"; the cause is not known: {state}"
    yield Observation(
        SLOW, "waiting-for-data",
        f"{format_gpus(gpus)} had work for at most {share_text(max(known))} of the time with their memory "
        f"in use{clues}. That is how a job looks that waits for its input: look at "
        "the data loader, its workers and the storage.",
        tuple(gpu.title for gpu in gpus), figures,
        "Training that offloads to the host, and serving with few requests, look alike.",
    )  # fmt: skip


def _idle(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    means = [(gpu, gpu.mean(chosen.UTILIZATION)) for gpu in gpus]
    idle = {
        gpu: mean for gpu, mean in means
        if mean is not None and mean < IDLE and ((gpu.mean(chosen.MEMORY) or 0.0) > _GIB or gpu.job() is not None)
    }  # fmt: skip
    if not idle:
        return
    seconds = max(util.seconds for gpu in idle if (util := gpu.gauge(chosen.UTILIZATION)) is not None)
    highest = max(idle.values())
    yield Observation(
        SLOW, "idle-allocation",
        f"{format_gpus(idle)} {'was' if len(idle) == 1 else 'were'} allocated and idle: utilization "
        f"{share_text(highest)} on average over {span_text(seconds)}.",
        tuple(gpu.title for gpu in idle), {"utilization_ratio": highest},
        "A server that waits for requests looks alike.",
    )  # fmt: skip


DRAM_BOUND, TENSOR_BOUND, SM_EFFECTIVE, SM_INEFFECTIVE = 0.6, 0.4, 0.8, 0.5
CAPPED = 0.5
"""Share of the time at the power cap from which on a GPU is said to be limited by it."""
_LIMITS = "Activities are means over whole samples: phases that follow each other within one, or over the run, mix."


def bound_by(sm: float, tensor: float, dram: float) -> tuple[str, str]:
    """Return what limits work with these activities of multiprocessors, tensor cores and memory: a kind, and words."""
    if dram >= DRAM_BOUND and dram >= tensor:
        return "memory-bound", (
            "the work is limited by memory bandwidth, of which about 80% is the most that can be had. Larger batches, "
            "fused kernels or smaller data types help; faster arithmetic would not"
        )
    if tensor >= TENSOR_BOUND:
        return "compute-bound", (
            "the work is limited by arithmetic: the tensor cores are as busy as in good training runs. "
            "Smaller data types help"
        )
    if sm >= SM_EFFECTIVE:
        return "neither-bound", (
            "the work fills the multiprocessors, but neither tensor cores nor memory bandwidth: kernels without "
            "matrix products, waiting within kernels, or phases of both kinds"
        )
    if sm < SM_INEFFECTIVE:
        return "latency-bound", (
            "the work leaves most of the GPU empty while a kernel runs: small kernels, launch overhead, or "
            "communication. Utilization alone does not show this"
        )
    return "mixed", "the work is limited by no single part for long: compute, memory and communication take turns"


def _bound(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    bound: list[GpuFacts] = []
    rows: list[tuple[float, float, float]] = []
    for gpu in gpus:
        parts = busy_parts([gpu])
        sm, tensor, dram = (gpu.mean_in(parts, name) for name in (chosen.SM, chosen.TENSOR, chosen.DRAM))
        if sm is not None and tensor is not None and dram is not None:
            bound.append(gpu)
            rows.append((sm, tensor, dram))
    if not rows:
        return
    sm, tensor, dram = map(fmean, zip(*rows, strict=True))
    kind, text = bound_by(sm, tensor, dram)
    measured = f"SM active {share_text(sm)}, tensor {share_text(tensor)}, DRAM {share_text(dram)} while busy"
    figures = {"sm_active_ratio": sm, "tensor_active_ratio": tensor, "dram_active_ratio": dram}
    titles = tuple(gpu.title for gpu in bound)
    yield Observation(NOTE, kind, f"{format_gpus(bound)}: {text} ({measured}).", titles, figures, _LIMITS)


def _capped(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    capped = {gpu: capped for gpu in gpus if (capped := gpu.capped()) is not None and capped.amount >= CAPPED}
    if not capped:
        return
    share, over = median(each.amount for each in capped.values()), max(each.seconds for each in capped.values())
    yield Observation(
        NOTE, "power-capped",
        f"{format_gpus(capped)} {'was' if len(capped) == 1 else 'were'} at the power limit {share_text(share)} of "
        f"{span_text(over)}: it holds the clocks. This is normal under full load; only a higher limit would be faster.",
        tuple(gpu.title for gpu in capped), {"capped_ratio": share},
    )  # fmt: skip


def _steps(gpus: Sequence[GpuFacts]) -> Iterator[Observation]:
    found = step_of(gpus)
    if found is None:
        return
    step, name, agreeing = found
    yield Observation(
        NOTE, "step-time",
        f"{format_gpus(gpus)}: a step takes about {step.seconds:.1f} s, by the rhythm of {name} "
        f"(autocorrelation {step.clarity:.2f}, {agreeing} GPUs agree).",
        tuple(gpu.title for gpu in gpus), {"step_seconds": step.seconds, "autocorrelation": step.clarity},
        "It is the period of what repeats: some steps that have something in common, or the beat of steps about as "
        "long as a sample, look alike.",
    )  # fmt: skip


_LOOKED_AT = 4
"""GPUs of a job whose steps are looked for: all have the same."""


def step_of(gpus: Sequence[GpuFacts]) -> tuple[StepTime, str, int] | None:
    """Return the step time of a job, in what it shows, and in how many of its GPUs alike; None unless most agree."""
    some = gpus[:: max(1, len(gpus) // _LOOKED_AT)][:_LOOKED_AT]
    for name, words in chosen.STEPPING.items():
        signals = [gpu.node.signals.get((name, gpu.gpu)) for gpu in some]
        steps = [step for signal in signals if signal is not None and (step := step_time(signal)) is not None]
        if not steps:
            continue
        middle = sorted(steps)[len(steps) // 2]
        near = [step for step in steps if abs(step.seconds - middle.seconds) <= 0.05 * middle.seconds]
        if 2 * len(near) > len(some):
            return middle, words, len(near)
    return None


_SLOWNESS = (_uneven, _slow_silicon, _throttled, _stalled, _starved, _idle)
_WORK = (_bound, _capped, _steps)
"""What may be said of GPUs that belong together: of lost time, and of the kind of work."""
_WAITING = frozenset({"waiting-for-peer", "stalled", "waiting-for-data", "idle-allocation"})
_BY_WORK_ALONE = frozenset({"latency-bound", "neither-bound", "mixed", "compute-bound", "memory-bound"})
"""What limits the work of GPUs that wait is not in the GPUs: nothing is said of it then."""


def all_observations(run: RecordedRun) -> list[Observation]:
    """Return what stands out, the most serious first; empty if nothing does."""
    found = list(hardware_observations(run))
    for _, gpus in run.groups():
        slow = [remark for look in _SLOWNESS for remark in look(gpus)]
        waited = any(remark.kind in _WAITING for remark in slow)
        work = (remark for look in _WORK for remark in look(gpus))
        found += [*slow, *(remark for remark in work if not waited or remark.kind not in _BY_WORK_ALONE)]
    return sorted(found, key=lambda remark: RANKS.index(remark.rank))
