"""Findings of the links and ports of a node: PCIe, NVLink and its fabric, InfiniBand ports and the way to them."""

from collections import defaultdict
from operator import ge

from agent.health.device_facts import PHYSICAL, PHYSICAL_LINK_UP, PORT_UP, RATE
from agent.health.expectations import DISTANCES, NODES_OF_RACK, Expected
from agent.health.gpu_findings import UNREAD, GpuFact, group_by_text, unread
from agent.health.seen_node import LINK_UP, SeenNode, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu, IbPort

GENERATION = "coldplate_gpu_pcie_link_generation"
GENERATION_MAX = "coldplate_gpu_pcie_link_generation_max"
SPEED = "coldplate_gpu_nvlink_speed_bytes_per_second"
WIDTH = "coldplate_gpu_pcie_link_width"
FABRIC_STATE = "coldplate_gpu_fabric_state"
FABRIC_INFO = "coldplate_gpu_fabric_info"
NEAREST = "coldplate_gpu_nearest_hca_info"
RACK_NODES = "coldplate_rack_nodes_expected"
METRICS = (
    GENERATION,
    GENERATION_MAX,
    WIDTH,
    LINK_UP,
    SPEED,
    FABRIC_STATE,
    FABRIC_INFO,
    PORT_UP,
    PHYSICAL,
    RATE,
    NEAREST,
    RACK_NODES,
)
GIGABYTE = 1e9
GIGABIT = 1e9 / 8
TOLERANCE = 0.99
"""Share of a link's speed that counts as all of it: drivers round it differently."""
_LINK_REMEDY = (
    "nvidia-smi nvlink -s and XID 74 show which; reset all GPUs together, and have a link that stays down repaired"
)
_PCIE_REMEDY = "lspci -vv shows LnkSta downgraded; restart the node, then reseat or replace riser, cable or GPU"


pcie_generation = GpuFact(
    "pcie_generation",
    GENERATION_MAX,
    "generation {:g}".format,
    ge,
    "generation {:g}".format,
    Verdict.WARNING,
    _PCIE_REMEDY,
)
"""Whether GPU and slot are able to run the generation; links fall below it by design while a GPU idles."""
pcie_width = GpuFact("pcie_width", WIDTH, "{:g} lanes".format, ge, "{:g} lanes".format, Verdict.WARNING, _PCIE_REMEDY)


def nvlinks(view: SeenNode, expected: Expected) -> HealthFinding:
    """Return whether as many NVLinks of each GPU are up as should be; without a number, whether none is down."""
    number = expected.node.nvlinks
    text = "no NVLink is down" if number is None else f"NVLinks of each GPU that are up: {number}"
    up = {gpu: view.by_gpu[gpu].links_up for gpu in view.answering}
    down = {gpu: len(view.by_gpu[gpu].links_down) for gpu in view.answering}
    if not any(up.values()) and not any(down.values()):
        return _no_links(view, number, text)
    silent = unread(view, LINK_UP, [gpu for gpu in view.answering if up[gpu] or down[gpu]])

    def is_short(gpu: Gpu) -> bool:
        if number is None:
            return view.by_gpu[gpu].is_linked and down[gpu] > 0
        return up[gpu] < number

    short = {
        gpu: f"{up[gpu]} up" + (f", {down[gpu]} down" if down[gpu] else "")
        for gpu in view.answering
        if gpu not in silent and is_short(gpu)
    }
    if short:
        return HealthFinding(Verdict.CRITICAL, text, group_by_text(short), _LINK_REMEDY)
    if silent and number:
        return HealthFinding(Verdict.UNKNOWN, text, group_by_text(silent), UNREAD)
    return HealthFinding(Verdict.OK, text, group_by_text({gpu: f"{up[gpu]} up" for gpu in view.answering}))


def _no_links(view: SeenNode, number: int | None, text: str) -> HealthFinding:
    if not number:
        return HealthFinding(Verdict.SKIPPED, text, "these GPUs have no NVLink")
    if any(view.offers(gpu, LINK_UP) for gpu in view.answering):
        reasons = group_by_text({gpu: view.why_absent(gpu, LINK_UP) for gpu in view.answering})
        return HealthFinding(Verdict.UNKNOWN, text, reasons, UNREAD)
    remedy = "the driver knows of no NVLink: check the fabric manager and the baseboard"
    return HealthFinding(Verdict.CRITICAL, text, "none of the GPUs has an NVLink", remedy)


