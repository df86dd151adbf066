"""What cools the node, from its management controller (`backends.redfish`): imported only where that is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.backends.registration import BackendContext
from agent.model import Node

if TYPE_CHECKING:
    from agent.backends.equipment.equipment_backend import EquipmentBackend


def make_backend(context: BackendContext) -> EquipmentBackend | None:
    """Return the node's cooling, if a management controller is configured. Raises ConfigError."""
    backends = context.config.backends
    if backends.redfish is None or not backends.equipment or not context.has_own_hardware:
        return None
    from agent.backends.equipment.equipment_backend import EquipmentBackend, NodeCoolingReader
    from agent.backends.redfish_service import make_target

    target = make_target(backends.redfish, "backends.redfish")
    return EquipmentBackend(NodeCoolingReader(target, backends.redfish.chassis, context.mono), Node())
