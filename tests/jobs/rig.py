"""A /proc tree made by hand, a node's GPUs and their processes, and the backend that finds the jobs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.backends.jobs import JobsBackend
from agent.backends.protocol import BackendSample, GpuProcess
from agent.broker.asking import BrokerClient
from agent.catalogue import BY_NAME
from agent.model import Gap, Gpu, Instant, Lane, Reading, Series

BOOT = 1_700_000_000
TICKS = 100
USERS = {0: "root", 1000: "alice", 1001: "bob"}


def name_of(uid: int) -> str:
    return USERS[uid]


class Proc:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "stat").write_text(f"cpu  1 2 3\nbtime {BOOT}\nprocesses 9\n")

    def process(
        self,
        pid: int,
        cgroup: str,
        env: Mapping[str, str] | bytes | None = None,
        *,
        uid: int = 1000,
        command: str = "python3",
        parent: int = 1,
        session: int = 0,
        started: int = 5000,
        title: str = "",
    ) -> Path:
        """A process; `env` None is an environment that may not be read. `started` is in seconds after boot; `title` is
        what it writes over its arguments."""
        directory = self.root / str(pid)
        directory.mkdir(exist_ok=True)
        zeros = " ".join(["0"] * 13)
        line = f"{pid} ({command}) S {parent} {pid} {session or pid} 0 -1 {zeros} {started * TICKS} 0 0\n"
        (directory / "stat").write_text(line)
        (directory / "status").write_text(f"Name:\t{command}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (directory / "cgroup").write_text(cgroup if ":" in cgroup.split("\n")[0] else f"0::{cgroup}\n")
        (directory / "cmdline").write_bytes(title.encode() + bytes(9))
        environ = directory / "environ"
        if env is None:
            environ.mkdir(exist_ok=True)  # reading a directory fails for root as well, which EACCES would not
        else:
            content = env if isinstance(env, bytes) else b"".join(f"{k}={v}\0".encode() for k, v in env.items())
            environ.write_bytes(content)
        return directory

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


class Rig:
    """A node: its GPUs, what the driver shows on them, and the backend."""

    def __init__(self, root: Path, gpus: int = 4) -> None:
        self.proc = Proc(root / "proc")
        self.gpus = [Gpu(str(index), f"GPU-{index:04d}") for index in range(gpus)]
        self.running: dict[Gpu, tuple[GpuProcess, ...]] = dict.fromkeys(self.gpus, ())
        self.snapshot: list[Reading] = []
        self.mapping = root / "mapping"
        self.gpustat = root / "gpustat"
        self.socket = root / "kubelet.sock"
        self.proxy = root / "coldplate-kubelet.sock"
        self.pod_logs = root / "pods"
        self.broker = BrokerClient(str(root / "broker.sock"))
        self.mono = 100.0
        self.sample = BackendSample()
        self.backend: JobsBackend | None = None

    def open(self, *sources: str, trust: tuple[str, ...] = (), **options: object) -> JobsBackend:
        given: dict[str, Any] = {
            "lookup": name_of,
            "ask": self.broker.variables,
            "kubelet": [str(self.socket), str(self.proxy)],
            "pod_logs": str(self.pod_logs),
            "gpustat": str(self.gpustat),
            "sources": sources or ("all",),
            "mapping_dir": str(self.mapping),
            "trust_environment": trust,
            **options,
        }
        if self.backend is not None:
            self.backend.close()
        self.backend = JobsBackend(self.proc.root, lambda: self.running, lambda: self.snapshot, **given)
        return self.backend

    def put(
        self, index: int, *pids: int, instance: int | None = None, memory: int | None = 2**30, sm: float | None = None
    ) -> None:
        """These processes compute on this GPU, beside those that do already."""
        more = tuple(GpuProcess(pid, memory, instance, sm) for pid in pids)
        self.running[self.gpus[index]] += more

    def run(self, gpu: int, pid: int, cgroup: str, env: Mapping[str, str] | bytes | None = None, **more: Any) -> None:
        self.proc.process(pid, cgroup, env, **more)
        self.put(gpu, pid)

    def look(self, after: float = 15.0) -> Rig:
        """Let the backend look, so many seconds after the last time; what it found is in `sample`."""
        self.mono += after
        backend = self.backend or self.open()
        self.sample = backend.read(Lane.SLOW, Instant(self.mono, BOOT + self.mono))
        return self

    def rows(self, name: str) -> list[dict[str, str]]:
        """The labels of each series of a metric."""
        return [dict(each.series.all_labels) for each in self.sample.readings if each.series.metric.name == name]

    def holders(self, index: int = 0) -> list[dict[str, str]]:
        """coldplate_gpu_job_info of one GPU."""
        return [row for row in self.rows("coldplate_gpu_job_info") if row["gpu"] == str(index)]

    def holder(self, index: int = 0) -> dict[str, str]:
        rows = self.holders(index)
        assert len(rows) == 1, rows
        return rows[0]

    def jobs(self) -> dict[tuple[str, str], list[str]]:
        """The GPUs of each job that has them to itself."""
        found: dict[tuple[str, str], list[str]] = {}
        for row in self.rows("coldplate_gpu_job_info"):
            found.setdefault((row["scheduler"], row["job_id"]), []).append(row["gpu"])
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series with these labels; None if there is none."""
        for reading in self.sample.readings:
            own = dict(reading.series.all_labels)
            if reading.series.metric.name == name and all(own.get(key) == text for key, text in labels.items()):
                return reading.value
        return None

    def up(self, way: str) -> float | None:
        return self.value("coldplate_backend_up", backend=way)

    def problems(self) -> dict[str, float]:
        name = "coldplate_job_attribution_problems_total"
        counts = {row["problem"]: self.value(name, problem=row["problem"]) or 0 for row in self.rows(name)}
        return {problem: count for problem, count in counts.items() if count}

    def gap(self, name: str) -> Gap | None:
        return next((gap for gap in self.sample.gaps if gap.metric.name == name), None)

    def meter(self, **joules: float) -> Rig:
        """The GPUs' energy counters: g0=…, g1=…"""
        row = BY_NAME["coldplate_gpu_energy_joules_total"]
        self.snapshot = [Reading(Series(row, self.gpus[int(key[1:])]), value) for key, value in joules.items()]
        return self

    def minor(self, index: int, number: int) -> None:
        """The device of this GPU is /dev/nvidia`number`."""
        folder = self.proc.root / f"driver/nvidia/gpus/0000:{index:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t {self.gpus[index].uuid}\nDevice Minor: \t {number}\n"
        )

    def divide(self, index: int, **instances: int) -> None:
        """MIG devices of a GPU by UUID (without its MIG-) and GPU instance."""
        row = BY_NAME["coldplate_gpu_mig_info"]
        for uuid, instance in instances.items():
            labels = (("mig_uuid", f"MIG-{uuid}"), ("gpu_instance", str(instance)), ("compute_instance", "0"))
            self.snapshot.append(Reading(Series(row, self.gpus[index], labels), 1))


