"""Power that the firmware measures and Linux shows under /sys/class/hwmon as ACPI power meters.

Only devices of the driver acpi_power_meter count (its hwmon name is `power_meter`): other hwmon power
files belong to a voltage regulator, a power supply or an adapter.

NVIDIA Grace has meters of parts, named in power1_oem_info: `Module Power Socket 0` (Grace with its
GPUs), `Grace Power Socket 0`, `CPU Power Socket 0`, `SysIO Power Socket 0`. Parts are shown as parts.
Even the sum of the modules is no node power: network adapters, disks, fans and conversion losses
stand outside it. Any other meter measures the whole node, if it is the only one; with several, nobody
can tell the whole from a part, and none is shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from agent.backends.power.files import read_count, read_text
from agent.backends.protocol import AbsentError, DeviceError, Sample
from agent.catalogue.node import POWER_PARTS
from agent.model import Gap, Instant, Node, Reading, Reason, Series

COMPONENT, _ = POWER_PARTS

MICRO = 1e-6
RESCAN = 60.0
_PART = re.compile(r"([A-Za-z][A-Za-z0-9 ]{0,31}) Power Socket (\d{1,4})")


class Meter(NamedTuple):
    """One power file; `label` is the meter's name, empty if it has none, and `series` that of a part."""

    path: Path
    label: str
    series: Series | None


def _oem_label(device: Path, channel: str) -> str:
    """The name in `CHANNEL_label`, or in `CHANNEL_oem_info` beside it or with the ACPI device."""
    for name in (f"{channel}_label", f"{channel}_oem_info", f"device/{channel}_oem_info"):
        path = device / name
        if path.exists():
            label = read_text(path)
            if label:
                return label
    return ""


def part_series(label: str) -> Series | None:
    """The series of a part, from the meter's name; None if the name is not that of a part."""
    match = _PART.fullmatch(label)
    if match is None:
        return None
    component = match.group(1).lower().replace(" ", "_")
    return Series(COMPONENT, Node(), (("component", component), ("socket", match.group(2))))


class Hwmon:
    """The ACPI power meters: `watts` of the whole node, and `parts`."""

    name = "hwmon"
    period = 1.0  # the meter's own interval is 1 s by default, and a read may go through the firmware
    configured = False
    slow = False

    def __init__(self, sysfs: str = "/sys") -> None:
        self._root = Path(sysfs) / "class" / "hwmon"
        self._meters: list[Meter] = []
        self._gaps: list[Gap] = []
        self._rescan = float("-inf")

    def close(self) -> None:
        """Nothing is held open between reads."""

    def watts(self) -> float:
        # Beside meters of parts, one with an unknown name is more likely another part than the whole.
        has_parts = any(meter.series for meter in self._meters)
        whole = [meter for meter in self._meters if not meter.series and not (meter.label and has_parts)]
        if not whole:
            raise AbsentError(f"no power meter of the whole node under {self._root}")
        if len(whole) > 1:
            paths = ", ".join(str(meter.path) for meter in whole)
            raise DeviceError(Reason.UNSUPPORTED, f"cannot tell which meter measures the whole node: {paths}")
        return read_count(whole[0].path) * MICRO

    def parts(self, now: Instant) -> Sample:
        """The named meters. Looks for meters too, so it is read before `watts`."""
        if now.mono >= self._rescan:
            self._scan()
            self._rescan = now.mono + RESCAN
        readings: list[Reading] = []
        gaps = list(self._gaps)
        parts = [(meter.series, meter.path) for meter in self._meters if meter.series is not None]
        for series, path in parts:
            try:
                readings.append(Reading(series, read_count(path) * MICRO))
            except DeviceError as error:
                gaps.append(Gap(COMPONENT, Node(), error.reason, error.detail))
        return Sample(readings=readings, gaps=gaps, calls=len(parts))

    def _scan(self) -> None:
        self._meters, self._gaps = [], []
        for device in sorted(self._root.glob("hwmon*")):
            try:
                for meter in self._meters_of(device):
                    self._admit(meter)
            except DeviceError as error:
                self._gaps.append(Gap(COMPONENT, Node(), error.reason, error.detail))

    def _admit(self, meter: Meter) -> None:
        for known in self._meters:
            if meter.series is not None and meter.series == known.series:
                detail = f"{meter.path} and {known.path} are both named {meter.label!r}"
                raise DeviceError(Reason.MALFORMED, detail)
        self._meters.append(meter)

    def _meters_of(self, device: Path) -> list[Meter]:
        if not (device / "name").exists() or read_text(device / "name") != "power_meter":
            return []
        channels: dict[str, Path] = {}
        for suffix in ("_average", "_input"):
            for path in sorted(device.glob(f"power*{suffix}")) + sorted(device.glob(f"device/power*{suffix}")):
                channels.setdefault(path.name.removesuffix(suffix), path)
        labels = {channel: _oem_label(device, channel) for channel in channels}
        return [Meter(path, labels[channel], part_series(labels[channel])) for channel, path in channels.items()]
