"""Which GPUs the active test may load: those that nobody uses. A job that runs is never disturbed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.backends.protocol import GpuProcess
from agent.health.seen_node import SeenNode
from agent.lib import textfile
from agent.model import Gpu, Snapshot

MEMORY_USED = "coldplate_gpu_memory_used_bytes"
MIG = "coldplate_gpu_mig_info"
IDLE_BYTES = 2 * 2**30
"""Memory in use on a GPU that computes nothing: what the driver keeps for itself is counted, and is up to 1 GiB."""


def divided(
    snapshot: Snapshot, processes: Mapping[Gpu, Sequence[GpuProcess]], devices: str, force: bool
) -> tuple[list[Gpu], dict[Gpu, str]]:
    """The GPUs that may be tested, and why others are not; `force` takes those that are in use as well."""
    view = SeenNode(snapshot, (MEMORY_USED, MIG), devices)
    used = view.of_gpus(MEMORY_USED)
    split = {each.entity for each in view.all(MIG)}
    idle, others = [], {}
    for gpu in view.answering:
        running = processes.get(gpu, ())
        if not gpu.uuid:
            others[gpu] = "it has not said who it is"
        elif gpu in split:
            others[gpu] = "it is divided into MIG instances"
        elif running and not force:
            others[gpu] = f"process {running[0].pid} computes on it"
        elif used.get(gpu, 0.0) > IDLE_BYTES and not force:
            others[gpu] = f"{used[gpu] / 2**30:.1f} GiB of its memory are in use"
        else:
            idle.append(gpu)
    return idle, others


def near_cpus(view: SeenNode, gpus: Sequence[Gpu], sysfs: Path) -> dict[Gpu, str]:
    """The processors on the GPU's side of the machine, as Linux lists them, where it tells."""
    slots = view.slots()
    found = {}
    for gpu in gpus:
        with contextlib.suppress(textfile.ReadError):
            path = sysfs / "bus/pci/devices" / slots.get(gpu, "") / "local_cpulist"
            found[gpu] = textfile.read_text(path, 4096).strip()
    return found
