"""Energy of processor packages and memory, from RAPL through /sys/class/powercap.

This is a part of the node, and with eight GPUs a tenth of it: it is never used as node power. The hardware counters
wrap within minutes to an hour; here each becomes one that only grows. Linux lets only root read them (since 5.10).
"""

from functools import partial

from msgspec import Struct

from agent.backends.file_reader_pool import CaughtRead, FileReaderPool
from agent.backends.protocol import BackendSample, DeviceError
from agent.backends.sysfs import list_paths, read_name, read_number
from agent.catalogue.node import RAPL
from agent.model import Gap, Instant, Metric, Node, Reading, Reason, Series

ENERGY, PART_ENERGY, PLATFORM_ENERGY = RAPL
"""Gaps are shown under the first, which every node with RAPL has."""

MICRO = 1e-6
RESCAN_SECONDS = 60.0
RESCAN_TROUBLED_SECONDS = 5.0
"""Seconds after which zones are looked for again while one of them cannot be looked into."""
ZONES = 256
"""Most zones that are looked into: a node with two sockets has some ten."""
MAX_WATTS = 5000.0
"""Watts that no RAPL domain draws: if a fall taken as a wrap would need more, the counter was reset."""

REMEDY = "; udev/70-coldplate.rules lets the agent's group read it: udevadm trigger --subsystem-match=powercap"


class RaplDomain(Struct):
    """One RAPL domain: its series, the range of its counter (`wrap`), and its energy so far (`total`), in microjoules.

    `last` is the counter at the monotonic second `at`. The energy begins with what the counter shows at first.
    """

    wrap: int
    series: Series
    last: int | None = None
    at: float = 0.0
    total: int = 0

    def advance(self, raw: int, mono: float) -> float:
        """Add what the counter grew by; return the joules that the series shows."""
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


class RaplZone(Struct, frozen=True):
    """A zone's name, and the value at which its counter wraps."""

    name: str
    wrap: int


def _zone_at(path: str) -> RaplZone:
    return RaplZone(read_name(f"{path}/name"), read_number(f"{path}/max_energy_range_uj"))


class RaplEnergy:
    """All RAPL domains of the node. `intel-rapl` is the name on AMD, too; its mmio twin counts the same energy."""

    def __init__(self, sysfs: str, pool: FileReaderPool) -> None:
        self._root = f"{sysfs}/class/powercap"
        self.pattern = f"{self._root}/intel-rapl:*"
        self._left_out = 0
        self._pool = pool
        self._zones: dict[str, RaplZone] = {}
        self._domains: dict[str, RaplDomain] = {}
        self._gaps: list[Gap] = []
        self._rescan = float("-inf")

    def read(self, now: Instant) -> BackendSample:
        """Return every domain's energy. A zone that hangs affects only itself."""
        if now.mono >= self._rescan:
            self._scan(now.mono)
            self._rescan = now.mono + (RESCAN_TROUBLED_SECONDS if self._gaps else RESCAN_SECONDS)
        readings: list[Reading] = []
        gaps = list(self._gaps)
        reads = [CaughtRead(f"{zone}/energy_uj", read_number, DeviceError) for zone in self._domains]
        answers = self._pool.read_each(reads, now.mono)
        for read, domain, raw in zip(reads, self._domains.values(), answers, strict=True):
            if not isinstance(raw, int):
                gaps.append(_gap(raw))
            elif raw > domain.wrap:
                detail = f"{read.path}: {raw} exceeds the counter's range of {domain.wrap}"
                gaps.append(Gap(ENERGY, Node(), Reason.MALFORMED, detail))
            else:
                readings.append(Reading(domain.series, domain.advance(raw, now.mono)))
        return BackendSample(readings, gaps, calls=len(self._domains), left_out=self._left_out)

    def _scan(self, mono: float) -> None:
        """Find the domains; those already known keep their count."""
        entries = CaughtRead(self._root, partial(list_paths, prefix="intel-rapl:"), DeviceError)
        listed = self._pool.read(entries, mono)
        if not isinstance(listed, list):
            self._gaps = [_gap(listed)]
            return
        paths, self._left_out = listed[:ZONES], max(len(listed) - ZONES, 0)
        fresh = [path for path in paths if path not in self._zones]
        answers = self._pool.read_each([CaughtRead(path, _zone_at, DeviceError) for path in fresh], mono)
        self._gaps = [_gap(answer) for answer in answers if isinstance(answer, DeviceError)]
        zones = {**self._zones, **dict(zip(fresh, answers, strict=True))}
        self._zones = {path: zone for path in paths if isinstance(zone := zones[path], RaplZone)}
        self._name_domains()

    def _name_domains(self) -> None:
        """Name each `package-0`; a part of it, `intel-rapl:0:1`, with its parent before it: `package-0-dram`."""
        domains: dict[str, RaplDomain] = {}
        names: set[str] = set()
        for path, zone in self._zones.items():
            name, (parent, _, number) = zone.name, path.rpartition(":")
            nested = ":" in parent.removeprefix(f"{self._root}/")
            if nested:
                if parent not in self._zones:
                    self._gaps.append(Gap(ENERGY, Node(), Reason.LOST, f"{path}: its parent {parent} is unknown"))
                    continue
                name = f"{self._zones[parent].name}-{name}"
            if name in names:
                name += f"-{number}"  # each of two sockets may have a psys
            if name in names:
                self._gaps.append(Gap(ENERGY, Node(), Reason.MALFORMED, f"{path}: a second zone is named {name}"))
                continue
            names.add(name)
            series = Series(_row(zone.name, nested), Node(), (("domain", name),))
            before = self._domains.get(path)
            domains[path] = before if before is not None and before.series == series else RaplDomain(zone.wrap, series)
        self._domains = domains


def _row(zone: str, nested: bool) -> Metric:
    """Return the row of a zone. In sysfs memory is below its package, but the package's energy does not include it.

    Source: Intel's Software Developer's Manual, volume 3, "RAPL domains".
    """
    if nested:
        return ENERGY if zone.startswith("dram") else PART_ENERGY
    return PLATFORM_ENERGY if zone.startswith("psys") else ENERGY


def _gap(error: DeviceError) -> Gap:
    forbidden = isinstance(error.__cause__, PermissionError)
    return Gap(ENERGY, Node(), error.reason, error.detail + (REMEDY if forbidden else ""))
