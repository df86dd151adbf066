"""The recent Prometheus that we are held against: the one that `make newest` brought, or one of the machine's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.lab.bring.programs import is_recent

ROOT = Path(__file__).resolve().parents[3]
BROUGHT = ROOT / ".programs" / "newest"


class MissingError(Exception):
    """There is no program to compare with."""


class Recent(NamedTuple):
    """Programs of one version, and the test scripts of Prometheus's authors, where they could be had."""

    prometheus: str
    promtool: str
    version: str
    scripts: Path | None


SHOWN = 20
"""Differences that are written out."""


def told(what: str, differences: Iterator[str]) -> bool:
    """Print the first differences and how many there are; whether there is none."""
    found = 0
    for found, difference in enumerate(differences, 1):
        if found <= SHOWN:
            print(difference)
    print(f"{what}; {found} differ")
    return not found


def find() -> Recent:
    """The programs that were brought, else the machine's. Raises MissingError."""
    prometheus, promtool = (_program(name) for name in ("prometheus", "promtool"))
    told = subprocess.run([prometheus, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version (\S+)", told.stdout + told.stderr)
    releases = sorted((BROUGHT / "scripts").glob("prometheus-*"))
    return Recent(prometheus, promtool, version[1] if version else "?", releases[-1] if releases else None)


def _program(name: str) -> str:
    places = [BROUGHT / "usr" / "bin" / name]
    if own := shutil.which(name):
        places.append(Path(own))
    reasons = []
    for place in places:
        if not (reason := is_recent(place)):
            return str(place)
        reasons.append(f"{place}: {reason}")
    raise MissingError("; ".join(reasons) + "; make newest brings one from Debian")
