"""Faults of the state directory: it is full, may not be written, or is gone."""

from __future__ import annotations

import os
import subprocess

from tests.lab.bench.report import CannotRunError
from tests.lab.drill.drilled_daemon import MOUNT, Drill
from tests.lab.drill.fault import Fault, shrunk


def _need_a_mount(drill: Drill) -> None:
    if not drill.limited:
        raise CannotRunError("mounting a small file system is not allowed here, and it takes one")


def _fill(drill: Drill) -> None:
    _need_a_mount(drill)
    with (drill.state / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def _empty(drill: Drill) -> None:
    (drill.state / "filling").unlink(missing_ok=True)


def _forbid(drill: Drill) -> None:
    if drill.limited:
        subprocess.run(["mount", "-o", "remount,ro", str(drill.state)], check=True)
    elif os.geteuid() != 0:
        drill.state.chmod(0o500)
    else:
        _need_a_mount(drill)  # root may write everywhere


def _allow(drill: Drill) -> None:
    if drill.limited:
        subprocess.run(["mount", "-o", "remount,rw", str(drill.state)], check=True)
    drill.state.chmod(0o700)


def _take_away(drill: Drill) -> None:
    if drill.limited:
        subprocess.run(["umount", "-l", str(drill.state)], check=True)
        drill.state.rmdir()
    else:
        drill.state.rename(drill.folder / "away")


def _bring_back(drill: Drill) -> None:
    if drill.limited:
        drill.state.mkdir(exist_ok=True)
        subprocess.run([*MOUNT, str(drill.state)], check=True)
    else:
        (drill.folder / "away").rename(drill.state)


EXPECTED = "said by a series; alerts go on, and are written when it can be"
NOT_WRITTEN = shrunk("coldplate_state_write_successful")

STATE_FAULTS = (
    Fault("the state directory is full", EXPECTED, _fill, _empty, NOT_WRITTEN),
    Fault("the state directory may only be read", EXPECTED, _forbid, _allow, NOT_WRITTEN),
    Fault("the state directory is gone", EXPECTED, _take_away, _bring_back, NOT_WRITTEN),
)
