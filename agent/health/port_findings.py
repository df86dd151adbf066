"""Whether the RDMA ports of the node are up at their rate, and every GPU has an adapter close by; and its rack."""

from __future__ import annotations

from collections import defaultdict

from agent.health.expectations import DISTANCES, Expected
from agent.health.gpu_facts import NOBODY, UNREAD, grouped
from agent.health.port_states import LINK_UP, PHYSICAL, PORT_UP, RATE
from agent.health.seen_node import SeenNode, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu, IbPort

NEAREST = "coldplate_gpu_nearest_hca_info"
RACK_NODES = "coldplate_rack_nodes_expected"
METRICS = (PORT_UP, PHYSICAL, RATE, NEAREST, RACK_NODES)
GIGABIT = 1e9 / 8
TOLERANCE = 0.99
_REMEDY = "ibstat or ibdev2netdev shows the port's state; check cable, transceiver and the switch's port"


def ports(view: SeenNode, expected: Expected) -> HealthFinding:
    """Return whether enough ports are active; without a number, whether each one that has a link is active."""
    number = expected.node.ports
    text = "every port with a link is active" if number is None else f"at least {number} active ports"
    states = {each.entity: each.value for each in view.all(PORT_UP) if isinstance(each.entity, IbPort)}
    if not states:
        return _no_ports(view, number, text)
    down = [port for port, up in states.items() if not up]
    linked = {each.entity for each in view.all(PHYSICAL) if each.value == LINK_UP}
    active = len(states) - len(down)
    short = active < number if number is not None else any(port in linked for port in down)
    found = f"{active} of {len(states)} ports are active"
    if not short:
        return HealthFinding("infiniband-ports", Verdict.OK, text, found)
    named = ", ".join(f"{port.device}/{port.port}" for port in down)
    verdict = Verdict.WARNING if number is None else Verdict.CRITICAL
    return HealthFinding("infiniband-ports", verdict, text, f"{found}; not active: {named or 'none'}", _REMEDY)


def _no_ports(view: SeenNode, number: int | None, text: str) -> HealthFinding:
    """Nothing is there: the adapters' driver is not loaded, or the node has none though its kind mostly does."""
    if not number:
        return HealthFinding("infiniband-ports", Verdict.SKIPPED, text, "the node has no RDMA port")
    report = view.reports.get("infiniband")
    found = (report.detail if report is not None else "") or "no RDMA port was found"
    remedy = "load the adapters' driver (lsmod | grep mlx5_ib); for nodes without any, give expectations of their own"
    return HealthFinding("infiniband-ports", Verdict.UNKNOWN, text, found, remedy)


def rate(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether as many of the active ports as are needed run at their full rate."""
    number, least = expected.node.ports, expected.node.port_gigabits_per_second
    if least is None:
        return None
    text = f"{least:g} Gb/s"
    active = {each.entity for each in view.all(PORT_UP) if each.value}
    rates = {each.entity: each.value / GIGABIT for each in view.all(RATE) if each.entity in active}
    if not active:
        return HealthFinding("infiniband-rate", Verdict.SKIPPED, text, "no port is active")
    full = [port for port, value in rates.items() if value >= TOLERANCE * least]
    needed = len(active) if number is None else min(number, len(active))
    if len(full) >= needed:
        return HealthFinding("infiniband-rate", Verdict.OK, text, f"{len(full)} ports at {least:g} Gb/s or more")
    if len(rates) < len(active):
        return HealthFinding("infiniband-rate", Verdict.UNKNOWN, text, "the rate of some ports is not known", UNREAD)
    slow = sorted(
        f"{port.device}/{port.port}: {value:g} Gb/s"
        for port, value in rates.items()
        if isinstance(port, IbPort) and value < TOLERANCE * least
    )
    return HealthFinding("infiniband-rate", Verdict.WARNING, text, "; ".join(slow), _REMEDY)


def nearest_hca(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether every GPU has its adapter near enough, and the one that it should have, where that is known."""
    node = expected.node
    if node.hca_distances is None and node.nearest_hcas is None:
        return None
    name = "nearest-hca"
    text = f"an adapter at {' or '.join(node.hca_distances or DISTANCES)} of each GPU"
    if not view.answering:
        return HealthFinding(name, Verdict.SKIPPED, text, NOBODY)
    near, distances = nearest_adapters(view)
    if not near:
        return HealthFinding(name, Verdict.SKIPPED, text, "not known which adapter is near which GPU")
    wrong: dict[Gpu, str] = {}
    slots = view.slots()
    for gpu, devices in near.items():
        named = node.nearest_hcas.get(slots.get(gpu, "")) if node.nearest_hcas else None
        if node.hca_distances is not None and distances[gpu] not in node.hca_distances:
            wrong[gpu] = f"{', '.join(devices)} at {distances[gpu]}"
        elif named is not None and set(devices) != set(named):
            wrong[gpu] = f"{', '.join(devices)}, not {', '.join(named)}"
    if wrong:
        remedy = "nvidia-smi topo -m; an adapter that is gone or moved takes the GPU's traffic through the processor"
        return HealthFinding(name, Verdict.WARNING, text, grouped(wrong), remedy)
    untold = [gpu for gpu in view.answering if gpu not in near]
    if untold:
        return HealthFinding(name, Verdict.UNKNOWN, text, f"not known of {numbers(untold)}", UNREAD)
    return HealthFinding(name, Verdict.OK, text, grouped({gpu: ", ".join(near[gpu]) for gpu in view.answering}))


def nearest_adapters(view: SeenNode) -> tuple[dict[Gpu, list[str]], dict[Gpu, str]]:
    """By GPU, the adapters nearest to it, and how far they are."""
    near: dict[Gpu, list[str]] = defaultdict(list)
    distances: dict[Gpu, str] = {}
    for each in view.all(NEAREST):
        if isinstance(each.entity, Gpu):
            near[each.entity].append(each.labels["device"])
            distances[each.entity] = each.labels["distance"]
    return near, distances


def rack_nodes(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the rack is configured with as many nodes as its topology has; a node that knows no rack is not
    asked.
    """
    counted = [each.value for each in view.all(RACK_NODES)]
    if expected.topology is None or not counted:
        return None
    number = expected.topology.nodes
    text, found = f"{number} nodes ({expected.node.topology})", f"{counted[0]:g} nodes configured"
    if counted[0] == number:
        return HealthFinding("rack-nodes", Verdict.OK, text, found)
    remedy = "correct rack.nodes_expected or rack.peers, or the topology in expectations of your own"
    return HealthFinding("rack-nodes", Verdict.WARNING, text, found, remedy)
