"""Which value of coldplate is compared with which value of nvidia-smi, in which unit, and how closely.

`step` is half of nvidia-smi's last digit and what rounding may cost. `slack` is how far a value that moves
may have moved while nvidia-smi ran; a value without slack must agree to the step.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partialmethod
from typing import NamedTuple

from tests.lab.bench.report import markdown

MIB = 1.0 / 2**20
MHZ = 1e-6
PERCENT = 100.0
MICRO = 1e6

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row:
    """One value. `csv` and `xml` are alternatives, newest name first; `xml` is a path below a GPU's element."""

    title: str
    metric: str
    labels: Labels = ()
    csv: tuple[str, ...] = ()
    xml: tuple[str, ...] = ()
    factor: float = 1.0
    unit: str = ""
    step: float = 0.0
    slack: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True)
class Fact:
    """One identifier, compared as text. `name` is a field of the identity, or one of its facts."""

    title: str
    name: str
    csv: tuple[str, ...] = ()
    xml: str = ""


FACTS = (
    Fact("index", "index", ("index",)),
    Fact("UUID", "uuid", ("uuid", "gpu_uuid")),
    Fact("serial number", "serial", ("serial", "gpu_serial")),
    Fact("PCI bus id", "slot", ("pci.bus_id", "gpu_bus_id")),
    Fact("model", "model", ("name", "gpu_name")),
    Fact("driver version", "driver_version", ("driver_version",)),
    Fact("VBIOS version", "vbios", ("vbios_version",)),
    Fact("compute capability", "compute_capability", ("compute_cap",)),
    Fact("architecture", "architecture", xml="product_architecture"),
    Fact("minor number", "minor", xml="minor_number"),
    Fact("board part number", "board_part", xml="board_part_number"),
)


def _gpu(name: str) -> str:
    return f"coldplate_gpu_{name}"


def _memory(part: str, slack: float = 16.0) -> Row:
    return Row(f"memory {part}", _gpu(f"memory_{part}_bytes"), csv=(f"memory.{part}",), factor=MIB, unit="MiB",
               step=1.0, slack=slack)  # fmt: skip


def _power(title: str, metric: str, *csv: str, xml: tuple[str, ...] = ()) -> Row:
    return Row(title, _gpu(metric), csv=csv, xml=xml, unit="W", step=0.011, slack=3.0, relative=0.05)


def _limit(title: str, metric: str, csv: str, element: str) -> Row:
    return Row(title, _gpu(metric), csv=(csv,), xml=(f"gpu_power_readings/{element}", f"power_readings/{element}"),
               unit="W", step=0.011)  # fmt: skip


def _clock(title: str, domain: str, csv: tuple[str, ...]) -> Row:
    return Row(title, _gpu("clock_hertz"), (("domain", domain),), csv, factor=MHZ, unit="MHz", step=0.5, slack=150.0)


def _ecc(kind: str, scope: str) -> Row:
    metric = "ecc_errors_total" if scope == "volatile" else f"ecc_{scope}_errors_total"
    return Row(f"ECC {kind} {scope}", _gpu(metric), (("type", kind),),
               (f"ecc.errors.{kind}.{scope}.total",))  # fmt: skip


def _remap(title: str, metric: str, element: str, labels: Labels = ()) -> Row:
    return Row(title, _gpu(metric), labels, xml=(f"remapped_rows/{element}",))


def _reason(label: str, element: str | None = None) -> Row:
    name = element or label
    return Row(f"throttled now: {label}", _gpu("throttle_active"), (("reason", label),),
               xml=(f"clocks_event_reasons/clocks_event_reason_{name}",
                    f"clocks_throttle_reasons/clocks_throttle_reason_{name}"))  # fmt: skip


