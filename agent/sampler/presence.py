"""Which GPUs are present: a series for each GPU ever seen, so that one that falls silent shows as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from agent.backends.protocol import Unidentified
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnLayout
from agent.model import Frame, Gpu, GpuIdentity, Node, Series
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
    ones: tuple[int, ...]
    """The values of the facts."""


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
        self._layout = OwnLayout()

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
        gpus = self._inventory.gpus.items()
        known = [(self._stone(slot, identity), self._good.get(identity.gpu.uuid)) for slot, identity in gpus]
        if self.paused:
            facts = [stone for stone, _ in known]
            ones = [one for stone in facts for one in stone.ones]
            return self._layout.frame(
                ("paused", *facts), lambda: (each for stone in facts for each in stone.facts), ones
            )
        if expected is None and not known and not self.strangers and self._on_bus:
            expected = self._on_bus  # the driver is missing, or shows none of them
        shape = (*((stone, good is None) for stone, good in known), *self.strangers, expected is None)
        values: list[float] = []
        for stone, good in known:
            values.append(int(self.is_up(stone.uuid, now, patience)))
            if good is not None:
                values.append(max(now - good, 0.0))
            values.extend(stone.ones)
        values.extend(0 for _ in self.strangers)
        seen = len(known) + len(self.strangers)
        if seen or expected is not None:
            values.append(expected if expected is not None else seen)
        return self._layout.frame(shape, lambda: self._series(known, expected), values)

    def _series(self, known: Sequence[tuple[_Tombstone, float | None]], expected: int | None) -> Iterator[Series]:
        """Those of `frame`, in the order of its values."""
        for stone, good in known:
            yield stone.up
            if good is not None:
                yield stone.age
            yield from stone.facts
        yield from (Series(UP, stranger(each)) for each in self.strangers)
        if known or self.strangers or expected is not None:
            yield EXPECTED

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
        return _Tombstone(gpu.uuid, Series(UP, gpu), Series(AGE, gpu), tuple(facts), (1,) * len(facts))
