"""How a source of readings is found by its file name, and what it is created with.

A module or package in `agent/backends/` is a source of the main process if it has `make_backend(context)`, which
returns an implementation of `BackendProtocol`, or None if the configuration excludes it. The others are families of
devices (`protocol.py`) and tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from msgspec import Struct, field

from agent import backends
from agent.backends.protocol import BackendProtocol, GpuProcess
from agent.config.schema import Config
from agent.config.words import DEVICES, NOT_OF_NODE
from agent.model import Gpu, GpuIdentity, Instant, Reading

if TYPE_CHECKING:
    from agent.backends.redfish_service import RedfishSource


class BackendContext(Struct, frozen=True):
    """What a source of the main process gets to know about the node.

    `sysfs` and `procfs` are where these are mounted. `gpus` gives those of the inventory, `processes` those that the
    driver saw computing on each; these two and `clock` may be called in any thread. `reader_of` returns a function that
    gives the last snapshot's readings of some rows, by their names. `is_my_turn` says whether this node is the one of
    its rack to ask a service that serves the rack, by name. `rack_services` opens those of a synthetic rack, by name.
    `announce_removal` takes the PCI address of a GPU that the kernel waits to remove.
    """

    config: Config
    sysfs: Path
    procfs: Path
    gpus: Callable[[], list[GpuIdentity]]
    processes: Callable[[], Mapping[Gpu, Sequence[GpuProcess] | None]]
    reader_of: Callable[[Collection[str]], Callable[[], Iterable[Reading]]]
    clock: Callable[[], Instant]
    is_my_turn: Callable[[str], bool] = lambda _: False
    rack_services: Mapping[str, Callable[[], RedfishSource]] = field(default_factory=dict)
    announce_removal: Callable[[str], object] = lambda _: None

    def mono(self) -> float:
        """Return the time in monotonic seconds. May be called in any thread."""
        return self.clock().mono

    @property
    def has_own_hardware(self) -> bool:
        """Whether what is shown is this node itself: neither synthetic, nor a recording, nor a trace."""
        return self.config.backends.devices not in NOT_OF_NODE

    @property
    def has_driver(self) -> bool:
        """Whether GPUs of this node are read."""
        return self.config.backends.devices not in (*NOT_OF_NODE, "none")


def make_backends(context: BackendContext) -> list[BackendProtocol]:
    """Return every configured source, in the order of their names. Raises ConfigError."""
    # Without the families of devices: what they load belongs to the worker.
    names = (name for _, name, _ in iter_modules(backends.__path__) if name not in DEVICES)
    modules = [import_module(f"{backends.__name__}.{name}") for name in names]
    candidates = [module.make_backend(context) for module in modules if hasattr(module, "make_backend")]
    return [b for b in candidates if b is not None]
