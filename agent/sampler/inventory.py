"""The inventory of the GPUs that belong in the node, remembered across restarts.

There is a series for each GPU ever seen, so that one that falls silent shows as data. Only an inventory can show that a
GPU is missing at boot, or name the previous GPU of a slot. It stores the identity of a GPU, never its measurements.
"""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.lib.state_files import DamagedError, load_state, seal, unseal
from agent.model import Gpu, GpuIdentity

log = logging.getLogger("coldplate.inventory")

FORM = "coldplate-inventory-1"
MOST = 160
"""Most GPUs that are remembered: twice as many as the largest node has. A broken driver may show others each time."""

_Replaced = dict[str, tuple[str, str]]
Save = Callable[[Path, bytes], None]
"""Writes a file soon; returns at once and never raises."""


class Inventory:
    """GPUs by slot. `path` is the file that keeps them, None for none; without `save` the file does not change."""

    def __init__(self, path: Path | None, save: Save | None = None) -> None:
        self._path = path
        self._write = save
        self.gpus: dict[str, GpuIdentity] = {}
        self.replaced: _Replaced = {}
        """By slot, the UUID and serial of the GPU that was there before."""
        if path is not None:
            without = "GPUs that were already missing are unknown"
            saved = load_state(path, _parse, log, without, keep=save is None)
            self.gpus, self.replaced = saved or ({}, {})

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
        remembered = self.gpus.get(identity.slot)
        if remembered is not None and remembered.gpu.uuid != identity.gpu.uuid:
            self.replaced[identity.slot] = (remembered.gpu.uuid, remembered.serial)
            facts = {**_facts(identity), "previous_uuid": remembered.gpu.uuid, "previous_serial": remembered.serial}
            log.warning("GPU replaced", extra={"facts": facts})
        self.gpus[identity.slot] = identity

    def _save(self) -> None:
        if self._path is None or self._write is None:
            return
        rows = [
            {"slot": slot, "index": gpu.gpu.index, "uuid": gpu.gpu.uuid, "serial": gpu.serial,
             "model": gpu.model, "facts": gpu.facts}
            for slot, gpu in sorted(self.gpus.items())
        ]  # fmt: skip
        text = json.dumps({"gpus": rows, "replaced": self.replaced}, indent=1)
        self._write(self._path, seal(FORM, text.encode() + b"\n"))


def _parse(content: bytes) -> tuple[dict[str, GpuIdentity], _Replaced]:
    """Return the GPUs and those that they replaced, by slot. Raises DamagedError."""
    body = unseal(FORM, content)
    gpus: dict[str, GpuIdentity] = {}
    try:
        document: dict[str, Any] = json.loads(body)
        for row in document["gpus"]:
            gpu = Gpu(str(row["index"]), str(row["uuid"]))
            facts = tuple((str(name), str(value)) for name, value in row["facts"])
            slot = str(row["slot"])
            gpus[slot] = GpuIdentity(gpu, slot, str(row["serial"]), str(row["model"]), facts)
        return gpus, {str(slot): (str(uuid), str(serial)) for slot, (uuid, serial) in document["replaced"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise DamagedError(f"its content is not understood: {type(error).__name__}: {error}") from error


def _facts(identity: GpuIdentity) -> dict[str, str]:
    return {
        "gpu": identity.gpu.index,
        "slot": identity.slot,
        "uuid": identity.gpu.uuid,
        "serial": identity.serial,
        "model": identity.model,
    }
