"""Whether the node's GPUs are there, alike, and of the kind and the settings that they should have."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge

from agent.health.device_states import AGE, LIMIT, LIMIT_DEFAULT, MARGIN
from agent.health.expectations import Expected
from agent.health.gpu_facts import NOBODY, UNREAD, GpuFact, gibibytes, grouped, plain, switched
from agent.health.seen_node import SeenNode, name_of
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu, Outcome

MEMORY = "coldplate_gpu_memory_total_bytes"
ECC = "coldplate_gpu_ecc_enabled"
PERSISTENCE = "coldplate_gpu_persistence_enabled"
ALIKE = (
    (MEMORY, "memory", gibibytes),
    (LIMIT_DEFAULT, "default power limit", lambda value: f"{value:g} W"),
    ("coldplate_gpu_pcie_link_generation_max", "PCIe generation", plain),
    ("coldplate_gpu_pcie_link_width_max", "PCIe lanes", plain),
)
"""What does not differ between GPUs of one node, unless one of them is not what it should be."""
METRICS = (*(metric for metric, _, _ in ALIKE), LIMIT, MARGIN, ECC, PERSISTENCE)


def driver(view: SeenNode, expected: Expected, devices: str) -> HealthFinding:
    """Return whether the devices could be read at all; `devices` is the family that was asked."""
    name, expectation = "driver", "the driver answers"
    report = view.reports.get(devices)
    if view.answering:
        return HealthFinding(name, Verdict.OK, expectation, f"{len(view.answering)} GPUs answer")
    if report is None or report.outcome is Outcome.OK:
        found = "no GPU answered in time" if view.gpus or report is None else "the driver shows no GPU"
        return HealthFinding(name, Verdict.CRITICAL, expectation, found, HUNG)
    if report.outcome is Outcome.ABSENT and view.expected_gpus and not expected.node.gpus:
        found = f"{report.detail}; {view.expected_gpus} GPUs are expected"
        return HealthFinding(name, Verdict.CRITICAL, expectation, found, LOAD)
    if report.outcome is Outcome.ABSENT and not expected.node.gpus:
        return HealthFinding(
            name, Verdict.UNKNOWN, expectation, report.detail, "install the driver, or leave this node out"
        )
    return HealthFinding(name, Verdict.CRITICAL, expectation, report.detail or "it failed", HUNG)


LOAD = "modprobe nvidia; if that fails, dmesg -T | grep -i nvrm shows why"
HUNG = "look at the kernel log (journalctl -k --grep NVRM), drain the node and restart it"


def present(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether every GPU that is known of answers."""
    name, expectation = "gpus-present", "every GPU answers"
    if not view.gpus:
        return HealthFinding(name, Verdict.SKIPPED, expectation, "no GPU is known of")
    silent = [gpu for gpu in view.gpus if gpu not in view.answering]
    if not silent:
        return HealthFinding(name, Verdict.OK, expectation, f"{len(view.gpus)} of {len(view.gpus)} answer")
    found = "; ".join(f"{name_of(gpu)}: {view.why_absent(gpu, AGE)}" for gpu in silent)
    remedy = "look for XID 79 or 119 (journalctl -k --grep Xid), check lspci, and power-cycle the node"
    return HealthFinding(name, Verdict.CRITICAL, expectation, found, remedy)


def count(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether there are as many GPUs as there should be; one that is silent counts, and is found by
    `present`.
    """
    number = expected.node.gpus
    if number is None:
        return None
    if not view.has_devices_report:
        return HealthFinding("gpu-count", Verdict.UNKNOWN, f"{number} GPUs", "no device has been reported yet", UNREAD)
    found, counted = len(view.gpus), f"{len(view.gpus)} GPUs"
    if found == number:
        return HealthFinding("gpu-count", Verdict.OK, f"{number} GPUs", counted)
    remedy = "compare nvidia-smi -L with lspci -d 10de:; one that neither shows has no power or contact"
    return HealthFinding("gpu-count", Verdict.CRITICAL, f"{number} GPUs", counted, remedy)


def model(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the GPUs are of the model that they should be."""
    if not expected.node.models:
        return None
    expectation = " or ".join(expected.node.models)
    models = view.models()
    others = {gpu: text for gpu, text in models.items() if text not in expected.node.models}
    if others:
        remedy = "put in the right GPU, or name the expectations of this kind of node with --expect"
        return HealthFinding("gpu-model", Verdict.CRITICAL, expectation, grouped(others), remedy)
    if not models:
        return HealthFinding("gpu-model", Verdict.SKIPPED, expectation, NOBODY)
    return HealthFinding("gpu-model", Verdict.OK, expectation, grouped(models))


def alike(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether no GPU differs from most others of the node in what GPUs of one kind share."""
    name, expectation = "gpus-alike", "all GPUs of the node are alike"
    models = view.models()
    if len(models) < 2:
        return HealthFinding(name, Verdict.SKIPPED, expectation, "there are not two GPUs to compare")
    odd = _odd(models, "model")
    for metric, what, show in ALIKE:
        shown = {gpu: show(value) for gpu, value in view.of_gpus(metric).items()}
        odd += _odd(shown, what)
    if odd:
        return HealthFinding(name, Verdict.WARNING, expectation, "; ".join(odd), "was a repair done with other parts?")
    return HealthFinding(name, Verdict.OK, expectation, f"{len(models)} GPUs")


def _odd(by_gpu: dict[Gpu, str], what: str) -> list[str]:
    texts = list(by_gpu.values())
    usual = max(dict.fromkeys(texts), key=texts.count, default="")
    others = {gpu: text for gpu, text in by_gpu.items() if text != usual}
    return [f"{what} {grouped(others)}, not {usual}"] if others else []


memory = GpuFact(
    "gpu-memory", "gpu_memory_gib", MEMORY, "at least {:g} GiB".format, lambda value, least: value >= least * 2**30,
    gibibytes, Verdict.CRITICAL,
    "a GPU with less memory than its model has is broken or another model: run the field diagnostics",
)  # fmt: skip
power_limit = GpuFact(
    "power-limit", "gpu_power_limit_watts", LIMIT, "at least {:g} W".format, lambda value, least: value >= least - 0.5,
    "{:g} W".format, Verdict.WARNING,
    "nvidia-smi -pl {:g}; if the site limits power, say so in expectations of its own",
)  # fmt: skip
temperature = GpuFact(
    "temperature", "gpu_temperature_margin_celsius", MARGIN, "at least {:g} °C below the slowdown".format, ge,
    "{:g} °C left".format, Verdict.WARNING,
    "check fans, inlet temperature or coolant flow; a single hot GPU may need new thermal paste",
)  # fmt: skip
ecc = GpuFact(
    "ecc", "ecc", ECC, switched, eq, switched, Verdict.CRITICAL,
    "nvidia-smi -e 1, then reset the GPUs or restart the node",
)  # fmt: skip
persistence = GpuFact(
    "persistence", "persistence", PERSISTENCE, switched, eq, switched, Verdict.WARNING,
    "systemctl enable --now nvidia-persistenced",
)  # fmt: skip
"""Whether the driver stays loaded between jobs; else each start takes seconds, and settings are lost."""


Judge = Callable[[SeenNode, Expected], "HealthFinding | None"]
"""One check: None where nothing of the kind is expected."""
