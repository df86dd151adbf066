"""What a node of one kind should be. Numbers are in the unit that their name ends in, as people write them."""

from __future__ import annotations

from typing import Annotated

import msgspec

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""How far an adapter is from a GPU, nearest first, in the words of `nvidia-smi topo`."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class NodeExpectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts of one kind of node. What is None is not expected of it, and not checked.

    `models` are the names under which the driver shows the GPUs. `gpu_memory_gib` and the power limit are the least
    that a GPU must have, `gpu_temperature_margin_celsius` the least that it must stay below its slowdown.
    `nvlinks` counts those of one GPU, and `nvlink_gigabytes_per_second` is one link's speed in one direction. `fabric`:
    the GPUs are registered with the NVLink fabric, all in one domain. `ports` are RDMA ports (InfiniBand or RoCE)
    that must be active at the rate, others may be there beside them. `hca_distances` are those at which a GPU may have
    its nearest adapter; `nearest_hcas` names them by the GPU's PCI address.
    """

    description: Word
    models: tuple[Word, ...] = ()
    gpus: Count | None = None
    gpu_memory_gib: Amount | None = None
    gpu_power_limit_watts: Amount | None = None
    gpu_temperature_margin_celsius: float | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    pcie_generation: Count | None = None
    pcie_width: Count | None = None
    nvlinks: Count | None = None
    nvlink_gigabytes_per_second: Amount | None = None
    fabric: bool | None = None
    ports: Count | None = None
    port_gigabits_per_second: Amount | None = None
    hca_distances: tuple[Word, ...] | None = None
    nearest_hcas: dict[Word, tuple[Word, ...]] | None = None
    topology: Word | None = None


class TopologyFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How nodes are put together. `nodes` and `gpus` are those of one rack, `unit_nodes` those of a scalable unit.

    `nvlink_domains` is how many NVLink domains the GPUs of a rack are in, and `links_per_gpu` how many links each has
    into its own; None where every node is a domain of its own.
    """

    description: Word
    nodes: Count
    gpus: Count
    unit_nodes: Count | None = None
    nvlink_domains: Count | None = None
    links_per_gpu: Count | None = None


class Expected(msgspec.Struct, frozen=True):
    """The expectations that apply to a node, under a name for people, and the topology that they name."""

    name: str
    node: NodeExpectations
    topology: TopologyFacts | None = None


GENERIC = Expected("generic", NodeExpectations("what holds for any node with GPUs"))
"""For a node of no known kind: nothing lost, nothing broken, and all GPUs alike."""
