"""What is known of schedulers: cgroups of their jobs, variables of their processes, and places that are nobody's but a
user's.
"""

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
    ("lsf", "/lsf/cluster1/job.4711.12345.1700000000", "4711"),
    ("sge", "/UGE/4711.3", "4711.3"),
    ("sge", "/AGE/4711", "4711"),
    ("oar", "/oar/alice_4711", "4711"),
    ("oar", "/oar.slice/oar-u1000.slice/oar-u1000-j4711.slice/oar-u1000-j4711-s1.scope", "4711"),
    ("htcondor", "/htcondor/condor_var_lib_condor_execute_slot1_2@node7", "slot1_2"),
    ("htcondor", "/system.slice/htcondor/condor_var_lib_condor_execute_slot1_2@node7", "slot1_2"),
    ("htcondor", "/system.slice/condor.service/slot1_2@node7", "slot1_2"),
    ("nomad", f"/nomad.slice/share.slice/{UID}.train.scope", UID),
    ("nomad", f"/nomad.slice/{UID}.train.scope", UID),
    ("nomad", f"/nomad/share/{UID}.train", UID),
    ("kubernetes", f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{HEX}.scope", UID),
    ("kubernetes", f"/kubepods/burstable/pod{UID}/{HEX}", UID),
]  # fmt: skip
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
    "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
    "/system.slice/cron.service", "/system.slice/jupyterhub.service", f"/system.slice/docker-{HEX}.scope",
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope", "/",
    "11:devices:/user.slice\n4:memory:/system.slice/slurmd.service\n1:name=systemd:/user.slice/user-0.slice/session-1.scope",
)  # fmt: skip
"""Where a process is that no scheduler started."""
