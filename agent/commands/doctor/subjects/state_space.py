"""The state directory: whether the agent may write there, and whether there is room."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.backends.sysfs import list_names
from agent.commands.doctor.agent_user import READ, WRITE
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.wiring.state_directory import STATE_DIRECTORY

RANK = 170
STATE = Diagnoses("state")
LEAST = 64 << 20
"""Bytes that should be free: all state files together take less than a tenth of them."""


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One."""
    given = node.config.state_dir
    path = Path(given) if given is not None else node.root / str(STATE_DIRECTORY).lstrip("/")
    yield STATE.check(path, _look, node, path)


def _look(node: ExaminedNode, path: Path) -> Iterator[Diagnosis]:
    if not path.exists():
        if node.unit is not None and node.config.state_dir is None:
            yield STATE.ok(f"{path} is made by systemd when the unit is started")
        elif node.user.may(READ | WRITE, next(each for each in path.absolute().parents if each.exists()).stat()):
            yield STATE.ok(f"{path} is made when something is written")
        else:
            yield STATE.warn(
                f"{path} is not there: a restart loses alerts, and GPUs that go missing meanwhile are not noticed",
                f"install -d -o coldplate -m 0700 {path}",
            )
        return
    if not path.is_dir():
        yield STATE.fail(f"{path} is no directory", "name another one: state_dir")
        return
    space = os.statvfs(path)
    if space.f_flag & os.ST_RDONLY:
        yield STATE.fail(
            f"{path} is on a file system that is mounted read-only", "mount -o remount,rw; dmesg -T | tail"
        )
    elif not node.user.may(READ | WRITE, path.stat()):
        yield STATE.fail(f"{node.user.name} may not write {path}", f"chown -R coldplate {path}; chmod 0700 {path}")
    elif space.f_bavail * space.f_frsize < LEAST:
        yield STATE.warn(f"{path} has {space.f_bavail * space.f_frsize >> 20} MiB left", f"df -h {path}; make room")
    else:
        yield STATE.ok(f"{node.user.name} may write {path}")
    damaged = [name for name in list_names(path) if name.endswith(".damaged")] if os.access(path, os.R_OK) else []
    if damaged:
        yield STATE.warn(
            f"{path} has {', '.join(damaged)}: what was in there is lost", "look at the disk, then remove it"
        )
