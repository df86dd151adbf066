"""What is known of schedulers: cgroups of their jobs, variables of their processes, and places that are nobody's but a
user's."""

from __future__ import annotations

UID = "0aaf1f3d-1111-2222-3333-444455556666"
HEX = "3f" * 32

GENUINE: list[tuple[str, str, str]] = [
    ("slurm", "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "4711"),
    ("slurm", "/system.slice/node7_slurmstepd.scope/job_4711/step_extern", "4711"),
    ("slurm", "/slurm/uid_1000/job_4711/step_0/task_0", "4711"),
    ("slurm", "/slurm_node7/uid_1000/job_4711/step_batch", "4711"),
    ("pbs", "/pbs_jobs.service/jobid/4711.head", "4711.head"),
    ("pbs", "/pbspro/jobid/4711[3].head", "4711[3].head"),
    ("pbs", "/system.slice/pbs.service/jobid/4711.head", "4711.head"),
    ("kubernetes", f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{HEX}.scope", UID),
    ("kubernetes", f"/kubepods/burstable/pod{UID}/{HEX}", UID),
]  # fmt: skip
"""Scheduler, a path, and the job that it names."""

VARIABLES: dict[str, dict[str, str]] = {
    "slurm": {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "n", "SLURM_JOB_USER": "carol"},
    "pbs": {"PBS_JOBID": "4711.head", "PBS_JOBNAME": "n"},
    "lsf": {"LSB_JOBID": "4711", "LSB_JOBNAME": "n"},
}
"""What the processes of each scheduler have in their environment."""

LOGINS = (
    "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
    "/system.slice/cron.service", "/system.slice/jupyterhub.service", f"/system.slice/docker-{HEX}.scope",
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope", "/",
    "11:devices:/user.slice\n4:memory:/system.slice/slurmd.service\n1:name=systemd:/user.slice/user-0.slice/session-1.scope",
)  # fmt: skip
"""Where a process is that no scheduler started."""
