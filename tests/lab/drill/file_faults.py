"""Faults of sysfs: files that block, fail, hold garbage, or are gone."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.lab.drill.drilled_daemon import Drill, Page
from tests.lab.drill.fault import Fault, Seen, either, shrunk

PORT = "mlx5_3"
ADAPTER = f"{PORT}/ports/1/"


def _told(title: str, expected: str, noticed: Seen, *commands: str) -> Fault:
    return Fault(
        title,
        expected,
        lambda drill: drill.firmware.command(*commands),
        lambda drill: drill.firmware.command(),
        noticed,
        device=True,
    )


def port_missing(before: Page, now: Page) -> bool:
    return now.total("coldplate_metric_missing", device=PORT) > before.total("coldplate_metric_missing", device=PORT)


class _SpoiledFiles:
    """Every counter of a port says something else than a number, in the files that are open already."""

    CONTENTS = (b"", b"\xff\xfe\x00" * 1000, b"-1\n", b"nan\n", b"9" * 40 + b"\n", b"7" * (4 << 20), b"N/A (no PMA)\n")

    def __init__(self) -> None:
        self._was: dict[Path, bytes] = {}

    def provoke(self, drill: Drill) -> None:
        folder = drill.sysfs / "class/infiniband" / ADAPTER
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for number, path in enumerate(files):
            self._was[path] = path.read_bytes()
            path.write_bytes(self.CONTENTS[number % len(self.CONTENTS)])

    def cure(self, drill: Drill) -> None:
        for path, content in self._was.items():
            path.write_bytes(content)
        self._was.clear()


class _MissingPort:
    """The adapter of a port is gone from the bus, as after a surprise removal: files that are open say so."""

    def provoke(self, drill: Drill) -> None:
        (drill.sysfs / "class/infiniband" / PORT).rename(drill.folder / PORT)
        drill.firmware.command(f"fail {errno.ENODEV} {ADAPTER}")

    def cure(self, drill: Drill) -> None:
        (drill.folder / PORT).rename(drill.sysfs / "class/infiniband" / PORT)
        drill.firmware.command()


_SPOILED, _MISSING = _SpoiledFiles(), _MissingPort()
OTHERS = "the rows of this port are missing with a reason, the others are read on"
SILENT = either(port_missing, shrunk("coldplate_backend_up", backend="infiniband"))

FILE_FAULTS = (
    _told("an InfiniBand port's state hangs", OTHERS, port_missing, f"hang {ADAPTER}state"),
    _told("all files of an InfiniBand port hang", OTHERS, port_missing, f"hang {ADAPTER}"),
    _told("all files of InfiniBand hang", "the ports are missing, all else is sampled on", SILENT, "hang /infiniband/"),
    _told("all files of a port end with EIO", OTHERS, port_missing, f"fail {errno.EIO} {ADAPTER}"),
    _told("all files of a port end with EINVAL", OTHERS, port_missing, f"fail {errno.EINVAL} {ADAPTER}"),
    Fault("garbage in all files of a port", OTHERS, _SPOILED.provoke, _SPOILED.cure, port_missing, device=True),
    Fault(
        "an InfiniBand adapter is gone",
        "its rows are missing as lost, the others are read on",
        _MISSING.provoke,
        _MISSING.cure,
        either(port_missing, shrunk("coldplate_infiniband_port_up")),
        device=True,
    ),
)
