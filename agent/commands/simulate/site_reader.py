"""Read a site from a file, or from the options of the command line, which describe it in fewer words.

The reader of scenarios reads what a scenario file and a site file have in common: jobs and faults.
"""

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agent.backends.synthetic.loader import ScenarioError, ScenarioReader, load_scenario, parsed
from agent.backends.synthetic.machines import TOPOLOGIES, MachineType
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, ScenarioJob
from agent.backends.synthetic.scenario_schema import FAULTS, Parameter, choice, quantity, text, watts, whole
from agent.commands.simulate.simulated_site import (
    Outage,
    OutageCause,
    RackPlan,
    SimulatedSite,
    SiteNode,
    SiteRack,
    Span,
    assign_scenarios,
    build_nodes,
    link_waiting_nodes,
)
from agent.lib.typed_yaml import YamlFile
from agent.lib.wording import UserError, meant, shown

SITE = ("nodes", "nodes_per_rack", "topology", "scenario", "nodes_per_job", "rack_budget", "cluster", "fault")
"""The options that say what a site file says itself."""
_FAULT = re.compile(
    r"([a-z-]{1,40})@([A-Za-z][A-Za-z0-9._-]{0,62}(?:\[[0-9]{1,6}-[0-9]{1,6}\])?)(?:/([^,]{1,80}))?((?:,.*)?)"
)
_WHOLE = re.compile(r"[0-9]{1,15}")
_WEIGHTED = re.compile(r"(.+)=([0-9]+(?:\.[0-9]+)?)")


def document(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what a file would say that describes the same site. Raises UserError."""
    nodes, width = arguments.nodes or 8, arguments.nodes_per_rack or 4
    full, rest = divmod(nodes, width)
    rack = {} if arguments.rack_budget is None else {"power_budget": arguments.rack_budget}
    site: dict[str, object] = {
        "nodes_per_job": arguments.nodes_per_job or 1,
        "racks": [
            {"count": count, "nodes": size, **rack} for count, size in ((full, width), (1, rest)) if count * size
        ],
        "faults": [_fault(text) for text in arguments.fault or ()],
    }
    options = {name: getattr(arguments, name) for name in ("cluster", "seed", "topology")}
    site.update({name: value for name, value in options.items() if value is not None})
    if arguments.scenario:
        site["scenario"] = [_parse_weight(text) for text in arguments.scenario]
    return site


def _parse_weight(text: str) -> dict[str, object]:
    match = _WEIGHTED.fullmatch(text)
    return {"scenario": text} if match is None else {"scenario": match[1], "weight": float(match[2])}


def _fault(text: str) -> dict[str, object]:
    """Return a fault such as straggler@node17/3,at=2m: its kind, its node or rack, its GPU or port, and its keys."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise UserError(
            f"--fault: {shown(text)} is not KIND@PLACE[/PART][,KEY=VALUE...]; such as straggler@node17/3,at=2m"
        )
    kind, place, part, rest = match.groups()
    fault: dict[str, object] = {"kind": kind, "node" if place.startswith("node") else "rack": place}
    targets = FAULTS[kind].targets if kind in FAULTS else ()
    if part is not None:
        fault["gpu" if part[0].isdigit() or part == "all" else "port"] = int(part) if _WHOLE.fullmatch(part) else part
    elif targets[:1] == ("gpu",) and ",gpu=" not in rest:
        fault["gpu"] = 0
    for item in rest.split(",")[1:]:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise UserError(f"--fault: {shown(item)} of {shown(text)} is not KEY=VALUE; such as at=2m")
        fault[key] = _scalar(value)
    return fault


def _scalar(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _WHOLE.fullmatch(text) else text


MOST_NODES = 20_000
MOST_OF_RACK = 256
"""Most nodes of one rack: each shows which of the others answer."""
_RANGE = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,62})\[([0-9]{1,6})-([0-9]{1,6})\]")
_PREFIX = re.compile(r"[A-Za-z](?:[A-Za-z0-9._-]{0,30}[A-Za-z._-])?")
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,63}")
_LOSSES = {loss.value: loss for loss in OutageCause}
_WEIGHT = quantity({"%": 0.01}, "3", low=1e-9)
_DEFAULTS: dict[str, object] = {"topology": "dgx-h100", "scenario": "healthy-training"}

Keys = Mapping[str, object]


