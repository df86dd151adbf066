"""The rows about jobs: which one holds a GPU, and what a job has had so far.

A job's user and name are labels of info series and of what a job uses of one GPU, and of nothing else: they end with
the job, and what servers keep for long has the two labels that identify it.
"""

from agent.catalogue.bindings import JOB_WATTS, Derived, Source, counter, gauge, info
from agent.model import Gpu, Lane, Metric, Node

JOB = ("scheduler", "job_id")
"""The labels that identify a job."""
POD = ("namespace", "pod", "container")

_HOLDER = Source("cgroup and environment of the GPU's processes, kubelet, mapping files; or a scenario")
_SHARE = (*JOB, "user", "name", "mig", *POD)
_PROCESSES = Derived("the processes that the driver shows on the job's GPUs")

HOLDERS = (
    info("coldplate_gpu_job_info", Gpu,
         "The job that holds the GPU or MIG instance; with shared='true' several do, and none is named; "
         "with held='true' no process uses it.", Lane.SLOW, _HOLDER,
         labels=(*JOB, "user", "name", "mig", "shared", "held", *POD)),
    info("coldplate_gpu_shared_job_info", Gpu, "One of several jobs that share a GPU or MIG instance.", Lane.SLOW,
         Derived("the holders of a GPU, where there are several"), labels=(*JOB, "user", "name", "mig", *POD)),
    gauge("coldplate_gpu_job_memory_used_bytes", Gpu,
          "Device memory that the job's processes use on the GPU or MIG instance, where the driver says it of all.",
          Lane.SLOW, Derived("the memory of each process, as the driver lists it, summed by job"), labels=_SHARE,
          span=(0, 1e15)),
    gauge("coldplate_gpu_job_sm_ratio", Gpu,
          "Share of time in which kernels of the job ran, on a GPU that several processes share.",
          Lane.SLOW, Derived("nvmlDeviceGetProcessUtilization, smUtil, summed by job"), labels=_SHARE, span=(0, 1)),
    gauge("coldplate_gpu_recorded_processes", Gpu,
          "In a recording: processes of the recorded command that compute on the GPU.",
          Lane.SLOW, Derived("the processes that the driver shows, among the command's"), span=(0, 4096)),
)  # fmt: skip

FACTS = (
    info("coldplate_job_info", Node,
         "Facts about a job that holds a GPU of this node; array is its id as shown by the scheduler: 4711_3.",
         Lane.SLOW, Source("the environment of its processes, kubelet"),
         labels=(*JOB, "user", "name", "account", "partition", "array", "namespace", "pod")),
    gauge("coldplate_job_start_timestamp_seconds", Node,
          "Start time of the job according to its scheduler, else of the first GPU process seen.",
          Lane.SLOW, Source("SLURM_JOB_START_TIME, or /proc/PID/stat and /proc/stat"), labels=JOB, span=(0, 1e11)),
    gauge("coldplate_job_gpus", Node, "GPUs of this node that the job holds, entirely or in part.",
          Lane.SLOW, _HOLDER, labels=JOB, span=(1, 1024)),
    gauge("coldplate_job_processes", Node,
          "Processes of the job that use GPUs of this node; 0 if it holds a GPU without using it.",
          Lane.SLOW, _PROCESSES, labels=JOB, span=(0, 1e6)),
    counter("coldplate_job_energy_joules_total", Node,
            "Energy of the GPUs held by this job alone, since the agent first saw it there.", Lane.SLOW,
            Derived("growth of the GPUs' energy counters"), labels=JOB, span=(0, 1e15), growth=JOB_WATTS),
    counter("coldplate_job_attribution_problems_total", Node,
            "Problems in attributing GPUs to jobs, by problem; the log shows the first of each (`vanished`: at debug).",
            Lane.SLOW, Derived("count"), labels=("problem",)),
)  # fmt: skip


def _of_gpus(quantity: str, metric: str, text: str, most: float) -> Metric:
    return gauge(f"coldplate_job_gpu_{quantity}", Node,
                 f"{text} that the job holds whole and alone, mean of the last minute.", Lane.FAST, Derived(metric),
                 labels=JOB, span=(0, most))  # fmt: skip


SUMS = (
    counter("coldplate_job_gpu_seconds_total", Node,
            "Seconds of the GPUs of this node that the job holds whole and alone, by what they did.",
            Lane.FAST, Derived("coldplate_gpu_state_seconds_total"), labels=(*JOB, "state"), growth=1024),
    gauge("coldplate_job_exclusive_gpus", Node, "GPUs of this node that the job holds whole and alone.",
          Lane.FAST, Derived("number of coldplate_gpu_job_info with mig='0'"), labels=JOB, span=(1, 1024)),
    _of_gpus("utilization_mean_ratio", "mean of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the GPUs of this node", 1),
    _of_gpus("utilization_lowest_ratio", "minimum of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the idlest of the GPUs of this node", 1),
    _of_gpus("utilization_highest_ratio", "maximum of coldplate_gpu_utilization_mean_ratio",
             "Utilization of the busiest of the GPUs of this node", 1),
    _of_gpus("power_mean_watts", "sum of coldplate_gpu_power_mean_watts", "Power of the GPUs of this node", 1e6),
)  # fmt: skip
"""What a server of many nodes reads in place of each GPU."""
