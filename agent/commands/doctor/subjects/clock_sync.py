"""Whether the clock is synchronised: racks sum their power by whole seconds, and alerts carry times.

adjtimex(2) tells, and asks for no privilege where nothing is set: whichever daemon keeps the clock, the kernel knows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator

from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 120
CLOCK = Diagnoses("clock")
UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of linux/timex.h."""
LARGEST_ERROR_SECONDS = 0.5
"""Seconds by which a clock may be off before the seconds of two nodes are no longer the same."""


class Timex(ctypes.Structure):
    """The beginning of struct timex of adjtimex(2), and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def checks(node: ExaminedNode) -> Iterable[Examination]:  # noqa: ARG001 - the kernel that runs is the only one to ask
    """One question to the kernel."""
    yield CLOCK.check("adjtimex", _look)


def _look() -> Iterator[Diagnosis]:
    asked = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, "the kernel does not tell of its clock")
    yield judge(asked.status, asked.maxerror / 1e6)


def judge(status: int, error: float) -> Diagnosis:
    """What the kernel's `status` bits and its largest `error`, in seconds, say."""
    if status & UNSYNCHRONISED:
        remedy = "systemctl enable --now chrony (or systemd-timesyncd); chronyc tracking"
        return CLOCK.warn("not synchronised: the rack's sums and the times of alerts are off", remedy)
    if error > LARGEST_ERROR_SECONDS:
        return CLOCK.warn(f"synchronised, but may be off by {error:.1f} s", "chronyc sources: look for a nearer server")
    return CLOCK.ok(f"synchronised, off by at most {error * 1000:.0f} ms")
