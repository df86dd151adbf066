"""`make test-systemd`: the shipped units on a real systemd, in a machine of their own."""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.fakes.nvml import build
from tests.lab.systemd import namespaces

PACKAGED = ("packaged", "start", "doctor", "confined", "reload", "broker")
"""The checks for a package: its own, and those that show that the service works as one of `make install` does."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-systemd", description=__doc__)
    parser.add_argument("--package", type=Path, help="try this Debian package, in the place of `make install`")
    arguments = parser.parse_args()
    if arguments.package is not None:
        os.environ["PACKAGE"] = str(arguments.package.resolve(strict=True))
        os.environ.setdefault("MODULES", " ".join(PACKAGED))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lacking = namespaces.unavailable() if build.compiler() else "no C compiler for the driver's stand-in"
    if lacking:
        print(f"SKIPPED: nothing was tried on a real systemd: {lacking}", file=sys.stderr)
        # What is missing can be installed, and CI insists on it; what is forbidden cannot be helped.
        return 1 if os.environ.get("CI") == "true" and not namespaces.forbidden() else 0
    print(f"machine: {namespaces.WHAT}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        return 0 if namespaces.run(build.build(Path(folder))) else 1


sys.exit(main())
