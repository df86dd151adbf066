"""The recent Prometheus that we are held against: the one that `make newest` brought, or one of the machine's own."""

import re
import shutil
import subprocess
from collections import Counter
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


Judged = Iterator[tuple[str, str]]
"""For each thing that was compared a verdict, and the words to write out if it is DIFFERS."""
DIFFERS, ALIKE = "DIFFER", "alike"
SHOWN = 20
"""Differences that are written out."""
PROGRESS = 5_000


def tally(what: str, judged: Judged) -> bool:
    """Print the first differences, and how many there are of each verdict; whether none differs."""
    counts = Counter[str]()
    for number, (verdict, words) in enumerate(judged, 1):
        counts[verdict] += 1
        if verdict == DIFFERS and counts[DIFFERS] <= SHOWN:
            print(words, flush=True)
        if number % PROGRESS == 0:
            print(f"{what}: {number} so far, {counts[DIFFERS]} differ", flush=True)
    print(f"{what}: {sum(counts.values())}")
    for verdict, amount in counts.most_common():
        print(f"{amount:7} {verdict}")
    return not counts[DIFFERS]


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
