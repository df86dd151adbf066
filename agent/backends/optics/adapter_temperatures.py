"""Temperatures of network adapters and of the transceivers in them, which their drivers offer as hwmon sensors.

mlx5 has them from Linux 6.6 on: one of its chip, and one of each transceiver that was there when it was loaded
(drivers/net/ethernet/mellanox/mlx5/core/hwmon.c). They are those of adapters of InfiniBand as well.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from agent.backends.file_reader_pool import CaughtRead, DeviceReads, FileReaderPool, PathRead, UnansweredError
from agent.backends.firmware_files import FirmwareFiles
from agent.backends.protocol import AbsentError, BackendSample, DeviceError, device_error
from agent.backends.sysfs import list_if_possible, printable, text, text_if_possible
from agent.catalogue.optics import HCA_TEMPERATURE, HCA_TEMPERATURE_LIMIT
from agent.model import Gap, Node, Reading, Reason, Series

SEARCH_SECONDS = 60.0
"""Seconds after which sensors are looked for again."""
SENSORS = 256
"""Most sensors that are read: of 64 adapters with a chip and two or three transceivers."""
_CLASSES = ("infiniband", "net")
"""An adapter has the name of its RDMA device, as its other metrics do, else that of its interface."""
_INPUT = re.compile(r"temp([0-9]{1,3})_input")
_MILLIDEGREES = re.compile(r"-?[0-9]{1,7}")
_MILLI = 1e-3


class AdapterSensor(NamedTuple):
    """One file with a temperature, and the series that it feeds."""

    path: str
    series: Series
    limit: Reading | None
    """The temperature that the driver calls critical, which does not change."""


def read_degrees(path: str) -> float:
    """Return a temperature. Raises DeviceError."""
    try:
        content = text(path)
    except OSError as error:
        raise device_error(path, error) from error
    if not _MILLIDEGREES.fullmatch(content):
        raise DeviceError(Reason.MALFORMED, f"{path}: contains {content[:32]!a}, expected millidegrees")
    return int(content) * _MILLI


def _sensors_by_adapter(sysfs: str) -> dict[str, list[AdapterSensor]]:
    sensors_by_adapter: dict[str, list[AdapterSensor]] = {}
    remaining = SENSORS
    for name, hardware in _adapters(sysfs):
        sensors = list(_sensors_of(name, hardware))[:remaining]
        if sensors:
            sensors_by_adapter[name] = sensors
            remaining -= len(sensors)
    return sensors_by_adapter


def _adapters(sysfs: str) -> Iterator[tuple[str, str]]:
    """Yield names and folders of the adapters, each once. Virtual functions have no sensors of their own."""
    adapters = set()
    for kind in _CLASSES:
        folder = f"{sysfs}/class/{kind}"
        for name in list_if_possible(folder):
            hardware = os.path.realpath(f"{folder}/{name}/device")
            if hardware not in adapters and not os.path.exists(f"{hardware}/physfn"):  # noqa: PTH110 - Path's may raise
                adapters.add(hardware)
                yield printable(name), hardware


class AdapterTemperatures:
    """Reads the sensors that were found last, each adapter by itself: its firmware answers."""

    rows = (HCA_TEMPERATURE, HCA_TEMPERATURE_LIMIT)

    def __init__(self, sysfs: str, pool: FileReaderPool) -> None:
        folders = f"{sysfs}/class/{{{','.join(_CLASSES)}}}/*/device/hwmon"
        self._search = PathRead(folders, lambda _: _sensors_by_adapter(sysfs))
        self._pool = pool
        self._files = FirmwareFiles(pool)
        self._sensors: dict[str, list[AdapterSensor]] = {}
        self._due = float("-inf")

    def read(self, mono: float) -> BackendSample:
        """Return all. Raises AbsentError if no adapter has a sensor, and DeviceError if that is not known."""
        if mono >= self._due:
            sensors_by_adapter = self._pool.read(self._search, mono)
            if isinstance(sensors_by_adapter, UnansweredError):
                raise sensors_by_adapter
            self._sensors, self._due = sensors_by_adapter, mono + SEARCH_SECONDS
        if not self._sensors:
            raise AbsentError(f"no sensor in {self._search.path}")
        batches = [
            DeviceReads(f"sensors of {name}", [CaughtRead(s.path, read_degrees, DeviceError) for s in sensors])
            for name, sensors in self._sensors.items()
        ]
        readings: list[Reading] = []
        gaps: list[Gap] = []
        for sensors, answers in zip(self._sensors.values(), self._files.round(batches, mono), strict=True):
            for sensor, answer in zip(sensors, answers, strict=True):
                if isinstance(answer, float):
                    readings.append(Reading(sensor.series, answer))
                    if sensor.limit:
                        readings.append(sensor.limit)
                else:
                    gaps.append(Gap(HCA_TEMPERATURE, Node(), answer.reason, answer.detail))
        return BackendSample(readings, gaps, calls=sum(map(len, self._sensors.values())))


def _sensors_of(name: str, hardware: str) -> Iterator[AdapterSensor]:
    """Yield each sensor of an adapter once, by its label; two with the same label keep their number beside it."""
    labels_in_use = set()
    for chip in list_if_possible(f"{hardware}/hwmon"):
        folder = f"{hardware}/hwmon/{chip}"
        for file in list_if_possible(folder):
            if not (channel := _INPUT.fullmatch(file)):
                continue
            label = printable(text_if_possible(f"{folder}/temp{channel[1]}_label")) or f"temp{channel[1]}"
            if label in labels_in_use:
                label = f"{label} {chip} {channel[1]}"
            labels_in_use.add(label)
            labels = (("device", name), ("sensor", label))
            limit = _limit_in(f"{folder}/temp{channel[1]}_crit")
            yield AdapterSensor(
                f"{folder}/{file}",
                Series(HCA_TEMPERATURE, Node(), labels),
                None if limit is None else Reading(Series(HCA_TEMPERATURE_LIMIT, Node(), labels), limit),
            )


def _limit_in(path: str) -> float | None:
    """Return a limit in degrees; None if missing. A driver gives 0 if the module states no limit."""
    with suppress(DeviceError):
        degrees = read_degrees(path)
        return degrees if degrees > 0 else None
    return None
