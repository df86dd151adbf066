"""Whether the links of the GPUs are up, complete and as fast as they should be: PCIe, NVLink and its fabric."""

from __future__ import annotations

from operator import ge

from agent.health.expectations import Expected
from agent.health.gpu_facts import NOBODY, UNREAD, GpuFact, grouped, unread
from agent.health.gpu_states import WIDTH
from agent.health.seen_node import LINK_UP, SeenNode, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu

GENERATION = "coldplate_gpu_pcie_link_generation"
GENERATION_MAX = "coldplate_gpu_pcie_link_generation_max"
SPEED = "coldplate_gpu_nvlink_speed_bytes_per_second"
FABRIC_STATE = "coldplate_gpu_fabric_state"
FABRIC_INFO = "coldplate_gpu_fabric_info"
METRICS = (GENERATION, GENERATION_MAX, WIDTH, LINK_UP, SPEED, FABRIC_STATE, FABRIC_INFO)
GIGABYTE = 1e9
TOLERANCE = 0.99
"""Share of a link's speed that counts as all of it: drivers round it differently."""
_LINK_REMEDY = (
    "nvidia-smi nvlink -s and XID 74 show which; reset all GPUs together, and have a link that stays down repaired"
)
_PCIE_REMEDY = "lspci -vv shows LnkSta downgraded; restart the node, then reseat or replace riser, cable or GPU"


pcie_generation = GpuFact(
    "pcie-generation", "pcie_generation", GENERATION_MAX, "generation {:g}".format, ge, "generation {:g}".format,
    Verdict.WARNING, _PCIE_REMEDY,
)  # fmt: skip
"""Whether GPU and slot are able to run the generation; links fall below it by design while a GPU idles."""
pcie_width = GpuFact(
    "pcie-width", "pcie_width", WIDTH, "{:g} lanes".format, ge, "{:g} lanes".format, Verdict.WARNING, _PCIE_REMEDY,
)  # fmt: skip


def nvlinks(view: SeenNode, expected: Expected) -> HealthFinding:
    """Return whether as many NVLinks of each GPU are up as should be; without a number, whether none is down."""
    number = expected.node.nvlinks
    text = "no NVLink is down" if number is None else f"NVLinks of each GPU that are up: {number}"
    if not view.answering:
        return HealthFinding("nvlinks", Verdict.SKIPPED, text, NOBODY)
    up = {gpu: view.by_gpu[gpu].links_up for gpu in view.answering}
    down = {gpu: len(view.by_gpu[gpu].links_down) for gpu in view.answering}
    if not any(up.values()) and not any(down.values()):
        return _no_links(view, number, text)
    silent = unread(view, LINK_UP, [gpu for gpu in view.answering if up[gpu] or down[gpu]])
    short = {
        gpu: f"{up[gpu]} up" + (f", {down[gpu]} down" if down[gpu] else "")
        for gpu in view.answering
        if gpu not in silent and (view.by_gpu[gpu].is_linked and down[gpu] > 0 if number is None else up[gpu] < number)
    }
    if short:
        return HealthFinding("nvlinks", Verdict.CRITICAL, text, grouped(short), _LINK_REMEDY)
    if silent and number:
        return HealthFinding("nvlinks", Verdict.UNKNOWN, text, grouped(silent), UNREAD)
    return HealthFinding("nvlinks", Verdict.OK, text, grouped({gpu: f"{up[gpu]} up" for gpu in view.answering}))


def _no_links(view: SeenNode, number: int | None, text: str) -> HealthFinding:
    if not number:
        return HealthFinding("nvlinks", Verdict.SKIPPED, text, "these GPUs have no NVLink")
    if any(view.offers(gpu, LINK_UP) for gpu in view.answering):
        why = grouped({gpu: view.why_absent(gpu, LINK_UP) for gpu in view.answering})
        return HealthFinding("nvlinks", Verdict.UNKNOWN, text, why, UNREAD)
    remedy = "the driver knows of no NVLink: check the fabric manager and the baseboard"
    return HealthFinding("nvlinks", Verdict.CRITICAL, text, "none of the GPUs has an NVLink", remedy)


def nvlink_speed(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the links of each GPU that are up run at their full speed; their number is a finding of its
    own.
    """
    each = expected.node.nvlink_gigabytes_per_second
    if each is None:
        return None
    text = f"{each:g} GB/s per link"
    if not view.answering:
        return HealthFinding("nvlink-speed", Verdict.SKIPPED, text, NOBODY)
    up = {gpu: view.by_gpu[gpu].links_up for gpu in view.answering}
    speeds = {gpu: value / up[gpu] / GIGABYTE for gpu, value in view.of_gpus(SPEED).items() if up[gpu]}
    slow = {gpu: f"{speed:.4g} GB/s" for gpu, speed in speeds.items() if speed < TOLERANCE * each}
    if slow:
        return HealthFinding("nvlink-speed", Verdict.WARNING, text, grouped(slow), _LINK_REMEDY)
    silent = [gpu for gpu in unread(view, SPEED, speeds) if up[gpu]]
    if silent:
        return HealthFinding("nvlink-speed", Verdict.UNKNOWN, text, f"not known of {numbers(silent)}", UNREAD)
    if not speeds:
        return HealthFinding("nvlink-speed", Verdict.SKIPPED, text, "no NVLink is up, or the driver reports no speed")
    found = grouped({gpu: f"{speed:.4g} GB/s" for gpu, speed in speeds.items()})
    return HealthFinding("nvlink-speed", Verdict.OK, text, found)


def fabric(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether every GPU has joined the NVLink fabric, and all of them the same domain."""
    if not expected.node.fabric:
        return None
    name, text = "fabric", "every GPU has joined the NVLink fabric, all in one domain"
    if not view.answering:
        return HealthFinding(name, Verdict.SKIPPED, text, NOBODY)
    states = _fabric_states(view)
    apart = {gpu: state.replace("_", " ") for gpu, state in states.items() if state in _NOT_JOINED}
    if apart:
        return HealthFinding(name, Verdict.CRITICAL, text, grouped(apart), _FABRIC_REMEDY)
    if silent := unread(view, FABRIC_STATE, states):
        return HealthFinding(name, Verdict.UNKNOWN, text, grouped(silent), UNREAD)
    domains: dict[tuple[str, str], list[Gpu]] = {}
    for each in view.all(FABRIC_INFO):
        if isinstance(each.entity, Gpu) and states.get(each.entity) == "completed":
            domains.setdefault((each.labels["cluster_uuid"], each.labels["clique"]), []).append(each.entity)
    if len(domains) > 1:
        parts = [f"{numbers(gpus)}: clique {clique} of {cluster}" for (cluster, clique), gpus in domains.items()]
        return HealthFinding(name, Verdict.CRITICAL, text, "; ".join(parts), _FABRIC_REMEDY)
    if "completed" not in states.values():
        return HealthFinding(name, Verdict.SKIPPED, text, "the driver knows of no fabric")
    return HealthFinding(name, Verdict.OK, text, grouped(states))


def _fabric_states(view: SeenNode) -> dict[Gpu, str]:
    """By GPU that answers, the state of its registration."""
    answering = set(view.answering)
    return {
        each.entity: each.labels["state"]
        for each in view.all(FABRIC_STATE)
        if isinstance(each.entity, Gpu) and each.entity in answering and each.value
    }


_NOT_JOINED = ("not_started", "in_progress")
_FABRIC_REMEDY = (
    "systemctl status nvidia-fabricmanager (nvidia-imex, too, on multi-node NVLink); restart it, then the node"
)
