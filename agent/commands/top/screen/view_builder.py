"""Build the data of one screen, independent of the renderer: rates, histories, alerts, and why a GPU is slow, as text.

What can be seen of a single GPU is judged as for the page at `/`. Added here is what takes a whole job to see, across
nodes too: which GPU the others wait for. A GPU that waits in a collective is fully busy at a fraction of its power, so
utilization alone names the wrong ones.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from msgspec import Struct

from agent.commands.top.screen.node_samples import Sighting, Traffic
from agent.commands.top.screen.node_view import GpuView, NodeHistory, NodeView, view_of
from agent.health.device_states import CLOCK, LIMIT, ComparedGpus
from agent.health.seen_node import POWER
from agent.health.verdicts import GpuFinding, is_bad, power_verdict
from agent.lib.wording import age, counted, index_runs
from agent.model import Alert, Gpu
from exporters.landing_alerts import tone_of
from exporters.markup import TONES, Tone

BEHIND, WAITS, SLOWED = "behind", "waits", ("throttled", "slow")
"""Words of findings."""

Key = tuple[str, str]


class NodeIssue(Struct, frozen=True):
    """One thing that is wrong, in a sentence."""

    tone: Tone
    text: str


def diagnose(nodes: Sequence[NodeView], wall: float | None) -> list[NodeIssue]:
    """Note the findings of every GPU, and list what is wrong with all nodes, the worst first. `wall` in seconds."""
    many = len(nodes) > 1
    gpus = [gpu for node in nodes for gpu in node.gpus]
    peers = ComparedGpus(gpu.row for gpu in gpus)
    for gpu in gpus:
        peers.judge(gpu.row, wall)
    for node in nodes:
        _add_alerts(node)
    issues: list[NodeIssue] = []
    for job, members in _jobs(gpus).items():
        issues += _of_job(job, members, [gpu for gpu in gpus if not (gpu.row.up or gpu.row.is_paused)], many)
    issues += [trouble for node in nodes for trouble in _of_node(node, many)]
    issues += _of_gpus(gpus, many)
    for node in nodes:
        issues += _of_alerts(node, many)
    return sorted(issues, key=lambda each: each.tone)


def _has(gpu: GpuView, *words: str) -> bool:
    return any(each.word in words for each in gpu.row.findings)


def _jobs(gpus: Sequence[GpuView]) -> dict[Key, list[GpuView]]:
    """Return the GPUs that each job holds alone."""
    jobs: dict[Key, list[GpuView]] = {}
    for gpu in gpus:
        if gpu.row.only_job is not None:
            jobs.setdefault(gpu.row.only_job, []).append(gpu)
    return jobs


def _of_job(job: Key, members: Sequence[GpuView], gone: Sequence[GpuView], many: bool) -> Iterator[NodeIssue]:
    """Yield who holds the job up, and who waits. A GPU that is gone may have lost its job with it: its node decides."""
    behind = [gpu for gpu in members if _has(gpu, BEHIND)]
    waiting = [gpu for gpu in members if _has(gpu, WAITS)]
    places = {gpu.node for gpu in waiting}
    lost = [gpu for gpu in gone if gpu in members or (not gpu.row.jobs and gpu.node in places)]
    slowed = [gpu for gpu in members if _has(gpu, *SLOWED) and gpu not in behind]
    what = f"job {job[1]}"
    culprits = (lost if waiting else []) or behind or (slowed if waiting else [])
    if culprits:
        yield NodeIssue(Tone.BAD if lost and waiting else Tone.WARN, _held_up(what, culprits, waiting, members, many))
    elif waiting:
        yield NodeIssue(
            Tone.WARN,
            f"{gpu_names(waiting, many)} of {what} {_verb(waiting, 'wait')} for others: {_at_low_power(waiting)}; "
            "no GPU seen here holds them up: look at the job's other nodes, its storage and its hosts",
        )
    else:
        yield from _slower_than_peers(what, members, many)
    for gpu in waiting if culprits else ():
        gpu.row.findings = _said_again(gpu, WAITS, f"waits for {gpu_names(culprits, many)}: {_at_low_power([gpu])}")
    peers = [gpu for gpu in members if gpu not in behind]
    for gpu in behind if peers else ():
        gpu.row.findings = _said_again(gpu, BEHIND, f"{_busy([gpu])} busy, its peers {_busy(peers)}")


def _slower_than_peers(what: str, members: Sequence[GpuView], many: bool) -> Iterator[NodeIssue]:
    """Yield GPUs with lower clocks than their work explains, beside those of their job that run as they should."""
    slow = [gpu for gpu in members if _has(gpu, "slow")]
    peers = [gpu for gpu in members if gpu not in slow and gpu.word == "ok"]
    if slow and peers:
        others = counted(len(peers), "peer")
        parts = [
            f"{_middle(slow, name, factor)} {unit}, {others} {_middle(peers, name, factor)} {unit}"
            for name, factor, unit in ((CLOCK, 1e-6, "MHz"), (POWER, 1.0, "W"))
            if all(name in gpu.row.values for gpu in (*slow, *peers))
        ]
        text = f"{gpu_names(slow, many)} {_verb(slow, 'hold')} {what} up, slower than its peers: {'; '.join(parts)}"
        yield NodeIssue(Tone.WARN, text)


def _middle(gpus: Sequence[GpuView], name: str, factor: float) -> str:
    return f"{median(gpu.row.values[name] for gpu in gpus) * factor:.0f}"


def _held_up(
    what: str, culprits: Sequence[GpuView], waiting: Sequence[GpuView], members: Sequence[GpuView], many: bool
) -> str:
    who = gpu_names(culprits, many)
    peers = [gpu for gpu in members if gpu not in culprits]
    wait = f"{counted(len(waiting), 'GPU')} {_verb(waiting, 'wait')} for {'it' if len(culprits) == 1 else 'them'}"
    if not all(gpu.row.up for gpu in culprits):
        is_lost = culprits[0].word == "lost"
        gone = f"{_verb(culprits, 'is')} lost" if is_lost else f"{_verb(culprits, 'do')} not answer"
        return f"{who} {gone}: {wait} in {what}, {_at_low_power(waiting)}"
    if not _has(culprits[0], BEHIND):
        return f"{who} {_verb(culprits, 'hold')} {what} up ({culprits[0].word}): {wait}, {_at_low_power(waiting)}"
    busy = f"{_busy(culprits)} busy"
    if waiting:
        return f"{who} {_verb(culprits, 'hold')} {what} up, {busy}: {wait}, {_at_low_power(waiting)}"
    others = f"{counted(len(peers), 'peer')} {_verb(peers, 'is')} {_busy(peers)} busy"
    return f"{who} {_verb(culprits, 'do')} too little of {what}: {busy}, while {others}"


def _said_again(gpu: GpuView, word: str, text: str) -> list[GpuFinding]:
    """Return its findings, the one of this word in other words."""
    return [each._replace(text=text) if each.word == word else each for each in gpu.row.findings]


def _busy(gpus: Sequence[GpuView]) -> str:
    return f"{median(gpu.row.busy or 0.0 for gpu in gpus):.0%}"


def _at_low_power(gpus: Sequence[GpuView]) -> str:
    """Return what gives a waiting GPU away; GPUs that wait have both values."""
    shares = [gpu.row.values[POWER] / gpu.row.values[LIMIT] for gpu in gpus]
    return f"{_busy(gpus)} busy at {median(shares):.0%} of {'its' if len(gpus) == 1 else 'their'} power limit"


def _of_gpus(gpus: Sequence[GpuView], many: bool) -> Iterator[NodeIssue]:
    """Yield what is wrong with single GPUs, in as few sentences as name each GPU with all of its troubles."""
    alike: dict[GpuFinding, list[GpuView]] = {}
    for gpu in gpus:
        for finding in gpu.row.findings:
            if is_bad(finding.verdict) and finding.word not in (BEHIND, WAITS):
                alike.setdefault(finding, []).append(gpu)
    together: dict[tuple[Key, ...], tuple[list[GpuView], list[GpuFinding]]] = {}
    for finding, found in alike.items():
        together.setdefault(tuple(gpu.key for gpu in found), (found, []))[1].append(finding)
    for members, findings in together.values():
        text = "; ".join(each.text for each in findings)
        tone = min(TONES[each.verdict] for each in findings)
        yield NodeIssue(tone, f"{gpu_names(members, many)}: {text}")


def _of_node(node: NodeView, many: bool) -> Iterator[NodeIssue]:
    where = f"{node.name}: " if many else ""
    if node.problem:
        yield NodeIssue(Tone.BAD, f"{node.name}: {node.problem}")
        return
    if node.expected is not None and len(node.gpus) < node.expected:
        yield NodeIssue(Tone.BAD, f"{where}{len(node.gpus)} of {node.expected} GPUs are present")
    for port in node.ports:
        if port.tone <= Tone.WARN:
            grown = ", ".join(f"{amount:.0f} {what}" for what, amount in port.growth.items())
            details = {"errors": f"{grown} in the last minute"}
            if port.state.rate is not None:
                details["slow"] = f"{port.state.rate * 8e-9:.0f} Gb/s, less than most of the node's ports"
            detail = details.get(port.word, port.state.link)
            yield NodeIssue(port.tone, f"{where}port {port.name} {port.word}" + (f": {detail}" if detail else ""))
    power, budget = node.rack_power, node.rack_budget
    if power is not None and budget and is_bad(found := power_verdict(power, budget)):
        yield NodeIssue(TONES[found], f"rack {node.rack} draws {power / budget:.0%} of its power budget")
    for report in node.failed:
        yield NodeIssue(Tone.WARN, f"{where}{report.backend} cannot be read: {report.detail or 'no reason given'}")


def _add_alerts(node: NodeView) -> None:
    by_gpu: dict[Gpu, list[Alert]] = {}
    for alert in node.firing:
        labels = dict(alert.labels)
        if "gpu" in labels:
            by_gpu.setdefault(Gpu(labels["gpu"], labels.get("uuid", "")), []).append(alert)
    for gpu in node.gpus:
        gpu.row.alerts = by_gpu.get(gpu.row.gpu, [])


def _of_alerts(node: NodeView, many: bool) -> Iterator[NodeIssue]:
    """Yield alerts that fire, by name: sentences above have said the same of GPUs, but not for how long or how bad."""
    by_name = Counter((tone_of(alert), alert.rule) for alert in node.firing)
    where = f"{node.name}: " if many else ""
    for tone in (Tone.BAD, Tone.WARN):
        found = [f"{rule} ({count})" if count > 1 else rule for (each, rule), count in by_name.items() if each is tone]
        if found:
            yield NodeIssue(tone, f"{where}{'critical' if tone is Tone.BAD else 'warning'} alerts: {', '.join(found)}")


def gpu_names(gpus: Sequence[GpuView], many: bool) -> str:
    """Return GPUs in short; of several nodes each with its node."""
    places: dict[str, list[GpuView]] = {}
    for gpu in gpus:
        places.setdefault(gpu.node, []).append(gpu)
    runs = ((node, index_runs((gpu.index for gpu in found), "–", 2)) for node, found in places.items())
    return ", ".join(f"{node} GPU {indexes}" if many else f"GPU {indexes}" for node, indexes in runs)


def _verb(gpus: Sequence[GpuView], plural: str) -> str:
    """Return the singular or plural for this number."""
    if len(gpus) != 1:
        return {"is": "are"}.get(plural, plural)
    return {"is": "is", "do": "does"}.get(plural, f"{plural}s")


class ScreenData(Struct, frozen=True):
    """Nodes and what is wrong with them. `interval` in seconds, `wall` the newest time of a node; None without any."""

    nodes: Sequence[NodeView]
    troubles: Sequence[NodeIssue]
    interval: float
    wall: float | None = None


STALE_INTERVALS = 4
STALE_SECONDS = 5.0
"""Seconds after which data are said to be old, unless the multiple of the interval is longer."""


class ViewKeeper:
    """Keeps what has to be remembered between two pictures. `interval` in seconds. For one thread."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._known = defaultdict[str, tuple[Traffic, NodeHistory]](lambda: (Traffic(), NodeHistory(interval)))

    def scene(self, sightings: Sequence[Sighting], mono: float, note: str = "") -> ScreenData:
        """Return what is shown at a monotonic second; `note` is said of the view itself."""
        nodes = [self._node(each, mono) for each in sightings]
        wall = max((node.wall for node in nodes if node.wall is not None), default=None)
        troubles = diagnose(nodes, wall)
        notes = [NodeIssue(Tone.CALM, note)] if note else []
        return ScreenData(nodes, [*self._stale(nodes), *troubles, *notes], self._interval, wall)

    def _node(self, sighting: Sighting, mono: float) -> NodeView:
        if sighting.snapshot is None:
            return NodeView(sighting.name, sighting.origin, problem=sighting.problem or "nothing known yet")
        traffic, history = self._known[sighting.name]
        traffic.take(sighting.snapshot)
        node = view_of(sighting.name, sighting.origin, sighting.snapshot, traffic)
        node.alerts, node.processes = sighting.alerts, sighting.processes
        node.age = sighting.age + max(mono - sighting.mono, 0.0)
        history.take(node, sighting.past)
        return node

    def _stale(self, nodes: Sequence[NodeView]) -> list[NodeIssue]:
        limit = max(STALE_SECONDS, STALE_INTERVALS * self._interval)
        return [
            NodeIssue(Tone.WARN, f"{node.name}: what is shown is {age(node.age)} old")
            for node in nodes
            if node.age is not None and node.age > limit
        ]
