"""Check the installation: configuration and its files, the agent, its units, its state directory and its sandbox.

The sandbox is checked by comparing the gaps that the agent reports with what doctor sees from outside. No program is
started: systemd's directories and the cgroups show the units.
"""

import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agent import __version__
from agent.backends.sysfs import list_if_possible, list_names
from agent.commands.doctor.agent_process import UNIT
from agent.commands.doctor.doctor_finding import DoctorFinding, fail, ok, warn
from agent.commands.doctor.doctor_node import (
    READ,
    UNIT_FOLDERS,
    WRITE,
    DoctorNode,
    PathAndCheck,
    RunningAgent,
    read_procfs,
)
from agent.config.reading import fields_of
from agent.config.schema import Section
from agent.lib.wording import UserError, one_line
from agent.model import Reason
from agent.wiring.identity import STATE_DIRECTORY
from agent.wiring.start_checks import check

NO_FILE = "no file: every key has its default"
LOADED = "coldplate_config_last_reload_success_timestamp_seconds"


def configuration_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    """Yield the file itself, and each that it names."""
    yield node.file or "configuration", _check_configuration
    for key, path in sorted(set(named_files(node.config))):
        yield path, partial(_check_named_file, key, Path(path))


def _check_configuration(node: DoctorNode) -> Iterator[DoctorFinding]:
    if node.problem:
        yield fail(node.problem, "correct the file, or its path; every key is in docs/configuration.md")
        return
    try:
        check(node.config)
    except UserError as error:
        yield fail(str(error), "correct that key; every key is in docs/configuration.md")
        return
    if node.process is not None and node.config_doubt:
        remedy = "coldplate doctor --config.file FILE with the agent's file, or as root"
        yield warn(f"that of the running agent, process {node.process.pid}, is not known: {node.config_doubt}", remedy)
    whose = "" if node.process is None or node.config_doubt else f", of the running agent (process {node.process.pid})"
    if node.file is None:
        yield ok(f"no file: every key has its default, or is an option{whose}" if whose else NO_FILE)
    elif not node.user.may(READ, node.file.stat()):
        yield fail(f"{node.user.name} may not read {node.file}", f"chmod a+r {node.file}")
    else:
        yield from _check_loaded(node, node.file)
        yield ok(f"{node.file}{whose}")


def _check_loaded(node: DoctorNode, file: Path) -> Iterator[DoctorFinding]:
    """Yield a finding if the running agent has not loaded the file since it was changed."""
    loaded = max(node.agent.values(LOADED), default=0.0) if node.agent is not None and node.process is not None else 0.0
    if loaded and file.stat().st_mtime > loaded:
        yield warn(f"{file} was changed after the agent read it", "systemctl reload coldplate; or send it SIGHUP")


