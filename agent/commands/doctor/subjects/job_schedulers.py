"""Which schedulers run jobs here, by the cgroups of all processes, as the agent recognises them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from agent.backends.jobs.cgroup import parse_cgroup
from agent.backends.jobs.jobs_backend import is_wanted
from agent.backends.jobs.kubelet import SOCKETS
from agent.backends.jobs.schedulers import SCHEDULERS
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 100
SCHEDULER = Diagnoses("scheduler")
NAMES = frozenset(each.name for each in SCHEDULERS)


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """The processes, and the kubelet's sockets where there is one."""
    yield SCHEDULER.check(node.procfs, _look, node)
    yield SCHEDULER.check(SOCKETS[0], _kubelet, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    sources = node.config.jobs.sources
    if not sources:
        yield SCHEDULER.ok("jobs are not looked for: jobs.sources is []")
        return
    version = "v2" if (node.sysfs / "fs/cgroup/cgroup.controllers").exists() else "v1 or none"
    jobs: dict[str, set[str]] = {}
    daemons: Counter[str] = Counter()
    for each in node.processes:
        owner = parse_cgroup(each.cgroup)
        if owner.scheduler in NAMES:
            jobs.setdefault(owner.scheduler, set()).add(owner.id)
        elif owner.home:
            daemons[owner.home] += 1
    seen = sorted({*jobs, *daemons})
    ignored = [name for name in seen if not is_wanted(name, sources)]
    if ignored:
        wanted = ", ".join([*sources, *ignored])
        yield SCHEDULER.warn(f"{', '.join(ignored)} runs here and is not asked", f"jobs: {{sources: [{wanted}]}}")
    told = [f"{name} ({len(jobs.get(name, ()))} jobs in cgroups)" for name in seen if name not in ignored]
    nobody = "no scheduler's: jobs are named after units, containers and sessions"
    yield SCHEDULER.ok(f"cgroup {version}; {'; '.join(told) or nobody}")


def _kubelet(node: ExaminedNode) -> Iterator[Diagnosis]:
    from importlib.util import find_spec

    if not any(each.name == "kubelet" for each in node.processes) or not is_wanted(
        "kubernetes", node.config.jobs.sources
    ):
        return
    if not (node.root / SOCKETS[1].lstrip("/")).exists():
        yield SCHEDULER.warn(
            f"a kubelet runs, and {SOCKETS[1]} is not there: pods that hold a GPU without a process are not seen",
            "systemctl enable --now coldplate-kubelet.socket",
        )
    elif find_spec("grpc") is None:
        yield SCHEDULER.warn("a kubelet runs, and Python's module grpc is missing", "make install EXTRAS=kubernetes")
    else:
        yield SCHEDULER.ok("the kubelet can be asked")