def _throttled(label: str, csv: str, element: str) -> Row:
    """The counters are the reason for this row: NVML's documents say ns, and nvidia-smi shows us."""
    return Row(f"throttled time: {label}", _gpu("throttle_seconds_total"), (("reason", label),),
               (f"clocks_event_reasons_counters.{csv}",),
               (f"clocks_event_reasons_counters/clocks_event_reasons_counters_{element}",),
               factor=MICRO, unit="us", step=1.0, slack=1000.0)  # fmt: skip


ROWS = (
    Row("utilization", _gpu("utilization_ratio"), csv=("utilization.gpu",), factor=PERCENT, unit="%", step=0.5,
        slack=10),
    Row("memory activity", _gpu("memory_activity_ratio"), csv=("utilization.memory",), factor=PERCENT, unit="%",
        step=0.5, slack=10),
    Row("encoder", _gpu("encoder_utilization_ratio"), csv=("utilization.encoder",), factor=PERCENT, unit="%",
        step=0.5, slack=10),
    Row("decoder", _gpu("decoder_utilization_ratio"), csv=("utilization.decoder",), factor=PERCENT, unit="%",
        step=0.5, slack=10),
    _memory("total", 0.0), _memory("reserved", 0.0), _memory("used"), _memory("free"),
    _power("power, mean of 1 s", "power_watts", "power.draw.average",
           xml=("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw")),
    _power("power, as nvidia-smi's plain power.draw", "power_watts", "power.draw"),
    _power("power, instant", "power_instant_watts", "power.draw.instant",
           xml=("gpu_power_readings/instant_power_draw",)),
    _power("power of the module", "module_power_watts", "module.power.draw.instant",
           xml=("module_power_readings/instant_power_draw",)),
    _limit("power limit in force", "power_limit_watts", "enforced.power.limit", "current_power_limit"),
    _limit("power limit by default", "power_limit_default_watts", "power.default_limit", "default_power_limit"),
    Row("energy", _gpu("energy_joules_total"), csv=("total_energy_consumption", "energy.total"), factor=1000, unit="mJ",
        step=1.0, slack=100_000),
    Row("temperature", _gpu("temperature_celsius"), csv=("temperature.gpu",), unit="C", step=0.0, slack=2),
    Row("temperature of the memory", _gpu("memory_temperature_celsius"), csv=("temperature.memory",), unit="C",
        slack=2),
    Row("temperature margin", _gpu("temperature_margin_celsius"), csv=("temperature.gpu.tlimit",),
        xml=("temperature/gpu_temp_tlimit",), unit="C", slack=2),
    _clock("clock, SM", "sm", ("clocks.sm", "clocks.current.sm")),
    _clock("clock, graphics", "graphics", ("clocks.gr", "clocks.current.graphics")),
    _clock("clock, memory", "memory", ("clocks.mem", "clocks.current.memory")),
    _clock("clock, video", "video", ("clocks.video", "clocks.current.video")),
    Row("clock limit, SM", _gpu("clock_limit_hertz"), (("domain", "sm"),), ("clocks.max.sm",), factor=MHZ, unit="MHz",
        step=0.5),
    Row("clock limit, memory", _gpu("clock_limit_hertz"), (("domain", "memory"),),
        ("clocks.max.mem", "clocks.max.memory"), factor=MHZ, unit="MHz", step=0.5),
    _ecc("corrected", "volatile"), _ecc("uncorrected", "volatile"),
    _ecc("corrected", "aggregate"), _ecc("uncorrected", "aggregate"),
    _remap("rows remapped, correctable", "row_remaps_total", "remapped_row_corr", (("cause", "correctable"),)),
    _remap("rows remapped, uncorrectable", "row_remaps_total", "remapped_row_unc", (("cause", "uncorrectable"),)),
    _remap("row remap pending", "row_remap_pending", "remapped_row_pending"),
    _remap("row remap failure", "row_remap_failure", "remapped_row_failure"),
    Row("PCIe generation", _gpu("pcie_link_generation"), csv=("pcie.link.gen.gpucurrent", "pcie.link.gen.current")),
    Row("PCIe generation, highest", _gpu("pcie_link_generation_max"), csv=("pcie.link.gen.max",)),
    Row("PCIe width", _gpu("pcie_link_width"), csv=("pcie.link.width.current",)),
    Row("PCIe width, highest", _gpu("pcie_link_width_max"), csv=("pcie.link.width.max",)),
    Row("PCIe replays", _gpu("pcie_replays_total"), xml=("pci/replay_counter",)),
    _reason("gpu_idle"), _reason("application_clocks", "applications_clocks_setting"), _reason("sw_power_cap"),
    Row("throttled now: hw_slowdown", _gpu("hw_slowdown_active"),
        xml=("clocks_event_reasons/clocks_event_reason_hw_slowdown",
             "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown")),
    _reason("sync_boost"), _reason("sw_thermal_slowdown"), _reason("hw_thermal_slowdown"),
    _reason("hw_power_brake", "hw_power_brake_slowdown"), _reason("display_clocks", "display_clocks_setting"),
    _throttled("sw_power_cap", "sw_power_cap", "sw_power_cap"),
    _throttled("sync_boost", "sync_boost", "sync_boost"),
    _throttled("sw_thermal_slowdown", "sw_thermal_slowdown", "sw_therm_slowdown"),
    _throttled("hw_thermal_slowdown", "hw_thermal_slowdown", "hw_therm_slowdown"),
    _throttled("hw_power_brake", "hw_power_brake_slowdown", "hw_power_brake"),
)  # fmt: skip


