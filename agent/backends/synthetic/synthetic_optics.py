"""One Ethernet port with an optical module, as the driver's physical statistics and the module's memory tell of it.

The link sends at its rate whether there are packets or not, so its errors depend on light and time alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.backends.synthetic import light_budget as light
from agent.backends.synthetic.light_budget import LightLoss, error_rates, watts_of
from agent.backends.synthetic.noise import mix, spread
from agent.backends.synthetic.scenario import Scenario
from agent.catalogue import optics, transceivers
from agent.model import Labels, Lane, Metric, Node, Reading, Series

CODED = 1.0625
"""Bits on the line for each bit of the rate: 256B/257B and RS(544,514)."""
LANE_SPREAD, WOBBLE = 0.1, 0.03
"""Decibels by which lanes differ, and by which each wanders from minute to minute."""
BIAS, BIAS_WARNING, BIAS_ALARM = 0.060, 0.090, 0.100  # amperes, of a laser of silicon photonics
MODULE_CELSIUS, MODULE_WARNING, MODULE_ALARM = 48.0, 70.0, 75.0
CHIP_CELSIUS, CHIP_CRITICAL = 62.0, 105.0
SUPPLY_VOLTS = 3.28
REMEMBERED_SERIES = 200
"""Of one port, which has some 40 at a time."""
FORM_FACTOR, VENDOR, PART = "QSFP-DD", "Synthetic", "SYN-400G-DR4"


class SyntheticOptic:
    """A port, its module and the fibre to it."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        machine = scenario.topology
        self._device, self._rate = machine.optics[number], machine.optic_rate
        self._noise = mix(scenario.seed, number, 81)
        bits = 8.0 * CODED * machine.optic_rate
        faults = [fault for fault in scenario.faults if fault.part == self._device]
        self._losses = [LightLoss(fault, bits) for fault in faults if fault.kind == "light-loss"]
        self._swaps = [fault for fault in faults if fault.kind == "module-swap"]
        # Links that are well differ by orders of magnitude.
        own = 10.0 ** spread(self._noise, 83)
        self._healthy = light.ErrorRates(*(own * each for each in error_rates(0.0, light.LANES, bits)))
        self._series: dict[tuple[Metric, Labels], Series] = {}

    def readings(self, lane: Lane, t: float) -> Iterator[Reading]:
        """What the port shows at `t`."""
        if lane is Lane.SLOW:
            yield from self._link(t)
        elif lane is Lane.COLD and not self._is_out(t):
            yield from self._module(t)

    def _is_out(self, t: float) -> bool:
        begun = (fault.window.begun(t) for fault in self._swaps)
        outs = (fault.parameters["out"] for fault in self._swaps)
        return any(at is not None and t < at + out for at, out in zip(begun, outs, strict=True))

    def _link(self, t: float) -> Iterator[Reading]:
        bits, corrected, lost = (
            healthy * t + sum(errors)
            for healthy, errors in zip(self._healthy, zip(*self._errors(t), strict=True), strict=True)
        )
        yield self._of(optics.FEC_INFO, 1.0, ("mode", "rs"))
        if not self._is_out(t):
            yield self._of(optics.RATE, self._rate)
        yield self._of(optics.LINK_DOWN_EVENTS, float(self._exchanges(t)))
        yield self._of(optics.CORRECTED_BIT_ERRORS, bits // 1.0)
        yield self._of(optics.CORRECTED_BLOCKS, corrected // 1.0)
        yield self._of(optics.UNCORRECTABLE_BLOCKS, lost // 1.0)
        yield self._of(optics.SYMBOL_ERRORS, lost // 1.0)
        yield self._of(optics.FCS_ERRORS, 0.0)
        chip = round(CHIP_CELSIUS + self._wander(int(t // 60.0), 0))
        yield self._of(optics.HCA_TEMPERATURE, chip, ("sensor", "asic"))
        yield self._of(optics.HCA_TEMPERATURE_LIMIT, CHIP_CRITICAL, ("sensor", "asic"))

    def _errors(self, t: float) -> list[light.ErrorRates]:
        return [light.ErrorRates(0.0, 0.0, 0.0), *(loss.errors(t) for loss in self._losses)]

    def _exchanges(self, t: float) -> int:
        return sum(fault.window.started(t) for fault in self._swaps)

    def _module(self, t: float) -> Iterator[Reading]:
        minute = int(t // 60.0)
        serial = f"SYN{mix(self._noise, self._exchanges(t)) % 10**8:08d}"
        yield self._of(transceivers.INFO, 1.0, ("form_factor", FORM_FACTOR), ("media", "optical"),
                       ("vendor", VENDOR), ("part_number", PART), ("serial", serial))  # fmt: skip
        yield self._of(transceivers.TEMPERATURE, MODULE_CELSIUS + self._wander(minute, 0))
        yield self._of(transceivers.SUPPLY, SUPPLY_VOLTS)
        received = [watts_of(self._received(lane, minute, t)) for lane in range(1, light.LANES + 1)]
        sent = [watts_of(light.SENT_DBM + LANE_SPREAD * spread(self._noise, lane, 1)) for lane in range(light.LANES)]
        bias = [BIAS * (1.0 + 0.05 * spread(self._noise, lane, 2)) for lane in range(light.LANES)]
        yield self._of(transceivers.RECEIVE_LOWEST, min(received))
        yield self._of(transceivers.RECEIVE_HIGHEST, max(received))
        yield self._of(transceivers.TRANSMIT_LOWEST, min(sent))
        yield self._of(transceivers.BIAS_HIGHEST, max(bias))
        for lane, (into, out, current) in enumerate(zip(received, sent, bias, strict=True), 1):
            label = ("lane", str(lane))
            yield self._of(transceivers.RECEIVE_LANE, into, label)
            yield self._of(transceivers.TRANSMIT_LANE, out, label)
            yield self._of(transceivers.BIAS_LANE, current, label)
        yield from self._limits()

    def _limits(self) -> Iterator[Reading]:
        for row, warning, alarm in (
            (transceivers.TEMPERATURE_LIMIT, MODULE_WARNING, MODULE_ALARM),
            (transceivers.RECEIVE_LIMIT, watts_of(light.WARNING_DBM), watts_of(light.ALARM_DBM)),
            (transceivers.TRANSMIT_LIMIT, watts_of(light.WARNING_DBM), watts_of(light.ALARM_DBM)),
            (transceivers.BIAS_LIMIT, BIAS_WARNING, BIAS_ALARM),
        ):
            yield self._of(row, alarm, ("level", "alarm"))
            yield self._of(row, warning, ("level", "warning"))

    def _received(self, lane: int, minute: int, t: float) -> float:
        """Light on a lane, in dBm."""
        lost = sum(loss.decibels(t) for loss in self._losses if lane in loss.lanes)
        return light.RECEIVED_DBM + LANE_SPREAD * spread(self._noise, lane) + self._wander(minute, lane) * WOBBLE - lost

    def _wander(self, minute: int, what: int) -> float:
        """From -1 to 1, another in each minute."""
        return spread(self._noise, minute, what, 82)

    def _of(self, row: Metric, value: float, *labels: tuple[str, str]) -> Reading:
        series = self._series.get((row, labels))
        if series is None:
            if len(self._series) >= REMEMBERED_SERIES:  # modules that are exchanged again and again
                self._series.clear()
            series = self._series[row, labels] = Series(row, Node(), (("device", self._device), *labels))
        return Reading(series, value)