def read_site(path: Path) -> SimulatedSite:
    """Return the site of a file. Raises ScenarioError."""
    return SiteReader(parsed(path), path.parent).site()


class SiteReader(ScenarioReader):
    """Reads one site. All methods raise ScenarioError."""

    def __init__(self, file: YamlFile, folder: Path) -> None:
        """Scenarios that are files are looked for in `folder`."""
        super().__init__(file)
        self._folder = folder
        self._scenarios: dict[tuple[str, str], Scenario] = {}
        self._nodes: dict[str, SiteNode] = {}
        self._racks: dict[str, SiteRack] = {}

    def site(self) -> SimulatedSite:
        allowed = ("description", "cluster", "seed", "topology", "scenario", "nodes_per_job", "racks", "jobs", "faults")
        keys = self.mapping(self.file.raw, "", allowed, ("racks",))
        cluster = str(self.value(keys, "cluster", "", Parameter(text, "sim")))
        if not _LABEL.fullmatch(cluster):
            problem = f"{shown(cluster)} is not a valid name of a cluster"
            self.fail("cluster", f"{problem}; give letters, digits, dots and dashes")
        seed = self.seed(keys)
        nodes, racks = build_nodes(self._plans(keys), seed)
        self._nodes, self._racks = {node.name: node for node in nodes}, {rack.name: rack for rack in racks}
        spans = [self._placed_job(raw, path) for path, raw in self.items(keys.get("jobs"), "jobs")]
        width = int(self.number(keys, "nodes_per_job", "", Parameter(whole(1, MOST_NODES), 1.0)))
        if width > len(nodes):
            self.fail("nodes_per_job", f"{width} is more than the site has: {len(nodes)} nodes")
        spans += assign_scenarios(nodes, width, seed)
        outages: list[Outage] = []
        for path, raw in self.items(keys.get("faults"), "faults"):
            outages += self._placed_fault(raw, path)
        for span in spans:
            link_waiting_nodes(span, outages)
        return SimulatedSite(cluster, tuple(nodes), tuple(racks), tuple(outages))

    def _plans(self, keys: Keys) -> list[RackPlan]:
        plans = [self._plan(raw, path, keys) for path, raw in self.items(keys["racks"], "racks")]
        nodes = sum(plan.count * plan.nodes for plan in plans)
        if not 1 <= nodes <= MOST_NODES:
            self.fail("racks", f"they have {nodes} nodes together; give 1 to {MOST_NODES}")
        return plans

    def _plan(self, raw: object, path: str, site: Keys) -> RackPlan:
        keys = self.mapping(raw, path, ("name", "count", "nodes", "topology", "scenario", "power_budget"))
        of_all = {key: site.get(key, default) for key, default in _DEFAULTS.items() if key not in keys}
        name = self.value({**of_all, **keys}, "topology", "" if "topology" in of_all else path, _TOPOLOGY)
        topology = TOPOLOGIES[str(name)]
        prefix = str(self.value(keys, "name", path, Parameter(text, "r")))
        if not _PREFIX.fullmatch(prefix):
            self.fail(f"{path}.name", f"{shown(prefix)}: give letters; racks are numbered, so no digit may be the last")
        where = "scenario" if "scenario" in of_all else f"{path}.scenario"
        return RackPlan(
            prefix,
            int(self.number(keys, "count", path, Parameter(whole(1, MOST_NODES), 1.0))),
            int(self.number(keys, "nodes", path, Parameter(whole(1, MOST_OF_RACK), 4.0))),
            topology,
            tuple(self._dealt_scenarios({**of_all, **keys}["scenario"], where, topology)),
            self.number(keys, "power_budget", path, Parameter(watts, 0.0)) or None,
        )

    def _dealt_scenarios(self, raw: object, path: str, topology: MachineType) -> Iterator[tuple[Scenario, float]]:
        """Yield the scenarios that are dealt out: one by its name, or a list with weights."""
        if isinstance(raw, str):
            yield self._load_named(raw, path, topology), 1.0
            return
        if not self.sequence(raw, path):
            self.fail(path, "names no scenario; give the name of one, a file, or a list of {scenario, weight}")
        for here, item in self.items(raw, path):
            keys = self.mapping(item, here, ("scenario", "weight"), ("scenario",))
            name = str(self.value(keys, "scenario", here, Parameter(text, None)))
            scenario = self._load_named(name, f"{here}.scenario", topology)
            yield scenario, self.number(keys, "weight", here, Parameter(_WEIGHT, 1.0))

    def _load_named(self, name: str, path: str, topology: MachineType) -> Scenario:
        """Return a scenario on this machine, read once."""
        key = (name, topology.name)
        if key not in self._scenarios:
            try:
                self._scenarios[key] = load_scenario(name, topology, self._folder)
            except ScenarioError as error:
                self.fail(path, str(error))
        return self._scenarios[key]

    def _placed_job(self, raw: object, path: str) -> Span:
        """Return a job, on the nodes that it names: their other work is what other jobs give them."""
        if not isinstance(raw, dict) or "nodes" not in raw:
            self.fail(f"{path}.nodes", "is missing: name the nodes of the job, or all")
        rest = {key: value for key, value in raw.items() if key != "nodes"}
        by_machine: dict[str, ScenarioJob] = {}
        span = []
        for node in self._named_nodes(raw["nodes"], f"{path}.nodes"):
            machine = node.plan.topology
            if machine.name not in by_machine:
                by_machine[machine.name] = self.job(rest, path, machine)
            jobs = (*node.scenario.jobs, by_machine[machine.name])
            self.apart(jobs, path)
            node.scenario = replace(node.scenario, name="jobs of the site", jobs=jobs)
            span.append((node, len(jobs) - 1))
        return span

    def _placed_fault(self, raw: Any, path: str) -> Iterator[Outage]:
        """Yield a fault at the nodes that it names. Some take whole nodes from the site: these are given back."""
        kind = self.kind(raw, path, (*_LOSSES, *FAULTS))
        nodes = self._places(raw, path)
        rest = {key: value for key, value in raw.items() if key not in ("node", "rack")}
        if kind in _LOSSES:
            keys = self.mapping(rest, path, ("kind", "at", "duration", "repeat"))
            yield Outage(_LOSSES[kind], self.window(keys, path), frozenset(node.name for node in nodes))
            return
        by_machine: dict[str, ScenarioFault] = {}
        for node in nodes:
            machine = node.plan.topology
            if machine.name not in by_machine:
                by_machine[machine.name] = self.fault(rest, path, machine)
            node.scenario = replace(node.scenario, faults=(*node.scenario.faults, by_machine[machine.name]))

    def _places(self, keys: Keys, path: str) -> list[SiteNode]:
        """Return the nodes that the keys `node` and `rack` name: one of the two has to be there."""
        place_keys = [word for word in ("node", "rack") if word in keys]
        if len(place_keys) != 1:
            self.fail(path, "names no place; give node or rack" if not place_keys else "name node or rack, not both")
        if place_keys == ["node"]:
            return self._named_nodes(keys["node"], f"{path}.node")
        names = self._names(keys["rack"], f"{path}.rack", self._racks, "rack")
        return [self._nodes[node] for name in names for node in self._racks[name].nodes]

    def _named_nodes(self, raw: object, path: str) -> list[SiteNode]:
        return [self._nodes[name] for name in self._names(raw, path, self._nodes, "node")]

    def _names(self, raw: object, path: str, items: Keys, kind: str) -> list[str]:
        """Return the names that are in the site, of one name or range, a list of these, or `all`."""
        if raw == "all":
            return list(items)
        names: dict[str, None] = {}
        for part in raw if isinstance(raw, list) else [raw]:
            for name in self._spelled_out(part, path, kind, len(items)):
                if name not in items:
                    self.fail(path, f"there is no {kind} {shown(name)} in this site{meant(name, items)}")
                names[name] = None
        return list(names)

    def _spelled_out(self, part: object, path: str, kind: str, most: int) -> list[str]:
        example = f"{kind}3, {kind}[3-7]" if kind == "node" else "r3, r[3-7]"
        if not isinstance(part, str):
            self.fail(path, f"expected a name, a range or a list of these, such as {example}, or all")
        match = _RANGE.fullmatch(part)
        if match is None:
            return [part]
        first, last = int(match[2]), int(match[3])
        if not first <= last < first + most:
            self.fail(path, f"{shown(part)} is not a range within this site, which has {most} {kind}s")
        return [f"{match[1]}{number}" for number in range(first, last + 1)]


_TOPOLOGY = Parameter(choice(TOPOLOGIES), None)
