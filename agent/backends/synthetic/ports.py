"""One synthetic InfiniBand port: a rail of one or more GPUs, whose traffic it carries while it is up."""

from __future__ import annotations

from math import inf

from agent.backends.synthetic import levels as ch
from agent.backends.synthetic.fault_effects import Spoiler, Tally
from agent.backends.synthetic.noise import share
from agent.backends.synthetic.offered_series import Offer
from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.backends.synthetic.track import Track
from agent.model import Gap, IbPort, Lane, Reading, Series

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
    """A port of the node. Advances the tracks that it is given, so it belongs to one thread."""

    def __init__(self, scenario: Scenario, number: int, tracks: list[Track], offers: list[Offer]) -> None:
        machine = scenario.topology
        device = machine.ports[number]
        self.device = device
        self._tracks, self._rate = tracks, machine.port_rate
        faults = [fault for fault in scenario.faults if fault.port == device]
        self._down = [fault for fault in faults if fault.kind == "ib-down"]
        self._slow = [fault for fault in faults if fault.kind == "ib-rate"]
        self._counts = {
            fault.options["counter"]: Tally(_of_counter(faults, fault), "rate", "burst")
            for fault in faults
            if fault.kind == "ib-errors"
        }
        self._history = [1e12 * (1.0 + share(scenario.seed, number, way, 51)) for way in (0, 1)]
        self._spoiler = Spoiler(scenario, port=device)
        self._restart()
        entity = IbPort(device, "1")
        self._series: dict[Lane, list[tuple[str, Series]]] = {}
        for offer in offers:
            labels = tuple((name, FACTS.get(name, "")) for name in offer.row.labels)
            suffix = offer.row.name.removeprefix(PREFIX)
            self._series.setdefault(offer.lane, []).append((suffix, Series(offer.row, entity, labels)))

    def _restart(self) -> None:
        self._at = 0.0
        self._carried: Traffic = (self._history[0], self._history[1])
        self._seen: Traffic = self._wanted(0.0)

    def readings(self, lane: Lane, t: float) -> tuple[list[Reading], list[Gap]]:
        """What the port shows at `t`."""
        values = self._fast(t) if lane is Lane.FAST else self._slow_values(t) if lane is Lane.SLOW else _COLD
        get = values.get
        found = [Reading(series, get(suffix, 0.0)) for suffix, series in self._series.get(lane, ())]
        if self._spoiler.active(t):
            kept, gaps = self._spoiler.readings(found, t)
            return list(kept), gaps
        return found, []

    def _wanted(self, t: float) -> Traffic:
        """What the GPUs on this rail have needed to send and receive so far."""
        sent = received = 0.0
        for track in self._tracks:
            out, into = track.sums(t, _WAYS)
            sent += out
            received += into
        return sent, received

    def _up(self, t: float) -> bool:
        return not any(fault.window.holds(t) for fault in self._down)

    def _traffic(self, t: float) -> Traffic:
        """Bytes sent and received: what the GPUs needed while the port was up."""
        if not self._down:
            wanted = self._wanted(t)
            first = self._carried
            return first[0] + wanted[0] - self._seen[0], first[1] + wanted[1] - self._seen[1]
        if t < self._at:
            self._restart()
        while (edge := min((f.window.next_edge(self._at) for f in self._down), default=inf)) <= t:
            self._carry(edge)
            self._at, self._seen = edge, self._wanted(edge)
        if not self._up(self._at):
            return self._carried
        wanted = self._wanted(t)
        return self._carried[0] + wanted[0] - self._seen[0], self._carried[1] + wanted[1] - self._seen[1]

    def _carry(self, edge: float) -> None:
        if self._up(self._at):
            sent, received = self._wanted(edge)
            self._carried = (
                self._carried[0] + sent - self._seen[0],
                self._carried[1] + received - self._seen[1],
            )

    def _drops(self, t: float) -> float:
        return float(sum(fault.window.started(t) for fault in self._down))

    def _errors(self, t: float) -> dict[str, float]:
        return {counter: tally.at(t) for counter, tally in self._counts.items()}

    def _fast(self, t: float) -> dict[str, float]:
        sent, received = self._traffic(t)
        sent, received = sent // 4.0 * 4.0, received // 4.0 * 4.0
        up, drops = self._up(t), self._drops(t)
        values = {
            "port_data_transmitted_bytes_total": sent,
            "port_data_received_bytes_total": received,
            "port_packets_transmitted_total": sent // PACKET,
            "port_packets_received_total": received // PACKET,
            "port_transmit_wait_total": sent // 65536.0,
            "state_id": ACTIVE if up else DOWN,
            "port_up": 1.0 if up else 0.0,
            "link_downed_total": drops,
            "link_down_events_total": drops,
        }
        if self._counts:
            for counter, count in self._errors(t).items():
                values[counter] = values.get(counter, 0.0) + count
        return values

    def _slow_values(self, t: float) -> dict[str, float]:
        sent, received = self._traffic(t)
        rate = min((fault.parameters["rate"] for fault in self._slow if fault.window.holds(t)), default=self._rate)
        values = {
            "physical_state_id": LINK_UP if self._up(t) else POLLING,
            "rate_bytes_per_second": rate,
            "lifespan_seconds": 0.01,
            "unicast_packets_transmitted_total": sent // PACKET,
            "unicast_packets_received_total": received // PACKET,
            "multicast_packets_transmitted_total": t // 30.0,
            "multicast_packets_received_total": t // 10.0,
            "rx_write_requests_total": received // (16.0 * PACKET),
            "rx_read_requests_total": received // (4096.0 * PACKET),
        }
        for counter, count in self._errors(t).items():
            values[counter] = values.get(counter, 0.0) + count
        return values


_COLD = {"info": 1.0}


def _of_counter(faults: list[ScenarioFault], like: ScenarioFault) -> list[ScenarioFault]:
    return [f for f in faults if f.kind == "ib-errors" and f.options["counter"] == like.options["counter"]]
