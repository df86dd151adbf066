"""Which GPUs are present, and the inventory of those that belong in the node, remembered across restarts.

There is a series for each GPU ever seen, so that one that falls silent shows as data. Only an inventory can show that a
GPU is missing at boot, or name the previous GPU of a slot. It stores the identity of a GPU, never its measurements.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from agent.backends.protocol import Unidentified
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.state_files import DamagedError, read_whole, seal, set_aside, unseal
from agent.model import Frame, Gpu, GpuIdentity

log = logging.getLogger("coldplate.inventory")

FORM = "coldplate-inventory-1"
MOST = 160
"""Most GPUs that are remembered: twice as many as the largest node has. A broken driver may show others each time."""

Save = Callable[[Path, bytes], None]
"""Writes a file soon; returns at once and never raises."""


class Inventory:
    """GPUs by slot. `path` is the file that keeps them, None for none; without `save` the file does not change."""

    def __init__(self, path: Path | None, save: Save | None = None) -> None:
        self._path = path
        self._write = save
        self.gpus: dict[str, GpuIdentity] = {}
        self.replaced: dict[str, tuple[str, str]] = {}
        """By slot, the UUID and serial of the GPU that was there before."""
        if path is not None:
            self._load(path)

    def enumerate(self, present: Sequence[GpuIdentity], expected: int | None) -> None:
        """Take in what the driver shows now; `expected` is the configured number of GPUs, if any."""
        before = (dict(self.gpus), dict(self.replaced))
        for identity in present:
            self._place(identity)
        slots = {identity.slot for identity in present}
        if expected is not None and len(present) >= expected:
            for slot in [slot for slot in self.gpus if slot not in slots]:
                log.info("forgetting GPU %s: all %d GPUs that the configuration expects are present", slot, expected)
                del self.gpus[slot]
        for slot in [slot for slot in self.gpus if slot not in slots][: max(len(self.gpus) - MOST, 0)]:
            log.warning("forgetting GPU %s: more than %d have been seen", slot, MOST)
            del self.gpus[slot]
        for slot, identity in self.gpus.items():
            if slot not in slots:
                log.warning("GPU missing", extra={"facts": _facts(identity)})
        if (self.gpus, self.replaced) != before:
            self._save()

    def find(self, device: str) -> Gpu | None:
        """Return the GPU with this UUID, or with a slot that begins with this, `0000:1b:00`."""
        for slot, identity in self.gpus.items():
            if identity.gpu.uuid == device or (":" in device and slot.startswith(device.lower())):
                return identity.gpu
        return None

    def _place(self, identity: GpuIdentity) -> None:
        for slot, other in list(self.gpus.items()):
            if other.gpu.uuid == identity.gpu.uuid and slot != identity.slot:
                log.warning("GPU moved from slot %s", slot, extra={"facts": _facts(identity)})
                del self.gpus[slot]
        known = self.gpus.get(identity.slot)
        if known is not None and known.gpu.uuid != identity.gpu.uuid:
            self.replaced[identity.slot] = (known.gpu.uuid, known.serial)
            facts = {**_facts(identity), "previous_uuid": known.gpu.uuid, "previous_serial": known.serial}
            log.warning("GPU replaced", extra={"facts": facts})
        self.gpus[identity.slot] = identity

    def _load(self, path: Path) -> None:
        try:
            self._parse(unseal(FORM, read_whole(path)))
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot read the GPU inventory %s: %s; GPUs that were already missing are unknown", path, error)
        except DamagedError as error:
            self.gpus.clear()
            self.replaced.clear()
            aside = "left alone" if self._write is None else f"set aside as {set_aside(path)}"
            log.warning("the GPU inventory %s is damaged (%s); %s, starting a new one", path, error, aside)

    def _parse(self, body: bytes) -> None:
        """Take in what a file holds. Raises DamagedError."""
        try:
            document: dict[str, Any] = json.loads(body)
            for row in document["gpus"]:
                gpu = Gpu(str(row["index"]), str(row["uuid"]))
                facts = tuple((str(name), str(value)) for name, value in row["facts"])
                slot = str(row["slot"])
                self.gpus[slot] = GpuIdentity(gpu, slot, str(row["serial"]), str(row["model"]), facts)
            for slot, (uuid, serial) in document["replaced"].items():
                self.replaced[str(slot)] = (str(uuid), str(serial))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedError(f"its content is not understood: {type(error).__name__}: {error}") from error

    def _save(self) -> None:
        if self._path is None or self._write is None:
            return
        rows = [
            {"slot": slot, "index": each.gpu.index, "uuid": each.gpu.uuid, "serial": each.serial,
             "model": each.model, "facts": each.facts}
            for slot, each in sorted(self.gpus.items())
        ]  # fmt: skip
        text = json.dumps({"gpus": rows, "replaced": self.replaced}, indent=1)
        self._write(self._path, seal(FORM, text.encode() + b"\n"))


def _facts(identity: GpuIdentity) -> dict[str, str]:
    return {
        "gpu": identity.gpu.index,
        "slot": identity.slot,
        "uuid": identity.gpu.uuid,
        "serial": identity.serial,
        "model": identity.model,
    }


def stranger(missing: Unidentified) -> Gpu:
    """Return a GPU of which only the index is known."""
    return Gpu(missing.index, "")


class Presence:
    """Follows each GPU's last good sample. Times in seconds on the monotonic clock."""

    def __init__(self, inventory: Inventory, gpus_on_bus: int = 0) -> None:
        self._inventory = inventory
        self._on_bus = gpus_on_bus
        self._good: dict[str, float] = {}
        self._lost: set[str] = set()
        self.strangers: Sequence[Unidentified] = ()
        """GPUs that the driver counts but that are not known: they have not identified themselves."""
        self.paused = False
        """Whether the driver has been released on request: which GPUs are up is not known, and not an alarm."""
        self._own = OwnSeries()

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

    def is_up(self, uuid: str, now: float, patience: float) -> bool:
        good = self._good.get(uuid)
        return good is not None and uuid not in self._lost and now - good <= patience

    def frame(self, now: float, patience: float, expected: int | None) -> Frame:
        """Presence, age and facts of every known GPU, and how many there should be."""
        return self._own.frame(self._readings(now, patience, expected))

    def _readings(self, now: float, patience: float, expected: int | None) -> Iterator[OwnReading]:
        for slot, identity in self._inventory.gpus.items():
            gpu, good = identity.gpu, self._good.get(identity.gpu.uuid)
            if not self.paused:
                yield OwnReading("coldplate_gpu_up", int(self.is_up(gpu.uuid, now, patience)), (), gpu)
                if good is not None:
                    yield OwnReading("coldplate_gpu_sample_age_seconds", max(now - good, 0.0), (), gpu)
            owns = (("slot", slot), ("serial", identity.serial))
            yield OwnReading("coldplate_gpu_info", 1, (*owns, ("model", identity.model), *identity.facts), gpu)
            if slot in self._inventory.replaced:
                uuid, serial = self._inventory.replaced[slot]
                previous = (("previous_uuid", uuid), ("previous_serial", serial))
                yield OwnReading("coldplate_gpu_replaced_info", 1, (*owns, *previous), gpu)
        if self.paused:
            return
        for missing in self.strangers:
            yield OwnReading("coldplate_gpu_up", 0, (), stranger(missing))
        # Without a driver, or if it shows none of them, those on the bus are expected.
        seen = len(self._inventory.gpus) + len(self.strangers) or self._on_bus
        if expected is not None or seen:
            yield OwnReading("coldplate_gpus_expected", seen if expected is None else expected)
