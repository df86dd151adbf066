"""Energy of processor packages and memory, from RAPL through /sys/class/powercap.

This is a part of the node, and on a GPU node a small one: it is shown as energy of its own, never as
node power. The counters of the hardware are narrow and wrap within minutes to an hour; here each
becomes one that only grows. Linux lets only root read them (since 5.10, against CVE-2020-8694).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.backends.power.files import read_count, read_text
from agent.backends.protocol import DeviceError, Sample
from agent.catalogue.node import POWER_PARTS
from agent.model import Gap, Instant, Node, Reading, Reason, Series

_, ENERGY = POWER_PARTS

MICRO = 1e-6
RESCAN = 60.0
MAX_WATTS = 5000.0
"""No RAPL domain draws this much: a fall that would need it as a wrap is a counter that began anew."""

REMEDY = (
    "; only root may read it: run the agent with CAP_DAC_READ_SEARCH, or let a tmpfiles.d or udev rule"
    " give the agent's group read access to energy_uj"
)


@dataclass(slots=True)
class Domain:
    """One RAPL domain: its files, and its energy so far, in microjoules."""

    energy: Path
    wrap: int
    series: Series
    last: int | None = None
    at: float = 0.0
    total: int = 0

    def advance(self, raw: int, mono: float) -> float:
        """Take the counter's next value; the joules that the series shows."""
        if self.last is None:
            self.total = raw
        elif raw >= self.last:
            self.total += raw - self.last
        else:
            wrapped = raw - self.last + self.wrap
            if 0 <= wrapped * MICRO <= MAX_WATTS * (mono - self.at):
                self.total += wrapped
        self.last, self.at = raw, mono
        return self.total * MICRO


class Rapl:
    """All RAPL domains of the node. `intel-rapl` is the name for AMD's too; its mmio twin counts the same."""

    period = 1.0

    def __init__(self, sysfs: str = "/sys") -> None:
        self._root = Path(sysfs) / "class" / "powercap"
        self.pattern = f"{self._root}/intel-rapl:*"
        self._domains: dict[Path, Domain] = {}
        self._gaps: list[Gap] = []
        self._rescan = float("-inf")

    def read(self, now: Instant) -> Sample:
        if now.mono >= self._rescan:
            self._scan()
            self._rescan = now.mono + RESCAN
        readings: list[Reading] = []
        gaps = list(self._gaps)
        for domain in self._domains.values():
            try:
                raw = read_count(domain.energy)
            except DeviceError as error:
                detail = error.detail + (REMEDY if error.reason is Reason.DENIED else "")
                gaps.append(Gap(ENERGY, Node(), error.reason, detail))
                continue
            readings.append(Reading(domain.series, domain.advance(raw, now.mono)))
        return Sample(readings=readings, gaps=gaps, calls=len(self._domains))

    def _scan(self) -> None:
        """Find the domains; one that is known already keeps its count."""
        found: dict[Path, Domain] = {}
        self._gaps = []
        for zone in sorted(self._root.glob("intel-rapl:*")):
            if zone in self._domains:
                found[zone] = self._domains[zone]
                continue
            try:
                name, wrap = self._name(zone), read_count(zone / "max_energy_range_uj")
            except DeviceError as error:
                self._gaps.append(Gap(ENERGY, Node(), error.reason, error.detail))
                continue
            if any(domain.series.labels == (("domain", name),) for domain in found.values()):
                name += zone.name[zone.name.rindex(":") :].replace(":", "-")  # each of two sockets may have a psys
            found[zone] = Domain(zone / "energy_uj", wrap, Series(ENERGY, Node(), (("domain", name),)))
        self._domains = found

    def _name(self, zone: Path) -> str:
        """`package-0`; for a part of it, `intel-rapl:0:1`, with its parent before it: `package-0-dram`."""
        name = read_text(zone / "name")
        parent, _, _ = zone.name.rpartition(":")
        return f"{read_text(self._root / parent / 'name')}-{name}" if parent.count(":") else name
