"""Power that the firmware measures and Linux exposes under /sys/class/hwmon as ACPI power meters.

Only devices of the driver acpi_power_meter count (its hwmon name is `power_meter`): other hwmon power files belong to a
voltage regulator, a power supply or an adapter.

NVIDIA Grace has meters of parts, named in power1_oem_info: `Module Power Socket 0` (Grace with its GPUs), `Grace Power
Socket 0`, `CPU Power Socket 0`, `SysIO Power Socket 0`. Even the sum of the modules is not node power: it excludes
network adapters, disks, fans and conversion losses. Any other meter measures the whole node, if it is the only one.

To look for meters costs nothing; each read of one runs code of the firmware (ACPI method _PMM).
"""

import re
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from agent.backends.file_reader_pool import CaughtRead, DeviceReads, FileReaderPool, UnansweredError
from agent.backends.firmware_files import FirmwareFiles
from agent.backends.polled_source import PollableSource
from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.backends.sysfs import list_if_possible, list_paths, read_name, read_number, read_text
from agent.catalogue.node import METERS as METER_ROWS
from agent.model import Gap, Instant, Node, Reading, Reason, Series

MODULE, GRACE, COMPONENT = METER_ROWS
"""Gaps are shown under the last: what a meter that cannot be read would have measured is unknown."""

WHOLES = {"module": MODULE, "grace": GRACE}
"""The row of all other parts."""

MICRO = 1e-6
RESCAN_SECONDS = 60.0
RESCAN_TROUBLED_SECONDS = 5.0
"""Seconds after which meters are looked for again while a device cannot be looked into."""
DEVICES = 1_024
"""Most devices that are looked into: a large node has some hundreds of sensors."""
METERS = 64
UNKNOWN_MICROWATTS = 0xFFFFFFFF * 1000
"""What the driver shows where the firmware answers all ones, for an error (ACPI 6.5, 10.4.1; lm-sensors issue 460)."""
_PART = re.compile(r"([A-Za-z][A-Za-z0-9 ]{0,31}) Power Socket (\d{1,4})")
_POWER = re.compile(r"(power\d{1,3})(_average|_input)")


class HwmonMeter(Struct, frozen=True):
    """One power file; `label` is the meter's name, empty if it has none, and `series` that of a part."""

    path: str
    label: str
    series: Series | None


def _meters_of(device: str) -> list[HwmonMeter]:
    """Return the meters of a device; none if it is of another kind. Raises DeviceError."""
    if _name_in(f"{device}/name") != "power_meter":
        return []
    channels: dict[str, str] = {}
    for suffix in ("_average", "_input"):
        for folder in (device, f"{device}/device"):
            for channel in _channels(folder, suffix):
                channels.setdefault(channel, f"{folder}/{channel}{suffix}")
    labels = {channel: _oem_label(device, channel) for channel in channels}
    return [HwmonMeter(path, labels[channel], part_series(labels[channel])) for channel, path in channels.items()]


def _channels(folder: str, suffix: str) -> list[str]:
    """Return the power channels that have a file in the folder with this suffix."""
    matches = [_POWER.fullmatch(name) for name in list_if_possible(folder)]  # only one of the two folders has them
    return [match[1] for match in matches if match and match[2] == suffix][:METERS]


def _name_in(path: str) -> str:
    """Return the file's content; empty if there is no such file. Raises DeviceError for any other reason."""
    try:
        return read_text(path)
    except DeviceError as error:
        if error.reason is Reason.UNSUPPORTED:
            return ""
        raise


def _oem_label(device: str, channel: str) -> str:
    """Return the name in `CHANNEL_label`, or in `CHANNEL_oem_info` beside it or with the ACPI device."""
    for name in (f"{channel}_label", f"{channel}_oem_info", f"device/{channel}_oem_info"):
        if _name_in(f"{device}/{name}"):
            return read_name(f"{device}/{name}")
    return ""


def read_microwatts(path: str) -> int:
    """Return what a meter measures. Raises DeviceError."""
    microwatts = read_number(path)
    if microwatts >= UNKNOWN_MICROWATTS:
        raise DeviceError(Reason.IMPLAUSIBLE, f"{path}: the firmware answers with an error ({microwatts} microwatts)")
    return microwatts


def part_series(label: str) -> Series | None:
    """Return the series of a part, from the meter's name; None if the name is not that of a part."""
    match = _PART.fullmatch(label)
    if match is None:
        return None
    component, socket = match.group(1).lower().replace(" ", "_"), ("socket", match.group(2))
    if component in WHOLES:
        return Series(WHOLES[component], Node(), (socket,))
    return Series(COMPONENT, Node(), (("component", component), socket))


