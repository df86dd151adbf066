"""The rows of the rack that feeds this node, and of its equipment, read from Redfish services: coolant distribution
units, power shelves and PDUs.

`equipment` is the name that the service has in the configuration, `unit` the Id that a unit has there. Names and units
of the sources are those of DMTF's schemas CoolingUnit, PowerDistribution and what these link to (DSP8010).
"""

from agent.catalogue.bindings import Derived, Source, counter, gauge, state
from agent.model import Lane, Metric, Rack

LIMITS = (
    gauge("coldplate_rack_power_budget_watts", Rack, "Power budget of the rack.",
          Lane.FAST, Source("configuration: rack.power_budget"), span=(0, 1e8)),
    gauge("coldplate_rack_feed_limit_watts", Rack, "Power limit of one of the rack's feeds.",
          Lane.FAST, Source("configuration: rack.feeds"), labels=("feed",), span=(0, 1e8)),
    gauge("coldplate_rack_nodes_expected", Rack,
          "Nodes that the rack should have; counted from the peers if not configured.",
          Lane.FAST, Source("configuration: rack.nodes_expected, rack.peers"), span=(0, 1000)),
)  # fmt: skip

POWER = (
    gauge("coldplate_rack_power_watts", Rack,
          "Power of the rack's reporting nodes, all in the same second; coldplate_rack_nodes_reporting says how many.",
          Lane.FAST, Derived("power of this node and of rack.peers"), span=(0, 1e8)),
    gauge("coldplate_rack_power_conservative_watts", Rack,
          "coldplate_rack_power_watts plus a node's nameplate for each expected node that does not report.",
          Lane.FAST, Derived("coldplate_rack_power_watts and rack.node_nameplate"), span=(0, 1e8)),
    gauge("coldplate_rack_power_timestamp_seconds", Rack,
          "End of the second that coldplate_rack_power_watts covers, in seconds since the epoch.",
          Lane.FAST, Derived("wall clock"), span=(0, 1e11)),
    gauge("coldplate_rack_nodes_reporting", Rack, "Nodes whose power is in the rack's sum, including this one.",
          Lane.FAST, Derived("rack peers that answered"), span=(0, 1000)),
    gauge("coldplate_rack_nodes_missing", Rack,
          "Expected nodes that have each been missing from the rack's sum for 30 s; absent until known.",
          Lane.FAST, Derived("rack peers that answered"), span=(0, 1000)),
    gauge("coldplate_rack_nodes_by_power_source", Rack,
          "Nodes in the rack's sum by the source of their power; source 'estimate' is computed, not measured.",
          Lane.FAST, Derived("reports of rack peers"), labels=("source",), span=(0, 1000)),
)  # fmt: skip

PEERS = (
    state("coldplate_rack_peer_up", Rack,
          "1 if the peer's last response was accepted, 0 if it was missing or rejected.",
          Lane.FAST, Derived("polling of rack.peers"), labels=("peer",)),
    counter("coldplate_rack_peer_failures_total", Rack,
            "Failed or rejected responses of the peer: connect, timeout, http, invalid, other_rack, clock or "
            "over_nameplate.",
            Lane.FAST, Derived("polling of rack.peers"), labels=("peer", "reason")),
    gauge("coldplate_rack_clock_offset_seconds", Rack,
          "Seconds that this node's clock is ahead of the median of the rack's other nodes.",
          Lane.FAST, Derived("answers of rack.peers"), span=(-1e11, 1e11)),
    state("coldplate_rack_config_mismatch", Rack,
          "1 if another agent of the rack is configured differently, by the setting that differs.",
          Lane.FAST, Derived("answers of rack.peers"), labels=("setting",)),
)  # fmt: skip

BREAKERS = (
    gauge("coldplate_rack_breaker_load_ratio", Rack,
          "Load of a breaker divided by its rating; split is the source of its share: whole, configured or assumed.",
          Lane.FAST, Derived("power of the rack and rack.breakers"), labels=("feed", "split"), span=(0, 1e3)),
    gauge("coldplate_rack_breaker_heat_ratio", Rack,
          "Thermal state of a breaker by the trip curve of its class: it trips at 1.",
          Lane.FAST, Derived("power of the rack and rack.breakers"), labels=("feed",), span=(0, 1)),
    gauge("coldplate_rack_breaker_trip_seconds", Rack,
          "Seconds until a breaker trips at its present load, by the curve of its class; absent if it never does.",
          Lane.FAST, Derived("power of the rack and rack.breakers"), labels=("feed",), span=(0, 1e6)),
    gauge("coldplate_rack_failover_limit_watts", Rack,
          "Power that the rack's shelves can supply after as many failures as they may have.",
          Lane.FAST, Source("configuration: rack.shelves"), span=(0, 1e10)),
)  # fmt: skip

