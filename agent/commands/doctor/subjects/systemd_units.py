"""The units as systemd's directories and the cgroups show them: installed, enabled, running. No program is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.backends.sysfs import list_names
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import UNIT, UNIT_FOLDERS, ExaminedNode, whole

RANK = 180
UNITS = Diagnoses("unit")
_PROGRAM = re.compile(r"(?m)^ExecStart=[@:+!-]*(/\S+)")
SOCKET_UNIT = "coldplate-broker.socket"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, where systemd runs."""
    yield UNITS.check(node.root / "run/systemd/system", _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    if not (node.root / "run/systemd/system").is_dir():
        yield UNITS.ok("no systemd here (a container?): the supervisor of the agent restarts it")
        return
    unit = node.unit
    if unit is None:
        yield UNITS.warn(f"{UNIT} is not installed", "make install; systemctl enable --now coldplate.service")
        return
    if unit.is_symlink() and os.readlink(unit) == "/dev/null":  # noqa: PTH115
        yield UNITS.fail(f"{UNIT} is masked", f"systemctl unmask {UNIT}")
        return
    yield from _program(node, unit)
    if node.agent_pid is None:
        yield UNITS.fail(f"{UNIT} does not run", f"systemctl start {UNIT}; journalctl -u coldplate -n 50 tells why not")
    else:
        yield UNITS.ok(f"{UNIT} runs, process {node.agent_pid}")
    for name in (UNIT, SOCKET_UNIT):
        if node.unit_file(name) is not None and not is_enabled(node.root, name):
            yield UNITS.warn(f"{name} is not enabled: it is not there after the next boot", f"systemctl enable {name}")
    dropped = [
        name
        for folder in UNIT_FOLDERS
        if (place := node.root / folder / f"{UNIT}.d").is_dir()
        for name in list_names(place)
    ]
    if dropped:
        yield UNITS.ok(f"changed by {', '.join(dropped)}: systemctl cat {UNIT} shows the whole")


def _program(node: ExaminedNode, unit: Path) -> Iterator[Diagnosis]:
    """What ExecStart= names: an installation that was moved, or whose Python is gone, ends with 203/EXEC."""
    match = _PROGRAM.search(whole(unit))
    program = node.root / match[1].lstrip("/") if match else None
    if program is not None and not (program.exists() and os.access(program, os.X_OK)):
        yield UNITS.fail(f"{unit} starts {program}, which is not there or no program", "make install")


def is_enabled(root: Path, name: str) -> bool:
    """Whether a target or another unit wants it at boot (systemd.unit(5), .wants)."""
    for folder in UNIT_FOLDERS:
        try:
            wanting = [each for each in list_names(root / folder) if each.endswith((".wants", ".requires"))]
        except OSError:
            continue
        if any(os.path.lexists(root / folder / each / name) for each in wanting):
            return True
    return False
