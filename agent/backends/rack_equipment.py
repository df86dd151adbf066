"""Equipment that serves a rack (`rack.equipment`): imported only where it is configured, or a synthetic rack has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.backends.registration import BackendContext

if TYPE_CHECKING:
    from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend

UNNAMED = "synthetic"
"""The rack's name where none is configured; that of real equipment always is."""


def make_backend(context: BackendContext) -> RackEquipmentBackend | None:
    """Return the rack's equipment: what is configured, or else that of a synthetic rack. Raises ConfigError."""
    config = context.config
    if config.backends.devices == "replay" or not (config.rack.equipment or context.rack_services):
        return None
    from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend, over_http, services_of

    services = over_http(services_of(config.rack), context.mono) or context.rack_services
    name = config.rack.name or config.node.rack or UNNAMED
    return RackEquipmentBackend(name, services, context.is_my_turn, context.mono)