# What the hardware checks found: a verdict for each check, tables to read, and a report as Markdown or JSON.


class Verdict(Enum):
    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    MEASURED = "measured"


class Check(NamedTuple):
    name: str
    verdict: Verdict
    text: str


@dataclass
class Section:
    step: str
    title: str
    checks: list[Check] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    """Titles and tables, as Markdown."""

    def add(self, verdict: Verdict, name: str, text: str) -> None:
        self.checks.append(Check(name, verdict, text))

    failed = partialmethod(add, Verdict.FAILED)
    skipped = partialmethod(add, Verdict.SKIPPED)
    measured = partialmethod(add, Verdict.MEASURED)

    def judge(self, name: str, good: bool, text: str) -> None:
        self.add(Verdict.OK if good else Verdict.FAILED, name, text)

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        cells = ([each.replace("|", "\\|").replace("\n", " ") for each in row] for row in rows)
        self.tables += [f"{title}:", markdown(header, cells)]


STAND_IN = "A STAND-IN LIBRARY ANSWERED, NO REAL GPU: this shows that the checks run, and nothing about hardware."


@dataclass
class Report:
    """Everything that one run found, and what it ran on. `scrub` takes identifiers out of the text."""

    provenance: dict[str, str] = field(default_factory=dict)
    stand_in: bool = False
    sections: list[Section] = field(default_factory=list)
    scrub: Callable[[str], str] = str

    def add(self, step: str, title: str) -> Section:
        self.sections.append(Section(step, title))
        return self.sections[-1]

    def having(self, verdict: Verdict) -> list[str]:
        """The checks that ended so, each with its step."""
        found = ((section, check) for section in self.sections for check in section.checks)
        return [f"{check.name} ({section.step})" for section, check in found if check.verdict is verdict]

    def summary(self) -> str:
        """One sentence; skipped checks are always named as such."""
        counts = {verdict: len(self.having(verdict)) for verdict in Verdict}
        text = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
        return f"{sum(counts.values())} checks: {text}" if text else "no check ran"

    def markdown(self) -> str:
        parts = ["## Hardware checks", *([f"**{STAND_IN}**"] if self.stand_in else [])]
        parts += [markdown(("", ""), self.provenance.items()), f"Result: **{self.summary()}**"]
        for section in self.sections:
            checks = [f"- **{check.verdict.value}** {check.name}: {check.text}" for check in section.checks]
            parts += [f"### {section.title}", "\n".join(checks), *section.tables]
        return self.scrub("\n\n".join(part.strip() for part in parts) + "\n")
