"""What the active test of `coldplate check --deep` measured, held against what is expected and against the peers.

A figure is judged twice: by the lowest that a healthy GPU of the model reaches, where a source gives one, and by the
median of the GPUs, which needs none. Units: bytes a second, and floating-point operations a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import msgspec

from agent.health.expected_node import Expected, NodeExpectations
from agent.health.seen_node import numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu

MEMORY, PRODUCT, TO_GPU, FROM_GPU, PEER = "memory", "product", "to-gpu", "from-gpu", "peer"
GIGA, TERA = 1e9, 1e12
BESIDE_PEERS = 0.9
"""The share of the median below which a GPU is slower than its peers: healthy ones differ by a few percent."""
ENOUGH = 3
"""Values that a median needs: of two, it cannot be told which one is wrong."""
LEARNED_SHARE = 0.9
"""What is expected of a node that was learned, as a share of the lowest that it reached."""


class DeepStep(NamedTuple):
    """One measurement: its kind, of one GPU, or of a copy from the first to the second."""

    kind: str
    gpus: tuple[Gpu, ...]

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]}, {_between(self.gpus)}"


_WORDS = {MEMORY: "copy within the memory", PRODUCT: "matrix product", TO_GPU: "copy from the host",
          FROM_GPU: "copy to the host", PEER: "copy between GPUs"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeepResult:
    """What the active test came to.

    `library` is what measured, "" if none was found, and `number` the kind of number of the products. `passed_over` are
    the GPUs that were left alone, and why. `broken` tells which step hung or failed in a way that condemns the GPU.
    `unfinished` is why not everything was measured.
    """

    library: str = ""
    number: str = ""
    measured: Mapping[DeepStep, float] = field(default_factory=dict)
    passed_over: Mapping[Gpu, str] = field(default_factory=dict)
    broken: str = ""
    unfinished: str = ""
    seconds: float = 0.0


class DeepFigure(NamedTuple):
    """One check: the kinds of step that it judges, and the key of the least that is expected, in `scale` of `unit`."""

    name: str
    kinds: tuple[str, ...]
    key: str
    scale: float
    unit: str
    remedy: str


FIGURES = (
    DeepFigure("deep-memory", (MEMORY,), "gpu_memory_gigabytes_per_second", GIGA, "GB/s",
               "look for row remaps, ECC errors and a lowered memory clock (nvidia-smi -q -d CLOCK,ROW_REMAPPER)"),
    DeepFigure("deep-product", (PRODUCT,), "gpu_product_teraflops", TERA, "TFLOP/s",
               "look for a throttle reason, heat and a lowered limit (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)"),
    DeepFigure("deep-host-copy", (TO_GPU, FROM_GPU), "host_copy_gigabytes_per_second", GIGA, "GB/s",
               "look for a link below its generation or width under load (lspci -vv), and at the IOMMU's settings"),
    DeepFigure("deep-peer-copy", (PEER,), "peer_copy_gigabytes_per_second", GIGA, "GB/s",
               "look for NVLinks that are down (nvidia-smi nvlink -s), and at nvidia-smi topo -p2p r"),
)  # fmt: skip


def deep_findings(result: DeepResult, expected: Expected) -> list[HealthFinding]:
    """Whether the test could be done, and a finding for each kind of figure."""
    return [_done(result), *(_figure(each, result, expected.node) for each in FIGURES)]


def learned_deep(node: NodeExpectations, result: DeepResult) -> NodeExpectations:
    """The expectations with what a node that is well reached in the test, less a tenth."""
    figures = {}
    for figure in FIGURES:
        values = [value for step, value in result.measured.items() if step.kind in figure.kinds]
        if values:
            figures[figure.key] = round(LEARNED_SHARE * min(values) / figure.scale, 1)
    return msgspec.structs.replace(node, **figures)


def _done(result: DeepResult) -> HealthFinding:
    wanted = "the active test ends on every GPU that is idle"
    tested = sorted({gpu for step in result.measured for gpu in step.gpus}, key=lambda gpu: int(gpu.index))
    over = "; ".join(f"{numbers([gpu])}: {why}" for gpu, why in result.passed_over.items())
    if result.broken:
        remedy = "look at the kernel log for XIDs (journalctl -k --grep Xid), reset the GPU or restart the node"
        return HealthFinding("deep", Verdict.CRITICAL, wanted, result.broken, remedy)
    if result.unfinished:
        remedy = "give it more time with --deep-seconds, or another Python with --deep-python"
        return HealthFinding("deep", Verdict.UNKNOWN, wanted, result.unfinished, remedy)
    if not tested:
        return HealthFinding("deep", Verdict.SKIPPED, wanted, over or "no GPU answers")
    number = f", products of {result.number}" if result.number else ""
    found = f"{numbers(tested)} in {result.seconds:.0f} s with {result.library}{number}"
    return HealthFinding("deep", Verdict.OK, wanted, f"{found}; left alone: {over}" if over else found)


def _figure(figure: DeepFigure, result: DeepResult, node: NodeExpectations) -> HealthFinding:
    least: float | None = getattr(node, figure.key)
    by_kind = {kind: {step.gpus: value for step, value in result.measured.items() if step.kind == kind}
               for kind in figure.kinds}  # fmt: skip
    # Where GPUs are joined in several ways, what differs is how the machine is built.
    comparable = figure.kinds != (PEER,) or node.fabric is True or node.nvlinks is not None
    wanted = [f"at least {least:g} {figure.unit}"] if least is not None else []
    wanted += [f"none {1 - BESIDE_PEERS:.0%} below the median"] if comparable else []
    text = " and ".join(wanted) or "measured, with nothing to compare it with"
    if not any(by_kind.values()):
        return HealthFinding(figure.name, Verdict.SKIPPED, text, "not measured")

    def show(value: float) -> str:
        return f"{value / figure.scale:.4g} {figure.unit}"

    floor = least * figure.scale if least is not None else 0.0
    for verdict, bounds in (
        (Verdict.CRITICAL, dict.fromkeys(figure.kinds, floor)),
        (Verdict.WARNING, {kind: _beside(values) if comparable else 0.0 for kind, values in by_kind.items()}),
    ):
        slow = [
            f"{_WORDS[kind]}, {_between(gpus)}: {show(value)}"
            for kind, values in by_kind.items()
            for gpus, value in values.items()
            if value < bounds[kind]
        ]
        if slow:
            usual = "; ".join(f"median {show(median(values.values()))}" for values in by_kind.values() if values)
            return HealthFinding(figure.name, verdict, text, f"{'; '.join(slow)} ({usual})", figure.remedy)
    found = "; ".join(
        f"{_WORDS[kind]}: {show(min(values.values()))} to {show(max(values.values()))}"
        for kind, values in by_kind.items()
        if values
    )
    return HealthFinding(figure.name, Verdict.OK, text, found)


def _beside(values: Mapping[tuple[Gpu, ...], float]) -> float:
    """Below this, a value is out of step with the others; 0 where they are too few."""
    return BESIDE_PEERS * median(values.values()) if len(values) >= ENOUGH else 0.0


def _between(gpus: Sequence[Gpu]) -> str:
    return " to ".join(f"GPU {gpu.index}" for gpu in gpus)
