"""The InfiniBand and Ethernet ports of a synthetic node, with their optical modules.

How errors of an optical link follow the light: a lane of PAM4 with thermal noise has a margin Q in proportion to the
light, and 0.375 erfc(Q / sqrt(2)) wrong bits; below that lies a floor of what the transmitter spoils. RS(544,514) of
400G links corrects 15 symbols of 10 bits in a codeword of 544 (IEEE 802.3 clause 119), errors taken as independent.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, factorial, inf, sqrt
from typing import NamedTuple

from agent.backends.synthetic import activity as ch
from agent.backends.synthetic.activity import hash64, uniform, uniform_signed
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.backends.synthetic.supported_series import port_offered
from agent.backends.synthetic.synthetic_faults import ErrorTally, ReadingCorruptor
from agent.catalogue import ROWS, optics
from agent.model import Gap, IbPort, Labels, Lane, Metric, Node, Reading, Series

LANES = 4
"""Of 400GBASE-DR4."""
RECEIVED_DBM, SENT_DBM = -0.5, 1.0
"""Of a healthy lane."""
WARNING_DBM, ALARM_DBM = -5.9, -8.9
"""What modules of this kind set as their lower limits."""
LIMIT_DBM = -6.5
"""Where a lane alone has all the errors that the code can correct: 2.4e-4 of its bits, a margin of Q_AT_LIMIT."""
Q_AT_LIMIT = 3.42
FLOOR = 1e-10
SYMBOLS, SYMBOL_BITS, CORRECTABLE = 544, 10, 15
STEPS = 128
"""Steps of the integral over the time in which light goes away."""


class LinkErrorRates(NamedTuple):
    """Of a link, in a second."""

    bits: float  # wrong before correction
    corrected: float  # codewords
    lost: float  # codewords


NO_ERRORS = LinkErrorRates(0.0, 0.0, 0.0)


def watts_of(dbm: float) -> float:
    return float(1e-3 * 10.0 ** (dbm / 10.0))


def error_ratio(loss: float) -> float:
    """Return the share of wrong bits of a lane, by the decibels of its light that are lost."""
    margin = Q_AT_LIMIT * 10.0 ** ((RECEIVED_DBM - loss - LIMIT_DBM) / 10.0)
    return FLOOR + 0.375 * erfc(margin / sqrt(2.0))


def error_rates(loss: float, lanes: int, bits: float) -> LinkErrorRates:
    """Return the rates of a link of `bits` a second, with `loss` decibels lost on `lanes`. Codewords span all lanes."""
    wrong = (lanes * error_ratio(loss) + (LANES - lanes) * FLOOR) / LANES
    codewords = bits / (SYMBOLS * SYMBOL_BITS)
    mean = SYMBOLS * (1.0 - (1.0 - wrong) ** SYMBOL_BITS)
    lost = _tail(mean)
    return LinkErrorRates(wrong * bits, (1.0 - exp(-mean) - lost) * codewords, lost * codewords)


def _tail(mean: float) -> float:
    """Return how often there are more wrong symbols than can be corrected, by Poisson."""
    terms = (mean**count / factorial(count) for count in range(CORRECTABLE + 1, CORRECTABLE + 40))
    return exp(-mean) * sum(terms)


class OpticalLoss:
    """One fault of light: the decibels that are lost, and the errors beyond those of a healthy link."""

    def __init__(self, fault: ScenarioFault, bits: float) -> None:
        self.window = fault.window
        self._loss, self._ramp = fault.parameters["loss"], fault.parameters["ramp"]
        lane = int(fault.parameters["lane"])
        self.lanes = (lane,) if lane else tuple(range(1, LANES + 1))
        healthy = error_rates(0.0, LANES, bits)
        steps = [
            _added(error_rates(self._loss * (step / STEPS), len(self.lanes), bits), healthy, -1.0)
            for step in range(STEPS + 1)
        ]
        self._after = steps[-1]
        self._sums = [NO_ERRORS]
        for before, after in pairwise(steps):
            self._sums.append(_added(self._sums[-1], _added(before, after), self._ramp / STEPS / 2.0))

    def decibels(self, t: float) -> float:
        begun = self.window.begun(t)
        if begun is None:
            return 0.0
        return self._loss * (min(1.0, (t - begun) / self._ramp) if self._ramp else 1.0)

    def errors(self, t: float) -> LinkErrorRates:
        """Return all that it has brought by `t`."""
        times = self.window.started(t)
        if not times:
            return NO_ERRORS
        start = self.window.onset(times)
        now, length = max(0.0, t - start), self.window.duration
        if length is None:
            length = self.window.repeat or now
        return _added(self._since(min(now, length)), self._since(length), times - 1.0)

    def _since(self, seconds: float) -> LinkErrorRates:
        """Return the errors of the first seconds of an occurrence."""
        if seconds >= self._ramp:
            return _added(self._sums[-1], self._after, seconds - self._ramp)
        steps = seconds / self._ramp * STEPS
        step = min(int(steps), STEPS - 1)
        first, last = self._sums[step], self._sums[step + 1]
        return _added(first, _added(last, first, -1.0), steps - step)


def _added(first: LinkErrorRates, second: LinkErrorRates, factor: float = 1.0) -> LinkErrorRates:
    return LinkErrorRates(*(a + factor * b for a, b in zip(first, second, strict=True)))


CODED = 1.0625
"""Bits on the line for each bit of the rate: 256B/257B and RS(544,514)."""
LANE_SPREAD, WOBBLE = 0.1, 0.03
"""Decibels by which lanes differ, and by which each wanders from minute to minute."""
BIAS, BIAS_WARNING, BIAS_ALARM = 0.060, 0.090, 0.100  # amperes, of a laser of silicon photonics
MODULE_CELSIUS, MODULE_WARNING, MODULE_ALARM = 48.0, 70.0, 75.0
CHIP_CELSIUS, CHIP_CRITICAL = 62.0, 105.0
SUPPLY_VOLTS = 3.28
FORM_FACTOR, VENDOR, PART = "QSFP-DD", "Synthetic", "SYN-400G-DR4"


class SyntheticOptic:
    """An Ethernet port, its module and the fibre to it, as the driver's physical statistics and the module report them.

    The link sends at its rate whether there are packets or not, so its errors depend on light and time alone.
    """

    def __init__(self, scenario: Scenario, number: int) -> None:
        machine = scenario.topology
        self._device, self._rate = machine.optics[number], machine.optic_rate
        self._noise = hash64(scenario.seed, number, 81)
        bits = 8.0 * CODED * machine.optic_rate
        faults = [fault for fault in scenario.faults if fault.part == self._device]
        self._losses = [OpticalLoss(fault, bits) for fault in faults if fault.kind == "light-loss"]
        self._swaps = [fault for fault in faults if fault.kind == "module-swap"]
        self._spoiler = ReadingCorruptor(scenario, part=self._device)
        # Links that are well differ by orders of magnitude.
        own = 10.0 ** uniform_signed(self._noise, 83)
        self._healthy = LinkErrorRates(*(own * rate for rate in error_rates(0.0, LANES, bits)))

    def readings(self, lane: Lane, t: float) -> Sequence[Reading]:
        readings: list[Reading] = []
        if lane is Lane.SLOW:
            readings += self._link(t)
        elif lane is Lane.COLD and not self._is_out(t):
            readings += self._module(t)
        return self._spoiler.readings(readings, t)[0]

    def _is_out(self, t: float) -> bool:
        begun = ((fault.window.begun(t), fault.parameters["out"]) for fault in self._swaps)
        return any(at is not None and t < at + out for at, out in begun)

    def _link(self, t: float) -> Iterator[Reading]:
        errors = _added(NO_ERRORS, self._healthy, t)
        for loss in self._losses:
            errors = _added(errors, loss.errors(t))
        bits, corrected, lost = errors
        yield self._reading(optics.FEC_INFO, 1.0, ("mode", "rs"))
        if not self._is_out(t):
            yield self._reading(optics.RATE, self._rate)
        yield self._reading(optics.LINK_DOWN_EVENTS, float(self._exchanges(t)))
        yield self._reading(optics.CORRECTED_BIT_ERRORS, bits // 1.0)
        yield self._reading(optics.CORRECTED_BLOCKS, corrected // 1.0)
        yield self._reading(optics.UNCORRECTABLE_BLOCKS, lost // 1.0)
        yield self._reading(optics.SYMBOL_ERRORS, lost // 1.0)
        yield self._reading(optics.FCS_ERRORS, 0.0)
        chip = round(CHIP_CELSIUS + self._wander(int(t // 60.0), 0))
        yield self._reading(optics.HCA_TEMPERATURE, chip, ("sensor", "asic"))
        yield self._reading(optics.HCA_TEMPERATURE_LIMIT, CHIP_CRITICAL, ("sensor", "asic"))

    def _exchanges(self, t: float) -> int:
        return sum(fault.window.started(t) for fault in self._swaps)

    def _module(self, t: float) -> Iterator[Reading]:
        minute = int(t // 60.0)
        serial = f"SYN{hash64(self._noise, self._exchanges(t)) % 10**8:08d}"
        yield self._reading(
            optics.INFO,
            1.0,
            ("form_factor", FORM_FACTOR),
            ("media", "optical"),
            ("vendor", VENDOR),
            ("part_number", PART),
            ("serial", serial),
        )
        yield self._reading(optics.TEMPERATURE, MODULE_CELSIUS + self._wander(minute, 0))
        yield self._reading(optics.SUPPLY, SUPPLY_VOLTS)
        received = [watts_of(self._received(lane, minute, t)) for lane in range(1, LANES + 1)]
        sent = [watts_of(SENT_DBM + LANE_SPREAD * uniform_signed(self._noise, lane, 1)) for lane in range(LANES)]
        bias = [BIAS * (1.0 + 0.05 * uniform_signed(self._noise, lane, 2)) for lane in range(LANES)]
        yield self._reading(optics.RECEIVE_LOWEST, min(received))
        yield self._reading(optics.RECEIVE_HIGHEST, max(received))
        yield self._reading(optics.TRANSMIT_LOWEST, min(sent))
        yield self._reading(optics.BIAS_HIGHEST, max(bias))
        for lane, (into, out, current) in enumerate(zip(received, sent, bias, strict=True), 1):
            label = ("lane", str(lane))
            yield self._reading(optics.RECEIVE_LANE, into, label)
            yield self._reading(optics.TRANSMIT_LANE, out, label)
            yield self._reading(optics.BIAS_LANE, current, label)
        yield from self._limits()

    def _limits(self) -> Iterator[Reading]:
        for row, warning, alarm in (
            (optics.TEMPERATURE_LIMIT, MODULE_WARNING, MODULE_ALARM),
            (optics.RECEIVE_LIMIT, watts_of(WARNING_DBM), watts_of(ALARM_DBM)),
            (optics.TRANSMIT_LIMIT, watts_of(WARNING_DBM), watts_of(ALARM_DBM)),
            (optics.BIAS_LIMIT, BIAS_WARNING, BIAS_ALARM),
        ):
            yield self._reading(row, alarm, ("level", "alarm"))
            yield self._reading(row, warning, ("level", "warning"))

    def _received(self, lane: int, minute: int, t: float) -> float:
        """Return the light on a lane, in dBm."""
        lost = sum(loss.decibels(t) for loss in self._losses if lane in loss.lanes)
        spread = LANE_SPREAD * uniform_signed(self._noise, lane)
        return RECEIVED_DBM + spread + self._wander(minute, lane) * WOBBLE - lost

    def _wander(self, minute: int, topic: int) -> float:
        """Return a number from -1 to 1, another in each minute."""
        return uniform_signed(self._noise, minute, topic, 82)

    def _reading(self, row: Metric, value: float, *labels: tuple[str, str]) -> Reading:
        return Reading(_series(row, self._device, labels), value)


@lru_cache(maxsize=4096)  # an interface has some 40 at a time; modules are exchanged again and again
def _series(row: Metric, device: str, labels: Labels) -> Series:
    return Series(row, Node(), (("device", device), *labels))


PREFIX = "coldplate_infiniband_"
PACKET = 4096.0  # bytes: the largest unit of the fabric, which bulk traffic fills
ACTIVE, DOWN = 4.0, 1.0
LINK_UP, POLLING = 5.0, 2.0
FACTS = {
    "board_id": "MT_0000000838",
    "firmware_version": "28.43.2026",
    "hca_type": "MT4129",
    "link_layer": "InfiniBand",
}

Traffic = tuple[float, float]
_WAYS = (ch.FABRIC_TX, ch.FABRIC_RX)


class SyntheticPort:
    """An InfiniBand port: a rail of one or more GPUs, whose traffic it carries while it is up.

    Advances the tracks that it is given, so it belongs to one thread.
    """

    def __init__(self, scenario: Scenario, number: int, tracks: list[Track]) -> None:
        machine = scenario.topology
        device = machine.ports[number]
        self.device = device
        self._tracks, self._rate = tracks, machine.port_rate
        faults = [fault for fault in scenario.faults if fault.port == device]
        self._down = [fault for fault in faults if fault.kind == "ib-down"]
        self._avoided = [fault for fault in faults if fault.kind == "ib-share"]
        self._slow = [fault for fault in faults if fault.kind == "ib-rate"]
        errors: dict[str, list[ScenarioFault]] = {}
        for fault in faults:
            if fault.kind == "ib-errors":
                errors.setdefault(fault.options["counter"], []).append(fault)
        self._counts = {counter: ErrorTally(faults, "rate", "burst") for counter, faults in errors.items()}
        self._history = [1e12 * (1.0 + uniform(scenario.seed, number, way, 51)) for way in (0, 1)]
        self._spoiler = ReadingCorruptor(scenario, port=device)
        self._restart()
        entity = IbPort(device, "1")
        self._series: dict[Lane, list[tuple[str, Series]]] = {}
        for row in ROWS:
            if row.entity is IbPort and port_offered(row):
                labels = tuple((name, FACTS.get(name, "")) for name in row.labels)
                suffix = row.name.removeprefix(PREFIX)
                self._series.setdefault(row.lane, []).append((suffix, Series(row, entity, labels)))

    def _restart(self) -> None:
        self._at = 0.0
        self._carried: Traffic = (self._history[0], self._history[1])
        self._last_demand: Traffic = self._demand(0.0)

    def readings(self, lane: Lane, t: float) -> tuple[list[Reading], list[Gap]]:
        get = self._values(lane, t).get
        readings = [Reading(series, get(suffix, 0.0)) for suffix, series in self._series.get(lane, ())]
        kept, gaps = self._spoiler.readings(readings, t)
        return list(kept), gaps

    def _values(self, lane: Lane, t: float) -> dict[str, float]:
        if lane is Lane.FAST:
            return self._fast(t)
        return self._slow_values(t) if lane is Lane.SLOW else _COLD

    def _demand(self, t: float) -> Traffic:
        """Return what the GPUs on this rail have needed to send and receive so far."""
        sent = received = 0.0
        for track in self._tracks:
            out, into = track.sums(t, _WAYS)
            sent += out
            received += into
        return sent, received

    def _up(self, t: float) -> bool:
        return not any(fault.window.holds(t) for fault in self._down)

    def _share(self, t: float) -> float:
        """Return the share of the GPUs' traffic that the port carries at `t`."""
        if not self._up(t):
            return 0.0
        return min((fault.parameters["share"] for fault in self._avoided if fault.window.holds(t)), default=1.0)

    def _traffic(self, t: float) -> Traffic:
        """Return bytes sent and received: what the GPUs needed, as far as the port carried it."""
        if t < self._at:
            self._restart()
        limits = (*self._down, *self._avoided)
        while (edge := min((fault.window.next_edge(self._at) for fault in limits), default=inf)) <= t:
            self._carried = self._carried_by(edge)
            self._at, self._last_demand = edge, self._demand(edge)
        return self._carried_by(t)

    def _carried_by(self, t: float) -> Traffic:
        """Return the bytes by `t`, which is not after the next edge of a fault."""
        share = self._share(self._at)
        if not share:
            return self._carried
        (sent, received), demand, last_demand = self._carried, self._demand(t), self._last_demand
        return sent + share * (demand[0] - last_demand[0]), received + share * (demand[1] - last_demand[1])

    def _drops(self, t: float) -> float:
        return float(sum(fault.window.started(t) for fault in self._down))

    def _fast(self, t: float) -> dict[str, float]:
        sent, received = self._traffic(t)
        up = self._up(t)
        return self._with_errors(
            t,
            {
                "port_data_transmitted_bytes_total": sent // 4.0 * 4.0,
                "port_data_received_bytes_total": received // 4.0 * 4.0,
                "state_id": ACTIVE if up else DOWN,
                "port_up": 1.0 if up else 0.0,
                "link_down_events_total": self._drops(t),
            },
        )

    def _slow_values(self, t: float) -> dict[str, float]:
        sent, received = self._traffic(t)
        rate = min((fault.parameters["rate"] for fault in self._slow if fault.window.holds(t)), default=self._rate)
        return self._with_errors(
            t,
            {
                "physical_state_id": LINK_UP if self._up(t) else POLLING,
                "rate_bytes_per_second": rate,
                "lifespan_seconds": 0.01,
                "link_downed_total": self._drops(t),
                "port_transmit_wait_total": sent // 65536.0,
                "port_packets_transmitted_total": sent // PACKET,
                "port_packets_received_total": received // PACKET,
                "unicast_packets_transmitted_total": sent // PACKET,
                "unicast_packets_received_total": received // PACKET,
                "multicast_packets_transmitted_total": t // 30.0,
                "multicast_packets_received_total": t // 10.0,
                "rx_write_requests_total": received // (16.0 * PACKET),
                "rx_read_requests_total": received // (4096.0 * PACKET),
            },
        )

    def _with_errors(self, t: float, values: dict[str, float]) -> dict[str, float]:
        """Return the values with what faults add to counters by `t`."""
        for counter, tally in self._counts.items():
            values[counter] = values.get(counter, 0.0) + tally.at(t)
        return values


_COLD = {"info": 1.0}
