"""Which GPUs are present: a series for each GPU ever seen, so that one that falls silent shows as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from agent.backends.protocol import Unidentified
from agent.catalogue import BY_NAME
from agent.model import Frame, Framer, Gpu, GpuIdentity, Node, Reading, Series
from agent.sampler.inventory import Inventory

UP = BY_NAME["coldplate_gpu_up"]
AGE = BY_NAME["coldplate_gpu_sample_age_seconds"]
INFO = BY_NAME["coldplate_gpu_info"]
REPLACED = BY_NAME["coldplate_gpu_replaced_info"]
EXPECTED = Series(BY_NAME["coldplate_gpus_expected"], Node())


def stranger(missing: Unidentified) -> Gpu:
    """A GPU of which only the index is known."""
    return Gpu(missing.index, "")


@dataclass(frozen=True, slots=True)
class _Tombstone:
    """The series that a GPU keeps as long as it is in the inventory."""

    uuid: str
    up: Series
    age: Series
    facts: tuple[Series, ...]


class Presence:
    """Follows each GPU's last good sample. Times in seconds on the monotonic clock."""

    def __init__(self, inventory: Inventory, gpus_on_bus: int = 0) -> None:
        self._inventory = inventory
        self._on_bus = gpus_on_bus
        self._stones: dict[GpuIdentity, _Tombstone] = {}
        self._good: dict[str, float] = {}
        self._lost: set[str] = set()
        self.strangers: Sequence[Unidentified] = ()
        """GPUs that the driver counts but that are not known: they have not identified themselves."""
        self.paused = False
        """Whether the driver has been released on request: which GPUs are up is not known, and not an alarm."""
        self._framer = Framer()

    def good(self, uuid: str, at: float) -> None:
        """Record that the GPU gave a complete fast sample at `at`."""
        self._good[uuid] = at
        self._lost.discard(uuid)

    def last_good(self, uuid: str) -> float | None:
        """When the GPU, or another device of the worker, gave its last complete fast sample."""
        return self._good.get(uuid)

    def lost(self, uuid: str) -> None:
        """Record that the driver says that the GPU is gone or needs a reset."""
        self._lost.add(uuid)

    def rest(self) -> None:
        """Forget all samples, since no GPU is read for a while. Afterwards they start like new ones."""
        self.paused = True
        self._good.clear()
        self._lost.clear()

    def forget(self, known: AbstractSet[str]) -> None:
        """Forget the devices that are not among these."""
        self._good = {uuid: at for uuid, at in self._good.items() if uuid in known}
        self._lost &= known
        self._stones = {identity: stone for identity, stone in self._stones.items() if identity.gpu.uuid in known}

    def is_up(self, uuid: str, now: float, patience: float) -> bool:
        good = self._good.get(uuid)
        return good is not None and uuid not in self._lost and now - good <= patience

    def frame(self, now: float, patience: float, expected: int | None) -> Frame:
        """Presence, age and facts of every known GPU, and how many there should be."""
        return self._framer.frame(self._readings(now, patience, expected))

    def _readings(self, now: float, patience: float, expected: int | None) -> Iterator[Reading]:
        seen = 0
        for slot, identity in self._inventory.gpus.items():
            stone = self._stone(slot, identity)
            good = self._good.get(stone.uuid)
            seen += 1
            if not self.paused:
                yield Reading(stone.up, int(self.is_up(stone.uuid, now, patience)))
                if good is not None:
                    yield Reading(stone.age, max(now - good, 0.0))
            yield from (Reading(fact, 1) for fact in stone.facts)
        if self.paused:
            return
        for missing in self.strangers:
            seen += 1
            yield Reading(Series(UP, stranger(missing)), 0)
        if expected is None and (seen or self._on_bus):
            expected = seen or self._on_bus  # the driver is missing, or shows none of those on the bus
        if expected is not None:
            yield Reading(EXPECTED, expected)

    def _stone(self, slot: str, identity: GpuIdentity) -> _Tombstone:
        stone = self._stones.get(identity)
        if stone is None:
            stone = self._stones[identity] = self._carve(slot, identity)
        return stone

    def _carve(self, slot: str, identity: GpuIdentity) -> _Tombstone:
        gpu: Gpu = identity.gpu
        own = (("slot", slot), ("serial", identity.serial), ("model", identity.model))
        facts = [Series(INFO, gpu, own + identity.facts)]
        if slot in self._inventory.replaced:
            uuid, serial = self._inventory.replaced[slot]
            labels = (("slot", slot), ("serial", identity.serial), ("previous_uuid", uuid), ("previous_serial", serial))
            facts.append(Series(REPLACED, gpu, labels))
        return _Tombstone(gpu.uuid, Series(UP, gpu), Series(AGE, gpu), tuple(facts))
