"""The nodes below /dev that the agent's worker opens, and whether its user may."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agent.backends.sysfs import list_names
from agent.commands.doctor.agent_user import READ, WRITE
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.commands.doctor.subjects.nvidia_driver import module_version

RANK = 40
DEVICES = Diagnoses("devices")
GPU = re.compile(r"nvidia[0-9]+")


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """All of them at once: a node of /dev is looked at, and never opened."""
    if node.has_driver:
        yield DEVICES.check(node.root / "dev", _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    if not module_version(node):
        return
    dev = node.root / "dev"
    gpus = [name for name in list_names(dev) if GPU.fullmatch(name)]
    there = [*gpus, *(name for name in ("nvidiactl",) if (dev / name).exists())]
    if len(there) == len(gpus) or not gpus or len(gpus) < len(node.gpus):
        yield DEVICES.fail(
            f"{dev} has {len(gpus)} GPUs{'' if len(there) > len(gpus) else ' and no nvidiactl'}, the PCI bus has "
            f"{len(node.gpus)}: the agent's unit may not make the nodes",
            "nvidia-modprobe -c 0 -u; systemctl enable --now nvidia-persistenced makes them at each boot",
        )
    refused = [name for name in there if not node.user.may(READ | WRITE, (dev / name).stat())]
    if refused:
        yield DEVICES.fail(
            f"{node.user.name} may not open {', '.join(f'{dev}/{name}' for name in refused)}",
            "set NVreg_DeviceFileMode=0666 for the module nvidia, or SupplementaryGroups= in the unit",
        )
    elif gpus:
        yield DEVICES.ok(f"{node.user.name} may open {', '.join(there)}")
