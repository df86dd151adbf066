"""`make test-systemd`: the shipped units on a real systemd, in a machine of their own."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, ModuleType

from tests.lab.systemd import emulated, namespaces

HERE = Path(__file__).resolve().parent
PACKAGED = ("packaged", "start", "doctor", "confined", "reload", "broker", "unpackaged")
"""The checks for a package: its own, and those that show that the service works as one of `make install` does."""
MACHINES = {"namespace": namespaces, "full": emulated}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-systemd", description=__doc__)
    parser.add_argument("--machine", choices=("any", *MACHINES), default="any", help="any: the first that can be had")
    parser.add_argument("--keep", type=float, default=0.0, help="seconds that the machine stays afterwards")
    parser.add_argument("--package", type=Path, help="try this Debian package, in the place of `make install`")
    arguments = parser.parse_args()
    if arguments.package is not None:
        os.environ["PACKAGE"] = str(arguments.package.resolve(strict=True))
        os.environ.setdefault("MODULES", " ".join(PACKAGED))
    signal.signal(signal.SIGTERM, _end)
    name, lacking = _choose(MACHINES if arguments.machine == "any" else (arguments.machine,))
    if lacking:
        print(f"SKIPPED: nothing was tried on a real systemd: {lacking}", file=sys.stderr)
        # What is missing can be installed, and CI insists on it; what is forbidden cannot be helped.
        return 1 if os.environ.get("CI") == "true" and not namespaces.forbidden() else 0
    print(f"machine: {MACHINES[name].WHAT}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = MACHINES[name].run(_stand_in().build(Path(folder)), arguments.keep)
    print(f"{report.count('ok')} ok, {report.count('FAIL')} failed, {report.count('skip')} skipped")
    if name != "full":
        print("a kernel of its own and udev are in the full machine: make test-systemd MACHINE=full")
    return 0 if report.good else 1


def _choose(names: Iterable[str]) -> tuple[str, str]:
    """The first machine that can be had, and why none can: "" if one can."""
    if not _stand_in().compiler():
        return "", "no C compiler for the driver's stand-in (apt-get install gcc)"
    reasons = []
    for name in names:
        lacking = MACHINES[name].unavailable()
        if not lacking:
            return name, ""
        reasons.append(f"machine {name}: {lacking}")
    return "", "; ".join(reasons)


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def _stand_in() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nvml_build", HERE.parent / "fakes/nvml/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.exit(main())