class HwmonPower(PollableSource):
    """The ACPI power meters: `parts`, and the `watts` of the whole node."""

    name = "hwmon"
    period = 1.0  # the meter's own interval is 1 s by default, and a read may go through the firmware
    first_retry = last_retry = denied_retry = period  # a meter that fails is left alone by `FirmwareFiles`

    def __init__(self, sysfs: str, pool: FileReaderPool) -> None:
        self._root = f"{sysfs}/class/hwmon"
        self._pool = pool
        self._files = FirmwareFiles(pool)
        self._left_out = 0
        self._by_device: dict[str, list[HwmonMeter]] = {}
        self._meters: list[HwmonMeter] = []
        self._gaps: list[Gap] = []
        self._rescan = float("-inf")
        self._mono = float("-inf")

    def watts(self) -> float:
        """Read the one meter that measures the node, found by `parts`. Raises AbsentError or DeviceError."""
        # Beside meters of parts, one with an unknown name is more likely another part than the whole.
        has_parts = any(meter.series for meter in self._meters)
        whole = [meter for meter in self._meters if not meter.series and not (meter.label and has_parts)]
        if not whole:
            raise AbsentError(f"no power meter for the whole node under {self._root}")
        if len(whole) > 1:
            paths = ", ".join(meter.path for meter in whole)
            raise DeviceError(Reason.UNSUPPORTED, f"not known which meter measures the whole node: {paths}")
        (answer,) = self._read(whole)
        if isinstance(answer, DeviceError):
            raise answer
        return answer * MICRO

    def parts(self, now: Instant) -> BackendSample:
        """Return the named meters. The meters are looked for here, so this is called before `watts`."""
        self._mono = now.mono
        if now.mono >= self._rescan:
            self._scan(now.mono)
            self._rescan = now.mono + (RESCAN_TROUBLED_SECONDS if self._gaps else RESCAN_SECONDS)
        meters = {meter: meter.series for meter in self._meters if meter.series is not None}
        readings: list[Reading] = []
        gaps = list(self._gaps)
        for series, answer in zip(meters.values(), self._read(list(meters)), strict=True):
            if isinstance(answer, DeviceError):
                gaps.append(Gap(series.metric, Node(), answer.reason, answer.detail))
            else:
                readings.append(Reading(series, answer * MICRO))
        return BackendSample(readings, gaps, calls=len(meters), left_out=self._left_out)

    def _read(self, meters: Sequence[HwmonMeter]) -> list[int | DeviceError]:
        """Return what each meter answers, in microwatts."""
        reads = [DeviceReads(meter.path, [CaughtRead(meter.path, read_microwatts, DeviceError)]) for meter in meters]
        return [answer for (answer,) in self._files.round(reads, self._mono)]

    def _scan(self, mono: float) -> None:
        """Find the meters. Those of a device that cannot be looked into now stay: their own reads will show why."""
        listed = self._pool.read(CaughtRead(self._root, partial(list_paths, prefix="hwmon"), DeviceError), mono)
        if not isinstance(listed, list):
            self._gaps = [_gap(listed)]
            return
        devices, self._left_out = listed[:DEVICES], max(len(listed) - DEVICES, 0)
        answers = self._pool.read_each([CaughtRead(device, _meters_of, DeviceError) for device in devices], mono)
        before, self._by_device, self._gaps = self._by_device, {}, []
        for device, answer in zip(devices, answers, strict=True):
            if isinstance(answer, list):
                self._by_device[device] = answer
                continue
            self._gaps.append(_gap(answer))
            if isinstance(answer, UnansweredError):
                self._by_device[device] = before.get(device, [])
        self._set_meters([meter for meters in self._by_device.values() for meter in meters])

    def _set_meters(self, meters: Sequence[HwmonMeter]) -> None:
        """Take in these meters, up to the limit; of two with one name, the first."""
        self._meters = []
        parts: dict[Series, HwmonMeter] = {}
        for meter in meters:
            first = parts.setdefault(meter.series, meter) if meter.series is not None else meter
            if first is not meter:
                detail = f"{meter.path} and {first.path} are both named {meter.label!r}"
                row = COMPONENT if meter.series is None else meter.series.metric
                self._gaps.append(Gap(row, Node(), Reason.MALFORMED, detail))
            elif len(self._meters) < METERS:
                self._meters.append(meter)
            else:
                self._left_out += 1


def _gap(error: DeviceError) -> Gap:
    return Gap(COMPONENT, Node(), error.reason, error.detail)
