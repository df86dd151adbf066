"""Which of the pods that the kubelet lists with the same device holds it now. Pure.

A kubelet lists a pod that has ended until it is deleted, and may have given its device to the next one meanwhile (its
device manager takes devices back from pods that ended; kubernetes/kubernetes issue 119423). A device of a device plugin
belongs to one pod at a time: of several with the same, the last that received it holds it. Claims of dynamic resource
allocation may be shared, and are left unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agent.backends.jobs.podlogs import Name
from agent.backends.jobs.pods import PodDevice


class Tenants:
    """Remembers in which look each pod was first listed with each device."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Name], int] = {}
        self._look = 0

    @staticmethod
    def contested(listed: Sequence[PodDevice]) -> set[Name]:
        """The pods that are listed with a device that another pod is listed with, too."""
        by_device: dict[str, set[Name]] = {}
        for each in listed:
            if not each.shareable:
                by_device.setdefault(each.device, set()).add((each.namespace, each.pod))
        return {name for names in by_device.values() if len(names) > 1 for name in names}

    def present(
        self, listed: Sequence[PodDevice], working: Collection[Name], born: Mapping[Name, float]
    ) -> list[PodDevice]:
        """The pods that hold their devices now.

        `working` are pods that have processes on a GPU; `born` is when pods were created, as far as that is known. If
        nothing decides between two pods, both stay.
        """
        self._look += 1
        named = [(each, (each.device, (each.namespace, each.pod))) for each in listed]
        self._seen = {key: self._seen.get(key, self._look) for _, key in named}
        latest: dict[str, tuple[bool, int, float]] = {}
        for _, (device, name) in named:
            order = self._order(device, name, working, born)
            latest[device] = max(latest.get(device, order), order)
        return [
            each
            for each, (device, name) in named
            if each.shareable or self._order(device, name, working, born) == latest[device]
        ]

    def _order(
        self, device: str, name: Name, working: Collection[Name], born: Mapping[Name, float]
    ) -> tuple[bool, int, float]:
        """Sorts pods by when they got a device, the latest highest; a pod with processes on it is above all others."""
        return name in working, self._seen[device, name], born.get(name, 0.0)
