"""Finds a GPU, or one of its MIG instances, by the various names that other programs use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.model import Gpu, Reading

WHOLE = "0"
"""The `mig` of a job that has the whole GPU. Also the number of the one instance that takes the whole GPU."""
UNKNOWN = ""
"""The `mig` of a process on a GPU with MIG whose instance the driver does not report."""

_GKE = re.compile(r"nvidia([0-9]+)(?:/gi([0-9]+))?(?:/vgpu[0-9]+)?")
"""Device ids of Google's device plugin (also read by dcgm-exporter)."""

_CLAIMED = re.compile(r"gpu-([0-9]+)(-mig-[0-9-]+)?")
"""Devices of dynamic resource allocation, by minor number."""


class Slot(NamedTuple):
    """What a job can hold: a GPU, or one MIG instance of it."""

    gpu: Gpu
    mig: str = WHOLE


def mig_slots(readings: Iterable[Reading]) -> dict[str, Slot]:
    """The slot of each MIG device by its UUID, from coldplate_gpu_mig_info in a snapshot."""
    found = {}
    for reading in readings:
        if reading.series.metric.name == "coldplate_gpu_mig_info":
            labels = dict(reading.series.labels)
            gpu = reading.series.entity
            if isinstance(gpu, Gpu):
                found[labels.get("mig_uuid", "")] = Slot(gpu, labels.get("gpu_instance", UNKNOWN))
    return found


class GpuSlots:
    """The GPUs of the node in one look. `mig` has the slots of its MIG devices by UUID."""

    def __init__(self, gpus: Iterable[Gpu], mig: Mapping[str, Slot]) -> None:
        self.minors: Mapping[int, str] = {}
        """UUIDs of GPUs by the minor numbers of their device files, once they have been needed."""
        self._slots: dict[str, Slot] = dict(mig)
        self._divided = {slot.gpu for slot in mig.values()}
        self._by_index: dict[str, Gpu] = {}
        for gpu in gpus:
            self._by_index[gpu.index] = gpu
            self._slots[gpu.uuid] = self._slots[gpu.index] = Slot(gpu)

    def find(self, name: str) -> Slot | None:
        """The slot of an index, UUID, MIG UUID or device plugin's id, with or without a shared replica's number."""
        name = name.partition("::")[0]
        slot = self._slots.get(name)
        if slot is None and (match := _GKE.fullmatch(name)):
            gpu = self._by_index.get(match[1])
            slot = Slot(gpu, match[2] or WHOLE) if gpu is not None else None
        if slot is None and (match := _CLAIMED.fullmatch(name)):
            whole = self._slots.get(self.minors.get(int(match[1]), ""))
            slot = Slot(whole.gpu, UNKNOWN) if whole is not None and match[2] else whole
        return slot

    def of_process(self, gpu: Gpu, instance: int | None) -> Slot:
        """Where a process computes, according to the driver."""
        if instance is not None:
            return Slot(gpu, str(instance))
        return Slot(gpu, UNKNOWN if gpu in self._divided else WHOLE)
