"""RAPL's energy counters below /sys/class/powercap, which only root may read unless a udev rule says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.commands.doctor.agent_user import READ
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 60
RAPL = Diagnoses("processor energy")
REMEDY = "make install (70-coldplate.rules), then udevadm trigger --action=change --subsystem-match=powercap"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, where it is asked for."""
    folder = node.sysfs / "class/powercap"
    if "rapl" in node.config.backends.power:
        yield RAPL.check(folder, _look, node, folder)


def _look(node: ExaminedNode, folder: Path) -> Iterator[Diagnosis]:
    counters = sorted(folder.glob("intel-rapl:*/energy_uj"))
    refused = [path for path in counters if not node.user.may(READ, path.stat())]
    if not counters:
        yield RAPL.ok(f"no RAPL in {folder}: nothing is missed")
    elif refused:
        what = f"{node.user.name} may not read {refused[0]}" + (f" and {len(refused) - 1} more" if refused[1:] else "")
        yield RAPL.warn(f"{what}: no coldplate_node_rapl_energy_joules_total", REMEDY)
    else:
        yield RAPL.ok(f"{node.user.name} may read all {len(counters)} counters")