def named_files(section: Section, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield key and value of every file that a login is in or is trusted by."""
    for field in fields_of(type(section)).values():
        value: Any = getattr(section, field.attribute)
        name = f"{path}.{field.name}".lstrip(".")
        if isinstance(value, Section):
            yield from named_files(value, name)
        elif field.name.endswith("_file") and isinstance(value, str):
            yield name, value


def _check_named_file(key: str, path: Path, node: DoctorNode) -> Iterator[DoctorFinding]:
    if not path.is_file():
        yield fail(f"{key}: {path} is not a file", f"write it, readable for {node.user.name} alone")
    elif not node.user.may(READ, path.stat()):
        yield fail(f"{key}: {node.user.name} may not read {path}", f"chown coldplate {path}; chmod 0400 {path}")
    else:
        yield ok(f"{key}: {path} may be read")


STALE_SECONDS = 30.0
"""Seconds after which a snapshot is no longer what a reload or a slow lane explains."""
RESTARTS = 3.0


def check_agent(node: DoctorNode) -> Iterator[DoctorFinding]:
    view = node.agent
    if view is None:
        start = "systemctl enable --now coldplate.service" if node.unit else "coldplate run, or make install"
        if node.agent_pid is not None:
            log = "journalctl -u coldplate -n 50; with another address, coldplate doctor --url http://HOST:PORT"
            yield fail(f"process {node.agent_pid} runs, and does not answer: {node.no_answer_reason}", log)
        else:
            yield warn(f"no agent answers ({node.no_answer_reason})", start)
        return
    version = next(view.label_values("coldplate_build_info", "version", 1), "of no known number")
    if version != __version__:
        remedy = "systemctl restart coldplate.service"
        yield warn(f"version {version} runs, and {__version__} is installed", remedy)
    yield from _troubles(view)
    if view.is_synthetic:
        yield warn(
            "its devices are synthetic: nothing that it says of GPUs is real", "leave out --scenario and --backend"
        )
    yield ok(f"version {version} runs at {node.target.shown}, its last sample is {view.age:.1f} s old")


def _troubles(view: RunningAgent) -> Iterator[DoctorFinding]:
    if view.is_paused:
        yield warn("it has released the driver, as coldplate pause asked it to", "coldplate pause --end")
    if view.age > STALE_SECONDS:
        yield fail(f"the last sample is {view.age:.0f} s old", "journalctl -u coldplate -n 50")
    if 0.0 in view.values("coldplate_config_last_reload_successful"):
        remedy = "journalctl -u coldplate | grep reload; correct the file, then systemctl reload coldplate"
        yield fail("the last reload was refused: it works with the configuration before", remedy)
    if 0.0 in view.values("coldplate_web_config_last_reload_successful"):
        remedy = "journalctl -u coldplate | grep 'web configuration'; correct the file, the certificate or the key"
        yield fail("it protects its pages by a former web configuration: the new one was refused", remedy)
    for thread in view.label_values("coldplate_thread_up", "thread", 0):
        yield fail(f"its thread {thread} is stuck or failed", "journalctl -u coldplate -n 50")
    if 0.0 in view.values("coldplate_worker_up") and not view.is_paused:
        yield fail("its device worker does not run or does not answer", "journalctl -u coldplate -n 50; dmesg -T")
    if max(view.values("coldplate_worker_restarts_total"), default=0) > RESTARTS:
        count = max(view.values("coldplate_worker_restarts_total"))
        yield warn(f"its device worker was restarted {count:.0f} times", "journalctl -u coldplate | grep worker")
    for name in view.label_values("coldplate_state_write_successful", "file", 0):
        yield fail(f"it cannot write {name}", "journalctl -u coldplate | grep state; see the line on state below")


_PROGRAM = re.compile(r"(?m)^ExecStart=[@:+!-]*(/\S+)")
SOCKET_UNIT = "coldplate-broker.socket"


def check_units(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not (node.root / "run/systemd/system").is_dir():
        yield ok("no systemd here (a container?): the supervisor of the agent restarts it")
        return
    unit = node.unit
    if unit is None:
        yield warn(f"{UNIT} is not installed", "make install; systemctl enable --now coldplate.service")
        return
    if unit.is_symlink() and os.readlink(unit) == "/dev/null":  # noqa: PTH115
        yield fail(f"{UNIT} is masked", f"systemctl unmask {UNIT}")
        return
    yield from _program(node, unit)
    if node.agent_pid is None:
        yield fail(f"{UNIT} does not run", f"systemctl start {UNIT}; journalctl -u coldplate -n 50 shows why")
    else:
        yield ok(f"{UNIT} runs, process {node.agent_pid}")
    for name in (UNIT, SOCKET_UNIT):
        if node.unit_file(name) is not None and not is_enabled(node.root, name):
            yield warn(f"{name} is not enabled: it is not there after the next boot", f"systemctl enable {name}")
    dropped = [
        name
        for folder in UNIT_FOLDERS
        if (place := node.root / folder / f"{UNIT}.d").is_dir()
        for name in list_names(place)
    ]
    if dropped:
        yield ok(f"changed by {', '.join(dropped)}: systemctl cat {UNIT} shows the whole")


def _program(node: DoctorNode, unit: Path) -> Iterator[DoctorFinding]:
    """Yield what ExecStart= names: an installation that was moved, or whose Python is gone, ends with 203/EXEC."""
    match = _PROGRAM.search(read_procfs(unit))
    program = node.root / match[1].lstrip("/") if match else None
    if program is not None and not (program.exists() and os.access(program, os.X_OK)):
        yield fail(f"{unit} starts {program}, which is not there or no program", "make install")


def is_enabled(root: Path, name: str) -> bool:
    """Return whether a target or another unit wants it at boot (systemd.unit(5), .wants)."""
    for folder in UNIT_FOLDERS:
        wanting_folders = [
            subfolder for subfolder in list_if_possible(root / folder) if subfolder.endswith((".wants", ".requires"))
        ]
        if any(os.path.lexists(root / folder / subfolder / name) for subfolder in wanting_folders):
            return True
    return False


MIN_FREE_BYTES = 64 << 20
"""Bytes that should be free: all state files together take less than a tenth of them."""


def state_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    configured = node.config.state_dir
    path = Path(configured) if configured is not None else node.root / str(STATE_DIRECTORY).lstrip("/")
    yield path, partial(_check_state, path)


def _check_state(path: Path, node: DoctorNode) -> Iterator[DoctorFinding]:
    if not path.exists():
        if node.unit is not None and node.config.state_dir is None:
            yield ok(f"{path} is made by systemd when the unit is started")
        elif node.user.may(READ | WRITE, next(parent for parent in path.absolute().parents if parent.exists()).stat()):
            yield ok(f"{path} is made when something is written")
        else:
            yield warn(
                f"{path} is not there: a restart loses alerts, and GPUs that go missing meanwhile are not noticed",
                f"install -d -o coldplate -m 0700 {path}",
            )
        return
    if not path.is_dir():
        yield fail(f"{path} is not a directory", "name another one: state_dir")
        return
    space = os.statvfs(path)
    if space.f_flag & os.ST_RDONLY:
        yield fail(f"{path} is on a file system that is mounted read-only", "mount -o remount,rw; dmesg -T | tail")
    elif not node.user.may(READ | WRITE, path.stat()):
        yield fail(f"{node.user.name} may not write {path}", f"chown -R coldplate {path}; chmod 0700 {path}")
    elif space.f_bavail * space.f_frsize < MIN_FREE_BYTES:
        yield warn(f"{path} has {space.f_bavail * space.f_frsize >> 20} MiB left", f"df -h {path}; make room")
    else:
        yield ok(f"{node.user.name} may write {path}")
    damaged = [name for name in list_names(path) if name.endswith(".damaged")] if os.access(path, os.R_OK) else []
    if damaged:
        remedy = f"look at the disk, then: rm {path}/*.damaged"
        yield warn(f"{path} has {', '.join(damaged)}: what was in there is lost", remedy)


TABLE = 'the table "Privileges" of docs/operations.md'
SHIPPED = "compare systemctl cat coldplate.service with packaging/systemd/coldplate.service"


def check_sandbox(node: DoctorNode) -> Iterator[DoctorFinding]:
    view = node.agent
    if view is None:
        return
    if view.is_synthetic or view.is_paused:
        reason = "its devices are synthetic" if view.is_synthetic else "it has released the driver"
        yield ok(f"{reason}: nothing to compare")
        return
    findings = [*_denied(view), *_unseen(node, view)]
    yield from findings or [ok("the agent sees what doctor sees")]


def _denied(view: RunningAgent) -> Iterator[DoctorFinding]:
    """Yield one finding for each reason, which may hide many metrics."""
    denied: dict[str, set[str]] = {}
    for report in view.reports:
        for gap in report.gaps:
            if gap.reason is Reason.DENIED:
                denied.setdefault(gap.detail or report.backend, set()).add(gap.metric.name)
    for detail, metrics in denied.items():
        named = sorted(metrics)
        more = f" and {len(named) - 1} more" if named[1:] else ""
        yield warn(one_line(f"{named[0]}{more} is denied: {detail}"), f"what the line names; else {TABLE}")


def _unseen(node: DoctorNode, view: RunningAgent) -> Iterator[DoctorFinding]:
    up = sum(view.values("coldplate_gpu_up"))
    if node.has_driver and len(node.gpus) > len(view.values("coldplate_gpu_up")):
        yield fail(
            f"the PCI bus has {len(node.gpus)} GPUs, and the agent knows {len(view.values('coldplate_gpu_up'))} "
            f"({up:.0f} up)",
            f"DeviceAllow=char-nvidia and its like: {SHIPPED}; in a container, pass /dev/nvidia* in",
        )
    adapters = set(list_if_possible(node.sysfs / "class/infiniband"))
    ports = (reading.series for name, readings in view.readings.items() if "infiniband" in name for reading in readings)
    known_adapters = {dict(series.all_labels).get("device", "") for series in ports}
    if node.config.backends.infiniband and adapters - known_adapters:
        missed = ", ".join(sorted(adapters - known_adapters)[:4])
        yield warn(f"sysfs has {missed}, and the agent does not", f"{SHIPPED}; in a container, mount the host's /sys")