# What is known of schedulers: cgroups of their jobs, variables of their processes, and places that are nobody's but a
# user's.
UID = "0aaf1f3d-1111-2222-3333-444455556666"
OTHER_UID = "1bbf1f3d-1111-2222-3333-444455556666"
HEX = "3f" * 32
SLURM = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
LOGIN = "/user.slice/user-1000.slice/session-3.scope"

GENUINE: list[tuple[str, str, str]] = [
    ("slurm", "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "4711"),
    ("slurm", "/system.slice/node7_slurmstepd.scope/job_4711/step_extern", "4711"),
    ("slurm", "/site.slice/site-gpu.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "4711"),
    ("slurm", "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0", "s5K1KKYAYG5D00"),
    ("slurm", f"/docker/{HEX}/system.slice/slurmstepd.scope/system.slice/slurmstepd.scope/job_4711/x", "4711"),
    ("slurm", "/slurm/uid_1000/job_4711/step_0/task_0", "4711"),
    ("slurm", "/slurm_node7/uid_1000/job_4711/step_batch", "4711"),
    ("pbs", "/pbs_jobs.service/jobid/4711.head", "4711.head"),
    ("pbs", "/pbspro/jobid/4711[3].head", "4711[3].head"),
    ("pbs", "/system.slice/pbs.service/jobid/4711.head", "4711.head"),
    ("lsf", "/lsf/cluster1/job.4711.12345.1700000000", "4711"),
    ("sge", "/UGE/4711.3", "4711.3"),
    ("sge", "/AGE/4711", "4711"),
    ("sge", "/ocs6444.slice/ocs6444-jobs.slice/ocs6444.4711.scope", "4711"),
    ("sge", "/ocs6444.slice/ocs6444-jobs.slice/ocs6444.4711.7.scope", "4711.7"),
    ("sge", "/hpc.slice/hpc-a.slice/hpc-a-jobs.slice/hpc-a-jobs-4711.slice/hpc-a.4711.master.scope", "4711"),
    ("sge", "/ocs6444.slice/ocs6444-jobs.slice/ocs6444-jobs-4711.7.slice/ocs6444.4711.7.1.node7.scope", "4711.7"),
    ("oar", "/oar/alice_4711", "4711"),
    ("oar", "/oar.slice/oar-u1000.slice/oar-u1000-j4711.slice/oar-u1000-j4711-s1.scope", "4711"),
    ("htcondor", "/htcondor/condor_var_lib_condor_execute_slot1_2@node7", "slot1_2"),
    ("htcondor", "/system.slice/htcondor/condor_var_lib_condor_execute_slot1_2@node7", "slot1_2"),
    ("htcondor", "/system.slice/condor.service/slot1_2@node7", "slot1_2"),
    ("htcondor", "/htcondor/condor_execute_slot1_2@node7.slice/condor_execute_slot1_2@node7.scope", "slot1_2"),
    ("nomad", f"/nomad.slice/share.slice/{UID}.train.scope", UID),
    ("nomad", f"/nomad.slice/{UID}.train.scope", UID),
    ("nomad", f"/nomad/share/{UID}.train", UID),
    ("kubernetes", f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{HEX}.scope", UID),
    ("kubernetes", f"/kubepods/burstable/pod{UID}/{HEX}", UID),
]
"""Scheduler, a path, and the job that it names."""

VARIABLES: dict[str, dict[str, str]] = {
    "slurm": {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "n", "SLURM_JOB_USER": "carol"},
    "pbs": {"PBS_JOBID": "4711.head", "PBS_JOBNAME": "n"},
    "lsf": {"LSB_JOBID": "4711", "LSB_JOBNAME": "n"},
    "sge": {"JOB_ID": "4711", "SGE_ROOT": "/opt/sge", "JOB_NAME": "n"},
    "oar": {"OAR_JOB_ID": "4711", "OAR_JOB_NAME": "n"},
    "flux": {"FLUX_JOB_ID": "ƒ7cyc", "FLUX_JOB_ID_PATH": "/ƒABC/ƒ7cyc"},
    "htcondor": {"_CONDOR_SLOT": "slot1_2", "_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_9"},
    "nomad": {"NOMAD_ALLOC_ID": UID, "NOMAD_JOB_NAME": "n"},
}
"""What the processes of each scheduler have in their environment."""

LOGINS = (
    "/user.slice/user-1000.slice/session-3.scope",
    "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
    "/system.slice/cron.service",
    "/system.slice/jupyterhub.service",
    f"/system.slice/docker-{HEX}.scope",
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope",
    "/",
    "11:devices:/user.slice\n4:memory:/system.slice/slurmd.service\n1:name=systemd:/user.slice/user-0.slice/session-1.scope",
)
"""Where a process is that no scheduler started."""
