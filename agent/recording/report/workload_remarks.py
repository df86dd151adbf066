"""What kind of work it was: limited by power, by memory, by arithmetic, or by none of them.

NVIDIA's user guide of DCGM says of these metrics that a DRAM activity of about 0.8 is the most that is achievable in
practice, and that an SM activity below 0.5 likely indicates ineffective use, while an effective one needs 0.8.
Of tensor activity it says nothing such; 0.4 is ours: large training runs are thought good from 40 % of the peak on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from agent.recording.report import chosen_series as chosen
from agent.recording.report.imbalance import busy_parts, mean_in
from agent.recording.report.remarks import NOTE, Remark, gpu_names, share_text, span_text
from agent.recording.report.run_facts import GpuFacts
from agent.recording.report.step_time import StepTime, step_time

DRAM_BOUND, TENSOR_BOUND, SM_EFFECTIVE, SM_INEFFECTIVE = 0.6, 0.4, 0.8, 0.5
CAPPED = 0.5
"""Share of the time at the power cap from which on a GPU is said to be limited by it."""
_LIMITS = "Activities are means over whole samples: phases that follow each other within one, or over the run, mix."


def workload_remarks(gpus: Sequence[GpuFacts]) -> Iterator[Remark]:
    """What is to be said of the work of GPUs that belong together."""
    yield from _bound(gpus)
    yield from _capped(gpus)
    yield from _steps(gpus)


def bound_by(sm: float, tensor: float, dram: float) -> tuple[str, str]:
    """What limits work with these activities of multiprocessors, tensor cores and memory: a kind, and words."""
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


def _bound(gpus: Sequence[GpuFacts]) -> Iterator[Remark]:
    told: list[GpuFacts] = []
    rows: list[tuple[float, float, float]] = []
    for gpu in gpus:
        parts = busy_parts([gpu])
        sm, tensor, dram = (mean_in(gpu, parts, name) for name in (chosen.SM, chosen.TENSOR, chosen.DRAM))
        if sm is not None and tensor is not None and dram is not None:
            told.append(gpu)
            rows.append((sm, tensor, dram))
    if not rows:
        return
    sm, tensor, dram = map(fmean, zip(*rows, strict=True))
    kind, text = bound_by(sm, tensor, dram)
    measured = f"SM active {share_text(sm)}, tensor {share_text(tensor)}, DRAM {share_text(dram)} while busy"
    figures = {"sm_active_ratio": sm, "tensor_active_ratio": tensor, "dram_active_ratio": dram}
    titles = tuple(gpu.title for gpu in told)
    yield Remark(NOTE, kind, f"{gpu_names(told)}: {text} ({measured}).", titles, figures, _LIMITS)


def _capped(gpus: Sequence[GpuFacts]) -> Iterator[Remark]:
    told = [(gpu, *capped) for gpu in gpus if (capped := gpu.capped()) is not None]
    held = [(gpu, share, over) for gpu, share, over, _ in told if share >= CAPPED]
    if not held:
        return
    share, over = median(share for _, share, _ in held), max(over for _, _, over in held)
    some = [gpu for gpu, _, _ in held]
    yield Remark(
        NOTE, "power-capped",
        f"{gpu_names(some)} {'was' if len(some) == 1 else 'were'} at the power limit {share_text(share)} of "
        f"{span_text(over)}: it holds the clocks. This is normal under full load; only a higher limit would be faster.",
        tuple(gpu.title for gpu in some), {"capped_ratio": share},
    )  # fmt: skip


def _steps(gpus: Sequence[GpuFacts]) -> Iterator[Remark]:
    found = step_of(gpus)
    if found is None:
        return
    step, name, told = found
    yield Remark(
        NOTE, "step-time",
        f"{gpu_names(gpus)}: a step takes about {step.seconds:.1f} s, by the rhythm of {name} "
        f"(autocorrelation {step.clarity:.2f}, {told} GPUs agree).",
        tuple(gpu.title for gpu in gpus), {"step_seconds": step.seconds, "autocorrelation": step.clarity},
        "It is the period of what repeats: some steps that have something in common, or the beat of steps about as "
        "long as a sample, look alike.",
    )  # fmt: skip


_SIGNALS = ((chosen.NVLINK_OUT, "NVLink traffic"), (chosen.TENSOR, "tensor activity"), (chosen.POWER, "power"))
_LOOKED_AT = 4
"""GPUs of a job whose steps are looked for: all have the same."""


def step_of(gpus: Sequence[GpuFacts]) -> tuple[StepTime, str, int] | None:
    """The step time of a job, in what it shows, and in how many of its GPUs alike; None unless most agree."""
    some = gpus[:: max(1, len(gpus) // _LOOKED_AT)][:_LOOKED_AT]
    for name, words in _SIGNALS:
        signals = [gpu.node.signals.get((name, gpu.gpu, ())) for gpu in some]
        steps = [step for signal in signals if signal is not None and (step := step_time(signal)) is not None]
        if not steps:
            continue
        middle = sorted(steps)[len(steps) // 2]
        near = [step for step in steps if abs(step.seconds - middle.seconds) <= 0.05 * middle.seconds]
        if 2 * len(near) > len(some):
            return middle, words, len(near)
    return None
