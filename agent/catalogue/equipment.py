"""The rows of what cools the node, as its management controller tells it: leak detectors and coolant connectors.

Names and units of the sources are those of DMTF's schemas LeakDetector and CoolantConnector (Redfish DSP8010).
"""

from __future__ import annotations

from agent.catalogue.bindings import Source
from agent.model import Kind, Lane, Metric, Node, Unit

LEAK_STATES = ("ok", "warning", "critical", "unavailable")
"""What a leak detector can say; `unavailable` is one that cannot be read, which is never the same as dry."""


def _coolant(what: str, unit: Unit, name: str, help: str, span: tuple[float, float]) -> Metric:
    return Metric(f"coldplate_coolant_{what}", Kind.GAUGE, unit, Node, help, Lane.SLOW,
                  (Source(f"Redfish: CoolantConnector.{name}"),), labels=("chassis", "connector"),
                  span=span)  # fmt: skip


LEAKS = (
    Metric("coldplate_leak_detector_state", Kind.STATE, Unit.NONE, Node,
           "1 for what the leak detector says, 0 for the other states; unavailable: it cannot be read.",
           Lane.SLOW, (Source("Redfish: LeakDetector.DetectorState"),), labels=("chassis", "detector", "state"),
           span=(0, 1)),
)  # fmt: skip
SUPPLY = _coolant("supply_temperature_celsius", Unit.CELSIUS, "SupplyTemperatureCelsius",
                  "Temperature of the coolant that comes in.", (-40, 150))  # fmt: skip
RETURN = _coolant("return_temperature_celsius", Unit.CELSIUS, "ReturnTemperatureCelsius",
                  "Temperature of the coolant that goes out.", (-40, 150))  # fmt: skip
FLOW = _coolant("flow_liters_per_second", Unit.LITERS, "FlowLitersPerMinute",
                "Coolant that flows through the connector.", (0, 1000))  # fmt: skip
RATED_FLOW = _coolant("rated_flow_liters_per_second", Unit.LITERS, "RatedFlowLitersPerMinute",
                      "Flow that the connector is rated for.", (0, 1000))  # fmt: skip
HEAT = _coolant("heat_removed_watts", Unit.WATTS, "HeatRemovedkW",
                "Heat that the coolant carries away.", (0, 1e8))  # fmt: skip
PRESSURE = _coolant("delta_pressure_pascals", Unit.PASCALS, "DeltaPressurekPa",
                    "Difference in pressure between supply and return.", (-1e7, 1e7))  # fmt: skip
COOLANT = (SUPPLY, RETURN, FLOW, RATED_FLOW, HEAT, PRESSURE)

ROWS: tuple[Metric, ...] = LEAKS + COOLANT