def nvlink_speed(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the links of each GPU that are up run at full speed; their number is a finding of its own."""
    expected_speed = expected.node.nvlink_gigabytes_per_second
    if expected_speed is None:
        return None
    text = f"{expected_speed:.4g} GB/s per link"
    up = {gpu: view.by_gpu[gpu].links_up for gpu in view.answering}
    speeds = {gpu: value / up[gpu] / GIGABYTE for gpu, value in view.of_gpus(SPEED).items() if up[gpu]}
    slow = {gpu: f"{speed:.4g} GB/s" for gpu, speed in speeds.items() if speed < TOLERANCE * expected_speed}
    if slow:
        return HealthFinding(Verdict.WARNING, text, group_by_text(slow), _LINK_REMEDY)
    silent = [gpu for gpu in unread(view, SPEED, speeds) if up[gpu]]
    if silent:
        return HealthFinding(Verdict.UNKNOWN, text, f"not known of {numbers(silent)}", UNREAD)
    if not speeds:
        return HealthFinding(Verdict.SKIPPED, text, "no NVLink is up, or the driver reports no speed")
    speeds_text = group_by_text({gpu: f"{speed:.4g} GB/s" for gpu, speed in speeds.items()})
    return HealthFinding(Verdict.OK, text, speeds_text)


def fabric(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether every GPU has joined the NVLink fabric, and all of them the same domain."""
    text = "every GPU has joined the NVLink fabric, all in one domain"
    states = _fabric_states(view)
    if not expected.node.fabric and "failed" not in states.values():
        return None
    apart = {gpu: state.replace("_", " ") for gpu, state in states.items() if state in _NOT_JOINED}
    if apart:
        return HealthFinding(Verdict.CRITICAL, text, group_by_text(apart), _FABRIC_REMEDY)
    if silent := unread(view, FABRIC_STATE, states):
        return HealthFinding(Verdict.UNKNOWN, text, group_by_text(silent), UNREAD)
    domains: dict[tuple[str, str], list[Gpu]] = {}
    for reading in view.all(FABRIC_INFO):
        if isinstance(reading.entity, Gpu) and states.get(reading.entity) == "completed":
            domains.setdefault((reading.labels["cluster_uuid"], reading.labels["clique"]), []).append(reading.entity)
    if len(domains) > 1:
        parts = [f"{numbers(gpus)}: clique {clique} of {cluster}" for (cluster, clique), gpus in domains.items()]
        return HealthFinding(Verdict.CRITICAL, text, "; ".join(parts), _DOMAIN_REMEDY)
    if "completed" not in states.values():
        return HealthFinding(Verdict.SKIPPED, text, "the driver knows of no fabric")
    return HealthFinding(Verdict.OK, text, group_by_text(states))


def _fabric_states(view: SeenNode) -> dict[Gpu, str]:
    """Return, by GPU that answers, the state of its registration."""
    answering = set(view.answering)
    return {
        reading.entity: reading.labels["state"]
        for reading in view.all(FABRIC_STATE)
        if isinstance(reading.entity, Gpu) and reading.entity in answering and reading.value
    }


_NOT_JOINED = ("not_started", "in_progress", "failed")
_FABRIC_REMEDY = (
    "systemctl status nvidia-fabricmanager (nvidia-imex, too, on multi-node NVLink); restart it, then the node"
)
_DOMAIN_REMEDY = "check the NVLink switches' controller for partitions and links that are down, then nvidia-imex here"


_PORT_REMEDY = "ibstat or ibdev2netdev shows the port's state; check cable, transceiver and the switch's port"


def ports(view: SeenNode, expected: Expected) -> HealthFinding:
    """Return whether enough ports are active; without a number, whether each one that has a link is active."""
    number = expected.node.ports
    text = "every port with a link is active" if number is None else f"at least {number} active ports"
    states = {reading.entity: reading.value for reading in view.all(PORT_UP) if isinstance(reading.entity, IbPort)}
    if not states:
        return _no_ports(view, number, text)
    down = [port for port, up in states.items() if not up]
    linked = {reading.entity for reading in view.all(PHYSICAL) if reading.value == PHYSICAL_LINK_UP}
    active = len(states) - len(down)
    short = active < number if number is not None else any(port in linked for port in down)
    counted = f"{active} of {len(states)} ports are active"
    if not short:
        return HealthFinding(Verdict.OK, text, counted)
    named = ", ".join(f"{port.device}/{port.port}" for port in down)
    verdict = Verdict.WARNING if number is None else Verdict.CRITICAL
    return HealthFinding(verdict, text, f"{counted}; not active: {named or 'none'}", _PORT_REMEDY)


def _no_ports(view: SeenNode, number: int | None, text: str) -> HealthFinding:
    """Report no port: the adapters' driver is not loaded, or the node has none though its kind mostly does."""
    if not number:
        return HealthFinding(Verdict.SKIPPED, text, "the node has no RDMA port")
    report = view.reports.get("infiniband")
    reason = (report.detail if report is not None else "") or "no RDMA port was found"
    remedy = "load the adapters' driver (lsmod | grep mlx5_ib); for nodes without any, give expectations of their own"
    return HealthFinding(Verdict.UNKNOWN, text, reason, remedy)


def rate(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether as many of the active ports as are needed run at their full rate."""
    number, least = expected.node.ports, expected.node.port_gigabits_per_second
    if least is None:
        return None
    text = f"{least:g} Gb/s"
    active = {reading.entity for reading in view.all(PORT_UP) if reading.value}
    rates = {reading.entity: reading.value / GIGABIT for reading in view.all(RATE) if reading.entity in active}
    if not active:
        return HealthFinding(Verdict.SKIPPED, text, "no port is active")
    full = [port for port, value in rates.items() if value >= TOLERANCE * least]
    needed = len(active) if number is None else min(number, len(active))
    if len(full) >= needed:
        return HealthFinding(Verdict.OK, text, f"{len(full)} ports at {least:g} Gb/s or more")
    if len(rates) < len(active):
        return HealthFinding(Verdict.UNKNOWN, text, "the rate of some ports is not known", UNREAD)
    slow = sorted(
        f"{port.device}/{port.port}: {value:g} Gb/s"
        for port, value in rates.items()
        if isinstance(port, IbPort) and value < TOLERANCE * least
    )
    return HealthFinding(Verdict.WARNING, text, "; ".join(slow), _PORT_REMEDY)


def nearest_hca(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether every GPU has its adapter near enough, and the one that it should have, where that is known."""
    node = expected.node
    if node.hca_distances is None and node.nearest_hcas is None:
        return None
    text = f"an adapter at {' or '.join(node.hca_distances or DISTANCES)} of each GPU"
    near, distances = nearest_adapters(view)
    if not near:
        return HealthFinding(Verdict.SKIPPED, text, "not known which adapter is near which GPU")
    wrong: dict[Gpu, str] = {}
    slots = view.facts("slot")
    for gpu, devices in near.items():
        named = node.nearest_hcas.get(slots.get(gpu, "")) if node.nearest_hcas else None
        if node.hca_distances is not None and distances[gpu] not in node.hca_distances:
            wrong[gpu] = f"{', '.join(devices)} at {distances[gpu]}"
        elif named is not None and set(devices) != set(named):
            wrong[gpu] = f"{', '.join(devices)}, not {', '.join(named)}"
    if wrong:
        remedy = "nvidia-smi topo -m; an adapter that is gone or moved takes the GPU's traffic through the processor"
        return HealthFinding(Verdict.WARNING, text, group_by_text(wrong), remedy)
    unknown = [gpu for gpu in view.answering if gpu not in near]
    if unknown:
        return HealthFinding(Verdict.UNKNOWN, text, f"not known of {numbers(unknown)}", UNREAD)
    return HealthFinding(Verdict.OK, text, group_by_text({gpu: ", ".join(near[gpu]) for gpu in view.answering}))


def nearest_adapters(view: SeenNode) -> tuple[dict[Gpu, list[str]], dict[Gpu, str]]:
    """Return, by GPU, the adapters nearest to it, and how far they are."""
    near: dict[Gpu, list[str]] = defaultdict(list)
    distances: dict[Gpu, str] = {}
    for reading in view.all(NEAREST):
        if isinstance(reading.entity, Gpu):
            near[reading.entity].append(reading.labels["device"])
            distances[reading.entity] = reading.labels["distance"]
    return near, distances


def rack_nodes(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the rack is configured with as many nodes as its topology has; None where there is no rack."""
    counted = [reading.value for reading in view.all(RACK_NODES)]
    if expected.node.topology is None or not counted:
        return None
    number = NODES_OF_RACK[expected.node.topology]
    text, configured = f"{number} nodes ({expected.node.topology})", f"{counted[0]:g} configured"
    if counted[0] == number:
        return HealthFinding(Verdict.OK, text, configured)
    remedy = "correct rack.nodes_expected or rack.peers, or the topology in expectations of your own"
    return HealthFinding(Verdict.WARNING, text, configured, remedy)
