"""Findings of faults on a node of any model: errors that need a repair, throttling by the hardware, filesystems that do
not answer, Fabric Manager, errors of the host's memory."""

from collections import defaultdict
from collections.abc import Iterable
from operator import eq

from msgspec.structs import replace

from agent.catalogue.xid_triage import ACTIONS, XidClass, called, class_of
from agent.health.device_states import REMAP_FAILURE, REMAP_PENDING, XID_VERDICTS, cause_of
from agent.health.expectations import Expected
from agent.health.gpu_findings import GpuFact, grouped
from agent.health.seen_node import RECOVERY, THROTTLE, SeenNode, name_of
from agent.health.verdicts import HealthFinding, Verdict, rank
from agent.model import Xid

MOUNT_UP = "coldplate_node_mount_up"
FABRIC_MANAGER = "coldplate_node_fabric_manager_up"
MEMORY_ERRORS = "coldplate_node_memory_errors_total"
METRICS = (REMAP_PENDING, REMAP_FAILURE, RECOVERY, THROTTLE, MOUNT_UP, FABRIC_MANAGER, MEMORY_ERRORS)


def row_remaps(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether no memory row waits for its replacement, or could not be replaced."""
    failed, pending = _failed(view, expected), _pending(view, expected)
    if failed is None or pending is None:
        return None
    if failed.is_met is False:
        broken = (view.by_gpu[gpu] for gpu, bad in view.of_gpus(REMAP_FAILURE).items() if bad)
        parts = (" ".join([name_of(gpu.gpu), *gpu.place]) for gpu in broken)
        failed = replace(failed, remedy=f"{failed.remedy}: {', '.join(parts)}")
    if failed.is_met is False and pending.is_met is False:
        return replace(failed, found=f"{failed.found}; {pending.found}")
    return max(failed, pending, key=lambda each: rank(each.verdict))


def _clear(metric: str, word: str, verdict: Verdict, remedy: str) -> GpuFact:
    """Return a state that should be 0; `word` is for those of which it is not."""
    return GpuFact(
        "", metric, lambda _: "no row remap is pending or has failed", eq,
        lambda value: word if value else "none", verdict, remedy,
    )  # fmt: skip


_failed = _clear(
    REMAP_FAILURE, "failed", Verdict.CRITICAL,
    "the GPU has no spare row left: drain the node, run the field diagnostics, and have the GPU replaced",
)  # fmt: skip
_pending = _clear(
    REMAP_PENDING, "pending", Verdict.WARNING,
    "when the job ends: coldplate pause --for 30m, nvidia-smi --gpu-reset -i GPU, coldplate pause --end",
)  # fmt: skip


def recovery(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether the driver asks for nothing to be done."""
    expectation = "the driver requests no action"
    asked = {gpu.gpu: gpu.action for gpu in view.by_gpu.values() if gpu.action}
    if asked:
        return HealthFinding(Verdict.CRITICAL, expectation, grouped(asked), "drain the node, and do what is requested")
    if not view.all(RECOVERY):
        return HealthFinding(Verdict.SKIPPED, expectation, "not reported by the driver")
    return HealthFinding(Verdict.OK, expectation, "none")


def throttling(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether the hardware holds no GPU back."""
    expectation = "no GPU is slowed down by heat or a power brake"
    causes = {gpu.gpu: " and ".join(filter(None, map(cause_of, gpu.throttles))) for gpu in view.by_gpu.values()}
    braked = {gpu: text for gpu, text in causes.items() if text}
    if braked:
        remedy = "check the node's cooling and power supplies; if a brake stays on without cause, power-cycle the node"
        return HealthFinding(Verdict.CRITICAL, expectation, grouped(braked), remedy)
    if not view.all(THROTTLE):
        return HealthFinding(Verdict.SKIPPED, expectation, "not reported by these GPUs")
    return HealthFinding(Verdict.OK, expectation, "none")


def xids(view: SeenNode, events: Iterable[Xid] | None, why_unknown: str = "") -> HealthFinding:
    """Return whether the kernel log has no XID since boot that asks for a repair; None where it cannot be read."""
    expectation = "no fatal XID since boot"
    if events is None:
        remedy = "run as root, or with CAP_SYSLOG; --skip xids leaves this out"
        return HealthFinding(Verdict.UNKNOWN, expectation, why_unknown, remedy)
    codes: dict[str, set[int]] = defaultdict(set)
    classes: set[XidClass] = set()
    for event in events:
        asked = class_of(event.code, event.text)
        if asked in XID_VERDICTS:
            gpu = view.find(event.device)
            codes[name_of(gpu) if gpu is not None else event.device].add(event.code)
            classes.add(asked)
    if not codes:
        return HealthFinding(Verdict.OK, expectation, "none")
    found = "; ".join(f"{device}: {', '.join(map(called, sorted(each)))}" for device, each in codes.items())
    gravest = max(classes, key=list(XID_VERDICTS).index)
    remedy = f"{ACTIONS[gravest]}; the kernel log keeps the XID until a restart: --skip xids once it is repaired"
    return HealthFinding(XID_VERDICTS[gravest], expectation, found, remedy)


def mounts(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether every network filesystem answers."""
    expectation, seen = "every network filesystem answers", view.all(MOUNT_UP)
    if not seen:
        return HealthFinding(Verdict.SKIPPED, expectation, "the node has no network filesystem")
    down = [f"{each.labels['mountpoint']} ({each.labels['fstype']})" for each in seen if not each.value]
    if down:
        remedy = "see whether its server answers other nodes: runbook NodeMountDown"
        return HealthFinding(Verdict.CRITICAL, expectation, f"no answer from {', '.join(down)}", remedy)
    return HealthFinding(Verdict.OK, expectation, f"{len(seen)} answer")


def fabric_manager(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether Fabric Manager runs, where the node's board needs it."""
    expectation, seen = "Fabric Manager runs", view.all(FABRIC_MANAGER)
    if not seen:
        return HealthFinding(Verdict.SKIPPED, expectation, "the host has no NVSwitch, or processes cannot be seen")
    if seen[0].value:
        return HealthFinding(Verdict.OK, expectation, "it runs")
    remedy = "systemctl restart nvidia-fabricmanager; its version must be the driver's"
    return HealthFinding(Verdict.CRITICAL, expectation, "it does not run, and CUDA cannot start", remedy)


def memory_errors(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether the host's memory has had no uncorrected error since the kernel began to count."""
    expectation = "the host's memory has no uncorrected error"
    counts = [each.value for each in view.all(MEMORY_ERRORS) if each.labels["type"] == "uncorrected"]
    if not counts:
        return HealthFinding(Verdict.SKIPPED, expectation, "the kernel does not count them")
    if counts[0]:
        remedy = "find the module in /sys/devices/system/edac, and have it replaced: runbook NodeMemoryErrors"
        return HealthFinding(Verdict.WARNING, expectation, f"{counts[0]:.0f} since boot", remedy)
    return HealthFinding(Verdict.OK, expectation, "none")
