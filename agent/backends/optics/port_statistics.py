"""The physical layer of all ports, in one round of questions.

All of them go through a relay, one leg for each port: the kernel answers under a lock, so that one driver whose
firmware does not answer may hold a question for long. It costs only its own port.
"""

from __future__ import annotations

from agent.backends.file_relay import FileRelay, Leg, Unread
from agent.backends.optics.ethtool_questions import QUESTIONS
from agent.backends.optics.kernel_asking import Connect
from agent.backends.optics.missing_rows import MissingRows
from agent.backends.optics.port_census import PortCensus
from agent.backends.optics.relayed_questions import PortQuestion
from agent.backends.protocol import BackendSample
from agent.backends.sysfs import printable
from agent.catalogue import metric
from agent.model import Backend, Labels, Metric, Node, Reading, Series

LEFT_OUT = Series(metric("coldplate_backend_series_left_out"), Backend("optics"))
SERIES = 8_192
"""Most series that are remembered: 64 ports with all their lanes and bins."""


class PortStatistics:
    """Every Ethernet port of the census. `connect` opens a socket to the kernel."""

    rows = tuple(row for question in QUESTIONS for row in question.rows)
    """What is missing where nothing can be asked."""

    def __init__(self, census: PortCensus, relay: FileRelay, connect: Connect) -> None:
        self._census = census
        self._connect = connect
        self._relay = relay
        self._series: dict[tuple[Metric, str, Labels], Series] = {}

    def read(self, mono: float) -> BackendSample:
        """Ask about every port. Raises AbsentError without ports or without the kernel's interface, and DeviceError."""
        ports = self._census.find_ports(mono)
        family = self._census.find_family(mono)
        legs = [Leg(port, [PortQuestion(self._connect, family, port, each) for each in QUESTIONS]) for port in ports]
        answers = self._relay.round(legs, mono)
        readings: dict[Series, Reading] = {}
        missing = MissingRows()
        calls = 0
        for port, leg in zip(ports, answers, strict=True):
            device = printable(port)
            for question, answer in zip(QUESTIONS, leg, strict=True):
                calls += not isinstance(answer, Unread)
                for each in answer if isinstance(answer, list) else ():
                    series = self._of(each.row, device, each.labels)
                    readings[series] = Reading(series, each.value)  # once, should the kernel say it twice
                missing.take(question, device, answer)
        shown = list(readings.values())
        if self._census.left_out:
            shown.append(Reading(LEFT_OUT, self._census.left_out * len(self.rows)))
        return BackendSample(shown, list(missing.gaps()), calls=calls)

    def _of(self, row: Metric, device: str, labels: Labels) -> Series:
        series = self._series.get((row, device, labels))
        if series is None:
            if len(self._series) >= SERIES:  # interfaces or bins that come and go
                self._series.clear()
            series = self._series[row, device, labels] = Series(row, Node(), (("device", device), *labels))
        return series