DOMAINS = (
    gauge("coldplate_rack_nvlink_gpus", Rack,
          "GPUs of a node of the rack that are in an NVLink domain across nodes, by cluster and clique.",
          Lane.FAST, Derived("coldplate_gpu_fabric_info of this node and of rack.peers"),
          labels=("peer", "cluster_uuid", "clique"), span=(0, 1024)),
    gauge("coldplate_rack_nvlink_unregistered_gpus", Rack,
          "GPUs of a node of the rack that have begun to register with an NVLink fabric, and have not joined it.",
          Lane.FAST, Derived("coldplate_gpu_fabric_state of this node and of rack.peers"), labels=("peer",),
          span=(0, 1024)),
    gauge("coldplate_rack_nvlink_domains_expected", Rack,
          "NVLink domains that the GPUs of the rack should be in, if configured.",
          Lane.FAST, Source("configuration: rack.nvlink_domains"), span=(0, 72)),
)  # fmt: skip

_UNIT = ("equipment", "unit")
_CONNECTOR = (*_UNIT, "loop", "connector")


def _gauge(stem: str, origin: str, help: str, span: tuple[float, float], labels: tuple[str, ...]) -> Metric:
    return gauge(f"coldplate_rack_{stem}", Rack, help, Lane.FAST, Source(f"Redfish: {origin}"), labels=labels,
                 span=span)  # fmt: skip


UP = state("coldplate_rack_equipment_up", Rack,
           "1 if the equipment's service answers the agent of the rack that asks it; other agents do not have it.",
           Lane.FAST, Derived("answers of rack.equipment"), labels=("equipment",))  # fmt: skip
PART = state("coldplate_rack_part_state", Rack,
             "1 for the state of a part of the rack's equipment, 0 for the others; unavailable: it cannot be read.",
             Lane.FAST, Source("Redfish: Status, LeakDetector.DetectorState, Reservoir.FluidLevelStatus"),
             labels=(*_UNIT, "kind", "part", "state"))  # fmt: skip
PARTS = (UP, PART)

SUPPLY = _gauge("coolant_supply_temperature_celsius", "CoolantConnector.SupplyTemperatureCelsius",
                "Temperature of the coolant that is supplied in a loop of a distribution unit.",
                (-40, 150), _CONNECTOR)  # fmt: skip
RETURN = _gauge("coolant_return_temperature_celsius", "CoolantConnector.ReturnTemperatureCelsius",
                "Temperature of the coolant that returns in a loop of a distribution unit.",
                (-40, 150), _CONNECTOR)  # fmt: skip
FLOW = _gauge("coolant_flow_liters_per_second", "CoolantConnector.FlowLitersPerMinute",
              "Coolant that flows in a loop of a distribution unit.", (0, 10_000), _CONNECTOR)  # fmt: skip
RATED_FLOW = _gauge("coolant_rated_flow_liters_per_second", "CoolantConnector.RatedFlowLitersPerMinute",
                    "Flow that a connector of a distribution unit is rated for.", (0, 10_000), _CONNECTOR)  # fmt: skip
HEAT = _gauge("coolant_heat_removed_watts", "CoolantConnector.HeatRemovedkW",
              "Heat that the coolant carries away in a loop of a distribution unit.", (0, 1e8), _CONNECTOR)  # fmt: skip
SUPPLY_PRESSURE = _gauge("coolant_supply_pressure_pascals", "CoolantConnector.SupplyPressurekPa",
                         "Pressure of the coolant that is supplied.", (-1e7, 1e7), _CONNECTOR)  # fmt: skip
RETURN_PRESSURE = _gauge("coolant_return_pressure_pascals", "CoolantConnector.ReturnPressurekPa",
                         "Pressure of the coolant that returns.", (-1e7, 1e7), _CONNECTOR)  # fmt: skip
