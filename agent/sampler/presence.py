"""Which GPUs are here: a series for each GPU that ever was, so that one that falls silent shows as data."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from agent.backends.protocol import Unidentified
from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Node, Reading, Series
from agent.sampler.inventory import Inventory

UP = BY_NAME["coldplate_gpu_up"]
AGE = BY_NAME["coldplate_gpu_sample_age_seconds"]
INFO = BY_NAME["coldplate_gpu_info"]
REPLACED = BY_NAME["coldplate_gpu_replaced_info"]
EXPECTED = Series(BY_NAME["coldplate_gpus_expected"], Node())


def stranger(missing: Unidentified) -> Gpu:
    """A GPU of which the index is all that is known."""
    return Gpu(missing.index, "")


@dataclass(frozen=True, slots=True)
class _Tombstone:
    """The series that a GPU keeps as long as the inventory knows it."""

    up: Series
    age: Series
    facts: tuple[Reading, ...]


class Presence:
    """Follows each GPU's last good sample. Times in seconds on the monotonic clock."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._stones: dict[GpuIdentity, _Tombstone] = {}
        self._good: dict[str, float] = {}
        self._lost: set[str] = set()
        self.strangers: Sequence[Unidentified] = ()
        """GPUs that the driver counts and that nobody knows: they have not said who they are."""
        self._strange: dict[str, Reading] = {}

    def good(self, uuid: str, at: float) -> None:
        """The GPU gave a whole fast sample at `at`."""
        self._good[uuid] = at
        self._lost.discard(uuid)

    def last_good(self, uuid: str) -> float | None:
        """When the GPU, or another device of the worker, gave its last whole fast sample."""
        return self._good.get(uuid)

    def lost(self, uuid: str) -> None:
        """The driver says that the GPU is gone or needs a reset."""
        self._lost.add(uuid)

    def forget(self, known: AbstractSet[str]) -> None:
        """Nobody knows the devices any more that are not among these."""
        self._good = {uuid: at for uuid, at in self._good.items() if uuid in known}
        self._lost &= known
        self._stones = {identity: stone for identity, stone in self._stones.items() if identity.gpu.uuid in known}

    def is_up(self, uuid: str, now: float, patience: float) -> bool:
        good = self._good.get(uuid)
        return good is not None and uuid not in self._lost and now - good <= patience

    def readings(self, now: float, patience: float, expected: int | None) -> list[Reading]:
        """Presence, age and facts of every GPU known, and how many there should be."""
        gpus = self._inventory.gpus
        rows: list[Reading] = []
        for slot, identity in gpus.items():
            stone = self._stones.get(identity)
            if stone is None:
                stone = self._stones[identity] = self._carve(slot, identity)
            uuid = identity.gpu.uuid
            rows.append(Reading(stone.up, int(self.is_up(uuid, now, patience))))
            if uuid in self._good:
                rows.append(Reading(stone.age, max(now - self._good[uuid], 0.0)))
            rows.extend(stone.facts)
        rows.extend(self._strange.get(each.index) or self._show(each) for each in self.strangers)
        seen = len(gpus) + len(self.strangers)
        if seen or expected is not None:
            rows.append(Reading(EXPECTED, expected if expected is not None else seen))
        return rows

    def _show(self, missing: Unidentified) -> Reading:
        """The reading of a GPU of which the index is all that is known; made once."""
        reading = self._strange[missing.index] = Reading(Series(UP, stranger(missing)), 0)
        return reading

    def _carve(self, slot: str, identity: GpuIdentity) -> _Tombstone:
        gpu: Gpu = identity.gpu
        own = (("slot", slot), ("serial", identity.serial), ("model", identity.model))
        facts = [Reading(Series(INFO, gpu, own + identity.facts), 1)]
        if slot in self._inventory.replaced:
            uuid, serial = self._inventory.replaced[slot]
            labels = (("slot", slot), ("serial", identity.serial), ("previous_uuid", uuid), ("previous_serial", serial))
            facts.append(Reading(Series(REPLACED, gpu, labels), 1))
        return _Tombstone(Series(UP, gpu), Series(AGE, gpu), tuple(facts))
