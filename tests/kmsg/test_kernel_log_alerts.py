"""From a line of the kernel log to the page and the alert: what a driver writes, and whom the pack wakes for it."""

from collections.abc import Mapping

import pytest

from agent.backends.kmsg import KmsgBackend
from agent.model import Alert, Gpu, GpuIdentity, Instant, Lane, Outcome
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from alerts.engine import RuleEngine, Ruleset
from exporters.encoder import Encoder, Format
from tests.frames import read_of
from tests.kmsg.conftest import BOOT, FakeLog
from tests.lab.score.play import TARGET, load_pack

BEGAN = 50
PACK = tuple(file for file in load_pack() if file.path.endswith(("xid.yml", "nvswitch.yml", "advice.yml")))
NVLINK = "NVRM: Xid (PCI:0000:{bus}:00): {code}, {unit} {word} XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000)"
CLEANUP = "NVRM: Xid (PCI:0000:{bus}:00): 45, pid=77, name=python, Ch 00000008"


class LoggingNode:
    """Two GPUs, 1b and 43, whose driver writes into a kernel log; the agent looks once a second."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self._backend = KmsgBackend("/dev/kmsg", lambda path: self.log)
        inventory = Inventory(None)
        gpus = [
            GpuIdentity(Gpu(str(n), f"GPU-{n}"), f"0000:{bus}:00.0", "S", "B200") for n, bus in enumerate(("1b", "43"))
        ]
        inventory.enumerate(gpus, None)
        self._sampler = Sampler(Settings(), inventory, "nvml")
        self._engine = RuleEngine(Ruleset(PACK), TARGET, self._instant(BEGAN))
        self._second = BEGAN
        self.page = ""
        self.fired: set[tuple[str, str, str]] = set()
        """What fired at any time: alert, GPU or switch, code or action."""

    @property
    def second(self) -> int:
        """The second that was played last."""
        return self._second

    def until(self, second: int) -> None:
        """Look and judge, once a second."""
        while self._second < second:
            self._second += 1
            now = self._instant(self._second)
            sample = self._backend.read(Lane.FAST, now)
            self._sampler.take_read(read_of("kmsg", Lane.FAST, now.mono, 0.0, Outcome.OK, sample))
            snapshot = self._sampler.snapshot(now, LoopFacts(ticks=self._second))
            self._engine.round(snapshot, now)
            self.fired |= {_told(alert) for _, group in self._engine.groups() for alert in group.firing()}
        self.page = Encoder().render(snapshot, Format.TEXT, 0.0).decode()

    def write(self, *lines: str) -> None:
        for line in lines:
            self.log.write(line, self._second)

    def _instant(self, second: int) -> Instant:
        return Instant(float(second), BOOT + second)


def _told(alert: Alert) -> tuple[str, str, str]:
    labels: Mapping[str, str] = dict(alert.labels)
    return alert.rule, labels.get("gpu") or labels["pci"], labels.get("xid") or labels.get("sxid") or labels["action"]


@pytest.fixture
def node() -> LoggingNode:
    made = LoggingNode()
    made.until(180)  # beyond the two minutes in which a counter counts as new
    return made


@pytest.mark.parametrize(
    ("unit", "word", "grade", "alert"),
    [("NETIR_LINK_EVT ", "Fatal  ", "fatal", "GpuXid"), ("NETIR_BER_EVENT", "Nonfatal", "nonfatal", "GpuXidInfo")],
)
def test_an_nvlink_error_is_as_grave_as_its_line_says(
    node: LoggingNode, unit: str, word: str, grade: str, alert: str
) -> None:
    node.write(NVLINK.format(bus="43", code=149, unit=unit, word=word))
    node.until(240)
    assert {(name, gpu) for name, gpu, _ in node.fired} == {(alert, "1")}
    graded = f'coldplate_gpu_xid_graded_errors_total{{gpu="1",uuid="GPU-1",xid="149",grade="{grade}"}} 1'
    assert graded in node.page


SXID = "nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): "
TOLD: dict[str, tuple[list[str], set[tuple[str, str, str]], str]] = {
    "an NVLink error whose line cannot be read is unknown": (
        ["NVRM: Xid (PCI:0000:43:00): 149, words of a newer driver"], {("GpuXidUnknown", "1", "149")}, ""),
    "processes that somebody ended are no alert": (
        [CLEANUP.format(bus=bus) for bus in ("1b", "43", "43")], set(),
        'coldplate_gpu_xid_errors_total{gpu="1",uuid="GPU-1",xid="45"} 2'),
    "a cleanup after a fault of another GPU is told of as its consequence": (
        ["NVRM: Xid (PCI:0000:1b:00): 95, pid=77, name=python, Uncontained ECC error", CLEANUP.format(bus="43")],
        {("GpuXid", "0", "gpu_reset"), ("GpuXidInfo", "1", "45")}, ""),
    "a power connector is neither a reset nor a restart": (
        ["NVRM: Xid (PCI:0000:1b:00): 54, Auxiliary power is not connected"], {("GpuXid", "0", "power_check")}, ""),
    "an SXid that is fatal is told of by switch and code": (
        [f"{SXID}20034, Fatal, Link 48 LTSSM Fault Up",
         f"{SXID}20034, Severity 1 Engine instance 48 Sub-engine instance 00",
         f"{SXID}22013, Non-fatal, Link 48 Minion Link DLREQ interrupt"],
        {("NvSwitchErrors", "0000:c1:00.0", "20034")},
        'sxid_errors_total{pci="0000:c1:00.0",sxid="20034",grade="fatal"} 1'),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_lines_of_the_driver_become_alerts(node: LoggingNode, case: str) -> None:
    lines, fired, shown = TOLD[case]
    node.write(*lines)
    node.until(240)
    assert node.fired == fired
    assert shown in node.page
    assert "xid_graded_errors" not in node.page


@pytest.mark.parametrize(("code", "times", "alerts"), [(11012, 10, 0), (11012, 11, 1), (22013, 100, 0), (12028, 1, 1)])
def test_an_sxid_that_is_not_fatal_alerts_by_its_rate_or_by_what_it_holds_up(
    node: LoggingNode, code: int, times: int, alerts: int
) -> None:
    line = f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {code}, Non-fatal, Link 32 egress"
    for _ in range(times):
        node.write(line)
        node.until(node.second + 2)
    node.until(node.second + 30)
    assert len(node.fired) == alerts
    assert {alert for alert, _, _ in node.fired} <= {"NvSwitchErrors"}
