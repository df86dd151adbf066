"""Sysfs trees from plain-text archives, and the backend that reads them.

Text, so that a kernel's paths (colons, commas, links) survive git and a reviewer can read the diff.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.backends.infiniband import InfinibandBackend, sysfs_attribute
from agent.backends.protocol import BackendSample
from agent.model import LANES, Gap, Instant, Lane, Reading, Reason

FIXTURES = Path(__file__).parent / "fixtures"

Open = Callable[..., InfinibandBackend]


def unpack_archive(archive: Path, root: Path, only: Collection[str] = ()) -> Path:
    """Make the tree that the archive describes under `root`; its header explains the notation.

    `only` names the InfiniBand devices to make, when not all are wanted.
    """
    directory: Path | None = root
    for line in _repeated(archive.read_text()).splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            directory = root / line[1:-1] if _wanted(line[1:-1], only) else None
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
        elif " -> " in line:
            path, target = line.split(" -> ")
            if _wanted(path, only):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).symlink_to(target)
        elif directory is not None:
            name, _, value = line.partition(" ")
            (directory / name).write_text(f"{value}\n" if value else "")
    return root


def _repeated(text: str) -> str:
    """Write out what stands between `repeat` and `end`, once for each row of the table it begins with."""

    def written_out(block: re.Match[str]) -> str:
        names, *rows = (line.split() for line in block["table"].splitlines())
        return "".join(block["body"].format(**dict(zip(names, row, strict=True))) for row in rows)

    return re.sub(r"^repeat (?P<table>.+?)\n\n(?P<body>.+?)^end$", written_out, text, flags=re.DOTALL | re.MULTILINE)


def _wanted(path: str, only: Collection[str]) -> bool:
    device = re.search(r"infiniband/([^/]+)", path)
    return not only or device is None or device[1] in only


class Page:
    """What reading all lanes gave, found by metric name and labels as a scraper would."""

    def __init__(self, samples: dict[Lane, BackendSample]) -> None:
        assert all(each.metric.lane is lane for lane, sample in samples.items() for each in sample.readings)
        self.readings: list[Reading] = [each for sample in samples.values() for each in sample.readings]
        self.gaps: list[Gap] = [each for sample in samples.values() for each in sample.gaps]
        assert len({each.series for each in self.readings}) == len(self.readings), "a series appears once"

    def value(self, name: str, **labels: str) -> float:
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [
            each.value
            for each in self.readings
            if each.metric.name == f"coldplate_infiniband_{name}" and wanted <= dict(each.series.all_labels).items()
        ]

    def gap(self, name: str, device: str) -> Gap:
        (found,) = [
            each
            for each in self.gaps
            if each.metric.name == f"coldplate_infiniband_{name}" and dict(each.entity.labels)["device"] == device
        ]
        return found


def of(sample: BackendSample, device: str = "mlx5_0") -> dict[str, float | Reason]:
    """What a sample says of one device: a value or a reason, by the row's suffix."""
    said: dict[str, float | Reason] = {}
    found: list[Reading | Gap] = [*sample.readings, *sample.gaps]
    for each in found:
        if dict(each.entity.labels)["device"] == device:
            suffix = each.metric.name.removeprefix("coldplate_infiniband_")
            assert suffix not in said, f"{suffix} is both there and missing"
            said[suffix] = each.reason if isinstance(each, Gap) else each.value
    return said


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The sysfs of an archive, made once for all tests: to be read, never changed."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = unpack_archive(FIXTURES / f"{name}.txt", tmp_path_factory.mktemp(name))
        return made[name]

    return make


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[..., Path]:
    """A sysfs of the test's own, with the devices that it names."""
    return lambda name, *only: unpack_archive(FIXTURES / f"{name}.txt", tmp_path / name, only)


Pread = Callable[[int, int, int], bytes]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open a backend; every file of sysfs is read by `pread`, if it is given, which may fail or hang as a driver."""
    backends: list[InfinibandBackend] = []

    def make(sysfs: Path | str, pread: Pread | None = None, **options: Any) -> InfinibandBackend:
        if pread is not None:
            monkeypatch.setattr(sysfs_attribute, "pread", pread)
            monkeypatch.setattr(sysfs_attribute, "text", partial(_text, pread))
        backends.append(InfinibandBackend(sysfs, **options))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()


def _text(pread: Pread, path: str) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return pread(fd, 4096, 0).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)


@pytest.fixture
def held() -> Callable[[Path], list[str]]:
    """The files below a folder that this process holds open, unlinked ones included."""

    def look(folder: Path) -> list[str]:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [file for file in (os.readlink(link) for link in links if os.path.islink(link)) if str(folder) in file]

    return look


@pytest.fixture
def now() -> Instant:
    return Instant(mono=100.0, wall=1_800_000_000.0)


@pytest.fixture
def page(now: Instant) -> Callable[[InfinibandBackend], Page]:
    return lambda backend: Page({lane: backend.read(lane, now) for lane in LANES})
