"""Jobs on a GPU that the driver cannot read: its processes are those of the last list, while they run."""

from tests.jobs.rig import Rig

JOB = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"


def lose(rig: Rig, index: int) -> None:
    rig.running[rig.gpus[index]] = None  # type: ignore[assignment]  # as Sampler.processes of a GPU that is lost


def test_a_lost_gpu_is_its_jobs_while_the_process_runs(rig: Rig) -> None:
    for gpu in range(4):
        rig.run(gpu, 4000 + gpu, JOB.format(7))
    assert rig.look().jobs() == {("slurm", "7"): ["0", "1", "2", "3"]}
    lose(rig, 3)
    assert rig.look().jobs() == {("slurm", "7"): ["0", "1", "2", "3"]}
    assert rig.value("coldplate_gpu_job_memory_used_bytes", gpu="3") is None
    rig.proc.end(4003)
    assert rig.look().jobs() == {("slurm", "7"): ["0", "1", "2"]}
    assert rig.problems().get("vanished", 0) <= 1
    assert rig.look().up("jobs_procfs") == 1


def test_a_process_that_got_the_number_of_an_ended_one_does_not_hold_the_lost_gpu(rig: Rig) -> None:
    rig.run(0, 4000, JOB.format(7))
    rig.run(1, 4001, JOB.format(7))
    rig.look()
    lose(rig, 1)
    rig.proc.process(4001, JOB.format(8), started=9000)
    assert rig.look().jobs() == {("slurm", "7"): ["0"]}
    rig.running[rig.gpus[1]] = ()
    rig.put(1, 4001)
    assert rig.look().jobs() == {("slurm", "7"): ["0"], ("slurm", "8"): ["1"]}
