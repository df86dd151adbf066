"""Metrics of node cooling, which the management controller reports: leak detectors, coolant connectors, fans.

Names and units of the sources are those of DMTF's schemas LeakDetector, CoolantConnector, Fan, ThermalMetrics and
Thermal (Redfish DSP8010).
"""

from agent.catalogue.bindings import Source, gauge, state
from agent.model import Lane, Metric, Node, Shown

LEAK_STATES = ("ok", "warning", "critical", "unavailable")
"""What a leak detector can say; `unavailable` is one that cannot be read, which is never the same as dry."""


def _coolant(part: str, name: str, help: str, span: tuple[float, float]) -> Metric:
    return gauge(
        f"coldplate_coolant_{part}",
        Node,
        help,
        Lane.SLOW,
        Source(f"Redfish: CoolantConnector.{name}"),
        labels=("chassis", "connector"),
        span=span,
    )


LEAKS = (
    state(
        "coldplate_leak_detector_state",
        Node,
        "1 for what the leak detector says, 0 for the other states; unavailable: it cannot be read.",
        Lane.SLOW,
        Source("Redfish: LeakDetector.DetectorState"),
        labels=("chassis", "detector", "state"),
    ),
)
SUPPLY = _coolant(
    "supply_temperature_celsius", "SupplyTemperatureCelsius", "Temperature of the coolant that comes in.", (-40, 150)
)
RETURN = _coolant(
    "return_temperature_celsius", "ReturnTemperatureCelsius", "Temperature of the coolant that goes out.", (-40, 150)
)
FLOW = _coolant("flow_liters_per_second", "FlowLitersPerMinute", "Coolant that flows through the connector.", (0, 1000))
RATED_FLOW = _coolant(
    "rated_flow_liters_per_second", "RatedFlowLitersPerMinute", "Flow that the connector is rated for.", (0, 1000)
)
HEAT = _coolant("heat_removed_watts", "HeatRemovedkW", "Heat that the coolant carries away.", (0, 1e8))
PRESSURE = _coolant(
    "delta_pressure_pascals", "DeltaPressurekPa", "Difference in pressure between supply and return.", (-1e7, 1e7)
)
COOLANT = (SUPPLY, RETURN, FLOW, RATED_FLOW, HEAT, PRESSURE)

_FAN = ("chassis", "fan")
FAN_STATE = state(
    "coldplate_chassis_fan_state",
    Node,
    "1 for the state of a fan of the node, 0 for the others; unavailable: it cannot be read.",
    Lane.SLOW,
    Source("Redfish: Fan.Status, Thermal.Fans.Status"),
    labels=(*_FAN, "state"),
    shown=Shown.COUNTED,
)
FAN_SPEED = gauge(
    "coldplate_chassis_fan_speed_ratio",
    Node,
    "Speed of a fan of the node, as a share of its highest.",
    Lane.SLOW,
    Source("Redfish: Fan.SpeedPercent, Thermal.Fans.Reading"),
    labels=_FAN,
    span=(0, 1.5),
)
FAN_ROTATION = gauge(
    "coldplate_chassis_fan_rotation_hertz",
    Node,
    "Turns of a fan of the node in a second.",
    Lane.SLOW,
    Source("Redfish: Fan.SpeedPercent.SpeedRPM, Thermal.Fans.Reading"),
    labels=_FAN,
    span=(0, 2000),
    shown=Shown.FULL,
)
INTAKE = gauge(
    "coldplate_chassis_intake_temperature_celsius",
    Node,
    "Temperature of the air that the chassis takes in.",
    Lane.SLOW,
    Source("Redfish: ThermalMetrics.TemperatureSummaryCelsius.Intake, Thermal.Temperatures"),
    labels=("chassis", "sensor"),
    span=(-40, 150),
)
AIR = (FAN_STATE, FAN_SPEED, FAN_ROTATION, INTAKE)

ROWS: tuple[Metric, ...] = LEAKS + COOLANT + AIR