DELTA_PRESSURE = _gauge("coolant_delta_pressure_pascals", "CoolantConnector.DeltaPressurekPa",
                        "Difference in pressure between supply and return, as the unit reports it.",
                        (-1e7, 1e7), _CONNECTOR)  # fmt: skip
PUMP_SPEED = _gauge("pump_speed_ratio", "Pump.PumpSpeedPercent",
                    "Speed of a pump, as a share of its highest.", (0, 1.5), (*_UNIT, "part"))  # fmt: skip
RESERVOIR = _gauge("reservoir_level_ratio", "Reservoir.FluidLevelPercent",
                   "How full a reservoir of coolant is.", (0, 1), (*_UNIT, "part"))  # fmt: skip
FILTER_PRESSURE = _gauge("filter_delta_pressure_pascals", "Filter.DeltaLiquidPressurekPa",
                         "Pressure that the coolant loses in a filter.", (-1e7, 1e7), (*_UNIT, "part"))  # fmt: skip
FILTER_LIFE = _gauge("filter_service_ratio", "Filter.ServiceHours, RatedServiceHours",
                     "Time that a filter has been in service, as a share of what it is rated for.",
                     (0, 100), (*_UNIT, "part"))  # fmt: skip
LOOPS = (SUPPLY, RETURN, FLOW, RATED_FLOW, HEAT, SUPPLY_PRESSURE, RETURN_PRESSURE, DELTA_PRESSURE,
         PUMP_SPEED, RESERVOIR, FILTER_PRESSURE, FILTER_LIFE)  # fmt: skip

AIR = _gauge("air_temperature_celsius", "EnvironmentMetrics.TemperatureCelsius",
             "Temperature of the air at a distribution unit.", (-40, 150), _UNIT)  # fmt: skip
HUMIDITY = _gauge("air_humidity_ratio", "EnvironmentMetrics.HumidityPercent",
                  "Relative humidity of the air at a distribution unit.", (0, 1), _UNIT)  # fmt: skip
DEW_POINT = _gauge("dew_point_celsius", "EnvironmentMetrics.DewPointCelsius",
                   "Dew point of the air at a distribution unit; if not reported, from its temperature and humidity.",
                   (-100, 100), _UNIT)  # fmt: skip
AMBIENT = (AIR, HUMIDITY, DEW_POINT)

_CIRCUIT = (*_UNIT, "circuit", "part")
DISTRIBUTION_POWER = _gauge("distribution_power_watts", "PowerDistributionMetrics.PowerWatts",
               "Power that a power shelf or PDU of the rack draws or gives, as it reports it.",
               (0, 1e8), _UNIT)  # fmt: skip
CIRCUIT_POWER = _gauge("circuit_power_watts", "Circuit.PowerWatts",
                       "Power of an input (mains) or a branch of a power shelf or PDU.",
                       (-1e8, 1e8), _CIRCUIT)  # fmt: skip
CIRCUIT_CURRENT = gauge("coldplate_rack_circuit_current_amperes", Rack,
                        "Current of an input or a branch, by its line where it has several.",
                        Lane.FAST, Source("Redfish: Circuit.PolyPhaseCurrentAmps, CurrentAmps"), labels=_CIRCUIT,
                        span=(-1e5, 1e5), further_labels=("line",))  # fmt: skip
CIRCUIT_RATING = _gauge("circuit_rated_amperes", "Circuit.RatedCurrentAmps",
                        "Current that an input or a branch is rated for.", (0, 1e5), _CIRCUIT)  # fmt: skip
SUPPLY_POWER = _gauge("supply_power_watts", "PowerSupplyMetrics.OutputPowerWatts",
                      "Power that a power supply of a shelf gives.", (0, 1e6), (*_UNIT, "part"))  # fmt: skip
SUPPLY_RATING = _gauge("supply_rated_watts", "PowerSupply.PowerCapacityWatts",
                       "Power that a power supply of a shelf is rated for.", (0, 1e6), (*_UNIT, "part"))  # fmt: skip
DISTRIBUTION = (DISTRIBUTION_POWER, CIRCUIT_POWER, CIRCUIT_CURRENT, CIRCUIT_RATING, SUPPLY_POWER, SUPPLY_RATING)
