"""The physical layer of all ports, in one round of questions.

All of them go through a relay, one leg for each port: the kernel answers under a lock, so that one driver whose
firmware does not answer may hold a question for long. It costs only its own port.
"""

from __future__ import annotations

from agent.backends.file_relay import FileRelay, Leg, Unread
from agent.backends.optics.ethtool_questions import QUESTIONS
from agent.backends.optics.kernel_asking import Connect
from agent.backends.optics.missing_rows import MissingRows
from agent.backends.optics.physical_ports import PORTS, PortFolder
from agent.backends.optics.relayed_questions import FamilyQuestion, PortQuestion, no_answer
from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.backends.sysfs import printable
from agent.catalogue import metric
from agent.model import Backend, Labels, Metric, Node, Reading, Series

LEFT_OUT = Series(metric("coldplate_backend_series_left_out"), Backend("optics"))
SERIES = 8_192
"""Most series that are remembered: 64 ports with all their lanes and bins."""


class PortStatistics:
    """Every Ethernet port under `sysfs`/class/net. `connect` opens a socket to the kernel."""

    rows = tuple(row for question in QUESTIONS for row in question.rows)
    """What is missing where nothing can be asked."""

    def __init__(self, sysfs: str, relay: FileRelay, connect: Connect) -> None:
        self._folder = PortFolder(sysfs)
        self._connect = connect
        self._relay = relay
        self._family: int | None = None
        self._ports: list[str] = []
        self._series: dict[tuple[Metric, str, Labels], Series] = {}

    def read(self, mono: float) -> BackendSample:
        """Ask about every port. Raises AbsentError without ports or without the kernel's interface, and DeviceError."""
        ports = self._find_ports(mono)
        family = self._find_family(mono)
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
        if len(self._ports) > PORTS:
            shown.append(Reading(LEFT_OUT, (len(self._ports) - PORTS) * len(self.rows)))
        return BackendSample(shown, list(missing.gaps()), calls=calls)

    def _find_ports(self, mono: float) -> list[str]:
        """The ports that are asked; those of the last time while sysfs does not answer."""
        ((answer,),) = self._relay.round([Leg("list of ports", [self._folder])], mono)
        if isinstance(answer, list):
            self._ports = answer
        elif isinstance(answer, FileNotFoundError):
            self._ports = []
        elif isinstance(answer, OSError):
            failed = no_answer(answer)
            raise DeviceError(failed.reason, f"{self._folder.path}: {failed.detail}")
        elif not self._ports:
            raise DeviceError(answer.reason, f"{self._folder.path}: {answer.detail}")
        if not self._ports:
            raise AbsentError(f"{self._folder.path} has no Ethernet port of hardware")
        return self._ports[:PORTS]

    def _find_family(self, mono: float) -> int:
        if self._family is None:
            ((answer,),) = self._relay.round([Leg("number of the family", [FamilyQuestion(self._connect)])], mono)
            if answer is None:
                raise AbsentError("the kernel has no ethtool netlink (CONFIG_ETHTOOL_NETLINK, from Linux 5.6 on)")
            if not isinstance(answer, int):
                raise DeviceError(answer.reason, f"{FamilyQuestion.path}: {answer.detail}")
            self._family = answer
        return self._family

    def _of(self, row: Metric, device: str, labels: Labels) -> Series:
        series = self._series.get((row, device, labels))
        if series is None:
            if len(self._series) >= SERIES:  # interfaces or bins that come and go
                self._series.clear()
            series = self._series[row, device, labels] = Series(row, Node(), (("device", device), *labels))
        return series
