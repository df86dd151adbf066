"""Check what the attribution of jobs needs: schedulers by cgroups, /proc of other users, the broker."""

import os
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec

from agent.backends.jobs.cgroup import parse_cgroup
from agent.backends.jobs.jobs_backend import is_enabled
from agent.backends.jobs.kubelet import SOCKETS
from agent.backends.jobs.schedulers import SCHEDULERS
from agent.broker.asking import SOCKET, BrokerClient, BrokerError, explained
from agent.commands.doctor.doctor_finding import DoctorFinding, fail, ok, warn
from agent.commands.doctor.doctor_node import DoctorNode, read_procfs
from agent.lib.proc_stat import parse_stat

NAMES = frozenset(scheduler.name for scheduler in SCHEDULERS)


def check_schedulers(node: DoctorNode) -> Iterator[DoctorFinding]:
    sources = node.config.jobs.sources
    if not sources:
        yield ok("jobs are not looked for: jobs.sources is []")
        return
    version = "v2" if (node.sysfs / "fs/cgroup/cgroup.controllers").exists() else "v1 or none"
    jobs: dict[str, set[str]] = {}
    daemons: Counter[str] = Counter()
    for process in node.processes:
        owner = parse_cgroup(process.cgroup)
        if owner.scheduler in NAMES:
            jobs.setdefault(owner.scheduler, set()).add(owner.id)
        elif owner.home:
            daemons[owner.home] += 1
    schedulers = sorted({*jobs, *daemons})
    ignored = [name for name in schedulers if not is_enabled(name, sources)]
    if ignored:
        all_sources = ", ".join([*sources, *ignored])
        yield warn(f"{', '.join(ignored)} runs here and is not asked", f"jobs: {{sources: [{all_sources}]}}")
    counted = [f"{name} ({len(jobs.get(name, ()))} jobs in cgroups)" for name in schedulers if name not in ignored]
    nobody = "no cgroups of a scheduler: jobs are named after units, containers and sessions"
    yield ok(f"cgroup {version}; {'; '.join(counted) or nobody}")


def check_kubelet(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not any(process.name == "kubelet" for process in node.processes) or not is_enabled(
        "kubernetes", node.config.jobs.sources
    ):
        return
    if not (node.root / SOCKETS[1].lstrip("/")).exists():
        yield warn(
            f"a kubelet runs, and {SOCKETS[1]} is not there: pods that hold a GPU without a process are not seen",
            "systemctl enable --now coldplate-kubelet.socket",
        )
    elif find_spec("grpc") is None:
        yield warn("a kubelet runs, and Python's module grpc is missing", "make install EXTRAS=kubernetes")
    else:
        yield ok("the kubelet can be asked")


def check_processes(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not (node.has_driver and node.config.jobs.sources):
        return
    lines = (line.split() for line in read_procfs(node.procfs / "self/mounts").splitlines())
    options = next((mount[3].split(",") for mount in lines if len(mount) > 3 and mount[1:3] == ["/proc", "proc"]), [])
    values = dict(option.partition("=")[::2] for option in options)
    hidden, group = values.get("hidepid", "0"), values.get("gid", "")
    allowed = node.user.overrides or (group.isdigit() and int(group) in node.user.groups)
    if hidden in ("0", "off") or allowed:
        yield ok("every process is visible" if hidden in ("0", "off") else f"hidepid={hidden}, and the agent is exempt")
        return
    yield warn(
        f"/proc is mounted with hidepid={hidden}: {node.user.name} sees no processes of others, and so not their jobs",
        "mount -o remount,hidepid=0 /proc; or gid=GROUP there and SupplementaryGroups=GROUP in the unit",
    )


START_BROKER = "systemctl enable --now coldplate-broker.socket"
LOST = "job names, accounts and partitions, and power by IPMI, are missing"


def check_broker(node: DoctorNode) -> Iterator[DoctorFinding]:
    """Ask it for the job variables of this very process."""
    if node.config.backends.devices == "synthetic":
        return
    path = node.root / SOCKET.lstrip("/")
    if not path.exists():
        start = START_BROKER if node.unit_file("coldplate-broker.socket") else f"make install; {START_BROKER}"
        yield warn(f"{path} is not there: {LOST}", start)
        return
    owner = path.stat().st_uid
    if node.user.uid not in (None, owner, 0):
        restart = "systemctl restart coldplate-broker.socket"
        remedy = f"SocketUser=coldplate in coldplate-broker.socket, then {restart}; {START_BROKER}"
        yield fail(f"{path} belongs to uid {owner}, and {node.user.name} is another: it gets no answer", remedy)
    if os.geteuid() not in (0, owner):
        yield ok(f"{path} is there; whether it answers, only root and its owner can ask")
        return
    try:
        BrokerClient(str(path)).variables(os.getpid(), _started())
    except BrokerError as error:
        yield fail(explained(error), f"journalctl -u coldplate-broker -n 20; {START_BROKER}")
    except OSError as error:
        remedy = "compare its unit with packaging/systemd/coldplate-broker.service; journalctl -u coldplate-broker"
        yield fail(f"it answers, and could not read a process: {error.strerror}", remedy)
    else:
        yield ok(f"{path} answers")


def _started() -> int:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - the broker looks at this process, wherever others are
        return parse_stat(file.read(1024)).started
