"""The entities that a channel may report: a GPU itself and its links, the rest of the node everything that exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.model import Entity, Gpu, GpuIdentity, IbPort, Node, NvLink
from agent.worker import message_checks
from agent.worker.message_limits import LINKS, NAME, PORTS
from agent.worker.worker_messages import MessageError


class Entities:
    """Makes the entities of messages, each only once."""

    def __init__(self) -> None:
        self._own: list[Gpu | None] = []
        self._gpus: dict[tuple[str, str], Gpu] = {}
        self._links: dict[tuple[Gpu, int], NvLink] = {}
        self._ports: dict[tuple[str, str], IbPort] = {}
        self._node = Node()

    def enlist(self, channels: Sequence[tuple[str, GpuIdentity | None]]) -> None:
        """Take in the current channels."""
        self._own = [None if identity is None else identity.gpu for _, identity in channels]
        self._gpus = {(gpu.index, gpu.uuid): gpu for gpu in self._own if gpu is not None}

    def of(self, channel: int, parts: Any) -> Entity:
        """The entity that these parts name. Raises MessageError, or another exception for malformed parts."""
        own = self._own[channel]
        kind, *rest = parts
        if kind in ("gpu", "nvlink"):
            gpu = self._gpus[rest[0], rest[1]]
            if own is not None and gpu is not own:
                raise MessageError(f"{own} reports {gpu}")
            return gpu if kind == "gpu" and len(rest) == 2 else self._link(gpu, rest)
        if own is not None:
            raise MessageError(f"{own} reports {kind!r:.20}")
        return self._port(rest) if kind == "ib" else self._the_node(parts)

    def _link(self, gpu: Gpu, rest: Any) -> NvLink:
        _, _, number = rest
        key = (gpu, message_checks.whole(number, LINKS))
        return self._links.setdefault(key, NvLink(gpu, number))

    def _port(self, rest: Any) -> IbPort:
        device, port = rest
        key = (message_checks.name(device), message_checks.name(port))
        if key not in self._ports and len(self._ports) >= PORTS:
            raise MessageError(f"more than {PORTS} ports, or a name of more than {NAME} characters")
        return self._ports.setdefault(key, IbPort(*key))

    def _the_node(self, parts: Any) -> Node:
        if parts != ["node"]:
            raise MessageError(f"not an entity: {parts!r:.80}")
        return self._node
