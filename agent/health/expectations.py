"""What a node of one kind should be, and the YAML files that say so: those that are shipped, and a site's own.

Numbers are in the unit that their name ends in, as people write them.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from agent.lib import yamltree
from agent.lib.typed_yaml import YamlFile
from agent.lib.wording import meant, shown

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Distances of an adapter from a GPU, nearest first, by the names of `nvidia-smi topo`."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class NodeExpectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts of one kind of node. A fact without a value is not expected, and not checked.

    `models` are the names under which the driver shows the GPUs. `gpu_memory_gib` and the power limit are the least
    that a GPU must have.
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


NODES_OF_RACK = {"dgx-superpod": 4, "gb200-nvl72": 18}
"""Nodes of one rack, by topology.

`dgx-superpod`: NVIDIA DGX SuperPOD, Reference Architecture, DGX H100 (not verified). Sites put other numbers into their
racks, so no shipped expectation names it. `gb200-nvl72`: NVIDIA DGX GB200 User Guide, "Hardware", as others quote it.
"""


class Expected(msgspec.Struct, frozen=True):
    """The expectations that apply to a node, under a name for people."""

    name: str
    node: NodeExpectations


GENERIC = Expected("generic", NodeExpectations("what holds for any node with GPUs"))
"""For a node of no known kind: nothing lost, nothing broken, and all GPUs alike."""


SHIPPED = Path(__file__).parent / "expectations"
LARGEST = 64 * 1024
"""Bytes of a file."""


class ExpectationError(Exception):
    """Expectations cannot be used; the text names the file, the key and the remedy."""


def load_expectations(name_or_path: str, folder: Path = Path()) -> Expected:
    """Load shipped expectations by their name, or a file: what has a slash, or ends in .yaml or .yml.

    A relative path begins at `folder`. Raises ExpectationError.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = folder / name_or_path
        return _complete(path, str(path))
    names = shipped_names()
    if name_or_path not in names:
        problem = f"there are no shipped expectations {shown(name_or_path)}{meant(name_or_path, names)}"
        raise ExpectationError(f"{problem}; the name of a file needs a slash, or .yaml at its end")
    return _complete(SHIPPED / f"{name_or_path}.yaml", name_or_path)


def shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


@cache
def _load_shipped() -> tuple[Expected, ...]:
    return tuple(load_expectations(name) for name in shipped_names())


def recognise(models: Sequence[str], gpus: int) -> Expected:
    """Return the shipped expectations for a node with these GPUs, else the generic ones.

    `models` are the names of the GPUs that said theirs, `gpus` is how many there are, with those that are silent.
    A node that misses fewer than half of its GPUs is still recognised: boards with half as many are products as well.
    """
    for expected in _load_shipped():
        number = expected.node.gpus or 0
        if models and set(models) <= set(expected.node.models) and number < 2 * gpus <= 2 * number:
            return expected
    return GENERIC


def _complete(path: Path, name: str) -> Expected:
    file = YamlFile.read(path, LARGEST, ExpectationError, yamltree.Bounds(depth=8, nodes=5_000))
    node = file.convert(NodeExpectations)
    for distance in node.hca_distances or ():
        if distance not in DISTANCES:
            file.fail("hca_distances", f"{shown(distance)} is not a distance; give some of {', '.join(DISTANCES)}")
    if node.topology is not None and node.topology not in NODES_OF_RACK:
        file.fail("topology", f"unknown name {shown(node.topology)}{meant(node.topology, NODES_OF_RACK)}")
    return Expected(name, node)
