"""The rows about jobs: which one holds a GPU, and what a job has had so far.

A job's name is only on info series: the number of measurements would grow with every job that ever ran.
"""

from __future__ import annotations

from agent.catalogue.bindings import JOB_WATTS, Derived, Source
from agent.model import Gpu, Kind, Lane, Metric, Node, Unit

JOB = ("scheduler", "job_id")
"""The labels that identify a job."""
POD = ("namespace", "pod", "container")

_HOLDER = Source("cgroup and environment of the GPU's processes, kubelet, mapping files; or a scenario")
_SHARE = (*JOB, "user", "name", "mig", *POD)
_PROCESSES = Derived("the processes that the driver shows on the job's GPUs")

HOLDERS = (
    Metric("coldplate_gpu_job_info", Kind.INFO, Unit.NONE, Gpu,
           "The job that holds the GPU or MIG instance; with shared='true' several do, and none is named; "
           "with held='true' no process uses it.",
           Lane.SLOW, (_HOLDER,), labels=(*JOB, "user", "name", "mig", "shared", "held", *POD), span=(1, 1)),
    Metric("coldplate_gpu_shared_job_info", Kind.INFO, Unit.NONE, Gpu,
           "One of several jobs that share a GPU or MIG instance.",
           Lane.SLOW, (Derived("the holders of a GPU, where there are several"),),
           labels=(*JOB, "user", "name", "mig", *POD), span=(1, 1)),
    Metric("coldplate_gpu_job_memory_used_bytes", Kind.GAUGE, Unit.BYTES, Gpu,
           "Device memory that the job's processes use on the GPU or MIG instance, where the driver says it of all.",
           Lane.SLOW, (Derived("the memory of each process, as the driver lists it, summed by job"),),
           labels=_SHARE, span=(0, 1e15)),
    Metric("coldplate_gpu_job_sm_ratio", Kind.GAUGE, Unit.RATIO, Gpu,
           "Share of time in which kernels of the job ran, on a GPU that several processes share.",
           Lane.SLOW, (Derived("nvmlDeviceGetProcessUtilization, smUtil, summed by job"),), labels=_SHARE, span=(0, 1)),
    Metric("coldplate_gpu_recorded_processes", Kind.GAUGE, Unit.NONE, Gpu,
           "In a recording: processes of the recorded command that compute on the GPU.",
           Lane.SLOW, (Derived("the processes that the driver shows, among the command's"),), span=(0, 4096)),
)  # fmt: skip

FACTS = (
    Metric("coldplate_job_info", Kind.INFO, Unit.NONE, Node,
           "Facts about a job that holds a GPU of this node; array is its id as shown by the scheduler: 4711_3.",
           Lane.SLOW, (Source("the environment of its processes, kubelet"),),
           labels=(*JOB, "user", "name", "account", "partition", "array", "namespace", "pod"), span=(1, 1)),
    Metric("coldplate_job_start_timestamp_seconds", Kind.GAUGE, Unit.SECONDS, Node,
           "Start time of the job according to its scheduler, else of the first GPU process seen.",
           Lane.SLOW, (Source("SLURM_JOB_START_TIME, or /proc/PID/stat and /proc/stat"),), labels=JOB, span=(0, 1e11)),
    Metric("coldplate_job_gpus", Kind.GAUGE, Unit.NONE, Node,
           "GPUs of this node that the job holds, entirely or in part.",
           Lane.SLOW, (_HOLDER,), labels=JOB, span=(1, 1024)),
    Metric("coldplate_job_processes", Kind.GAUGE, Unit.NONE, Node,
           "Processes of the job that use GPUs of this node; 0 if it holds a GPU without using it.",
           Lane.SLOW, (_PROCESSES,), labels=JOB, span=(0, 1e6)),
    Metric("coldplate_job_energy_joules_total", Kind.COUNTER, Unit.JOULES, Node,
           "Energy of the GPUs held by this job alone, since the agent first saw it there.",
           Lane.SLOW, (Derived("growth of the GPUs' energy counters"),), labels=JOB, span=(0, 1e15), growth=JOB_WATTS),
    Metric("coldplate_job_attribution_problems_total", Kind.COUNTER, Unit.NONE, Node,
           "Problems in attributing GPUs to jobs, by problem; the log shows the first of each (`vanished`: at debug).",
           Lane.SLOW, (Derived("count"),), labels=("problem",)),
)  # fmt: skip


def _of_gpus(what: str, unit: Unit, of: str, text: str, most: float) -> Metric:
    return Metric(f"coldplate_job_gpu_{what}", Kind.GAUGE, unit, Node,
                  f"{text} that the job holds whole and alone, mean of the last minute.",
                  Lane.FAST, (Derived(of),), labels=JOB, span=(0, most))  # fmt: skip


SUMS = (
    Metric("coldplate_job_gpu_seconds_total", Kind.COUNTER, Unit.SECONDS, Node,
           "Seconds of the GPUs of this node that the job holds whole and alone, by what they did.",
           Lane.FAST, (Derived("coldplate_gpu_state_seconds_total"),), labels=(*JOB, "state"), growth=1024),
    Metric("coldplate_job_whole_gpus", Kind.GAUGE, Unit.NONE, Node,
           "GPUs of this node that the job holds whole and alone.",
           Lane.FAST, (Derived("number of coldplate_gpu_job_info with mig='0'"),), labels=JOB, span=(1, 1024)),
    _of_gpus("utilization_mean_ratio", Unit.RATIO, "mean of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the GPUs of this node", 1),
    _of_gpus("utilization_lowest_ratio", Unit.RATIO, "minimum of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the idlest of the GPUs of this node", 1),
    _of_gpus("utilization_highest_ratio", Unit.RATIO, "maximum of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the busiest of the GPUs of this node", 1),
    _of_gpus("power_mean_watts", Unit.WATTS, "sum of coldplate_gpu_power_mean_watts",
             "Power of the GPUs of this node", 1e6),
)  # fmt: skip
"""What a server of many nodes reads in place of each GPU."""

ROWS: tuple[Metric, ...] = HOLDERS + FACTS + SUMS
