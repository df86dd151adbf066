"""The ledger of the node's GPUs: which one belongs in which slot, remembered across restarts.

A GPU that is missing at boot can only be seen by who remembers it, and a swapped one only named by who
knew the one before. Nothing that a GPU measured is kept here, only what it is.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.durable import replace_file, set_aside
from agent.model import Gpu, GpuIdentity

log = logging.getLogger("coldplate.inventory")

VERSION = 1
MOST = 160
"""GPUs that are remembered: twice as many as the largest node has. A driver gone mad may show others each time."""


class Inventory:
    """GPUs by slot. `path` is the file that keeps them, or None to remember nothing; `keep` lets it be written."""

    def __init__(self, path: Path | None, keep: bool = True) -> None:
        self._path = path
        self._keep = keep
        self.gpus: dict[str, GpuIdentity] = {}
        self.replaced: dict[str, tuple[str, str]] = {}
        """Slot to the UUID and serial of the GPU that was there before."""
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
                log.info("forgetting GPU %s: all %d GPUs that the configuration expects are here", slot, expected)
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
        """The GPU of a UUID or of the beginning of a slot, `0000:1b:00`."""
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
            self._parse(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot read the GPU inventory %s: %s; GPUs missing since before are not known", path, error)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            self.gpus.clear()
            self.replaced.clear()
            self._set_aside(path, error)

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = f"set aside as {set_aside(path)}" if self._keep else "left alone"
        log.warning("the GPU inventory %s is damaged (%s); %s, learning anew", path, error, aside)

    def _parse(self, document: dict[str, Any]) -> None:
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r} is not {VERSION}")
        for row in document["gpus"]:
            gpu = Gpu(str(row["index"]), str(row["uuid"]))
            facts = tuple((str(name), str(value)) for name, value in row["facts"])
            slot = str(row["slot"])
            self.gpus[slot] = GpuIdentity(gpu, slot, str(row["serial"]), str(row["model"]), facts)
        for slot, (uuid, serial) in document["replaced"].items():
            self.replaced[str(slot)] = (str(uuid), str(serial))

    def _save(self) -> None:
        if self._path is None or not self._keep:
            return
        rows = [
            {"slot": slot, "index": each.gpu.index, "uuid": each.gpu.uuid, "serial": each.serial,
             "model": each.model, "facts": each.facts}
            for slot, each in sorted(self.gpus.items())
        ]  # fmt: skip
        text = json.dumps({"version": VERSION, "gpus": rows, "replaced": self.replaced}, indent=1)
        # In a thread, since a state disk that hangs must not stop the sampling; it is waited for a moment.
        writer = threading.Thread(target=_write, args=(self._path, text + "\n"), daemon=True)
        writer.start()
        writer.join(1.0)


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text.encode())
    except OSError as error:
        log.warning("cannot write the GPU inventory %s: %s; a restart will not know missing GPUs", path, error)


def _facts(identity: GpuIdentity) -> dict[str, str]:
    return {
        "gpu": identity.gpu.index,
        "slot": identity.slot,
        "uuid": identity.gpu.uuid,
        "serial": identity.serial,
        "model": identity.model,
    }
