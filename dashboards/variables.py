"""The variables of the boards, how they narrow a query, and the links that carry them from one board to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BOARDS = {
    "fleet": "Fleet",
    "rack": "Rack",
    "node": "Node",
    "job": "Job",
    "fabric": "Fabric",
    "agents": "coldplate itself",
}
"""The boards in the order in which they are linked, with their titles."""
UID = "coldplate-{}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that is filled by a query about one label."""

    name: str
    label: str
    title: str
    query: str
    many: bool
    all_value: str | None = ".*"

    @property
    def matcher(self) -> str:
        return f'{self.label}=~"${self.name}"' if self.many else f'{self.label}="${self.name}"'


CLUSTER = Variable("cluster", "cluster", "Cluster", "label_values(coldplate_build_info, cluster)", many=True)
RACKS_QUERY = 'label_values(coldplate_rack_nodes_expected{cluster=~"$cluster"}, rack)'
RACKS = Variable("rack", "rack", "Rack", RACKS_QUERY, many=True)
RACK = Variable("rack", "rack", "Rack", RACKS_QUERY, many=False)
NODES_QUERY = 'label_values(coldplate_build_info{cluster=~"$cluster"}, instance)'
NODES = Variable("node", "instance", "Node", NODES_QUERY, many=True)
NODE = Variable("node", "instance", "Node", NODES_QUERY, many=False)
GPU = Variable("gpu", "gpu", "GPU", 'label_values(coldplate_gpu_up{instance="$node"}, gpu)', many=True)
JOB_QUERY = 'label_values(coldplate_gpu_job_info{cluster=~"$cluster", job_id!=""}, job_id)'
JOB = Variable("job", "job_id", "Job", JOB_QUERY, many=False)

VARIABLES = {
    "fleet": (CLUSTER, RACKS),
    "rack": (CLUSTER, RACK),
    "node": (CLUSTER, NODE, GPU),
    "job": (CLUSTER, JOB),
    "fabric": (CLUSTER, NODES),
    "agents": (CLUSTER, NODES),
}


def matchers(variables: Iterable[Variable]) -> dict[str, str]:
    """By label, how each variable narrows a query."""
    return {each.label: each.matcher for each in variables}


def carried(source: str, target: str) -> list[str]:
    """The variables that a link may carry: those of both boards, but never many values to a board that takes one."""
    there = {each.name: each for each in VARIABLES[target]}
    return [each.name for each in VARIABLES[source] if each.name in there and (there[each.name].many or not each.many)]


def link(source: str, target: str, **values: str) -> str:
    """The address of a board with the variables that go along; `values` take a variable's place."""
    kept = [name for name in carried(source, target) if name not in values]
    parts = ["${datasource:queryparam}", *(f"${{{name}:queryparam}}" for name in kept)]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    return f"/d/{UID.format(target)}?{'&'.join(parts)}"
