"""The energy of a job: only what its GPUs used while it had them to itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.jobs.job_series import JobEnergy
from agent.model import Gpu
from tests.jobs.rig import Rig

SLURM = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
ENERGY = "coldplate_job_energy_joules_total"


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """Job 1 on GPUs 0 and 1, job 2 on GPU 2."""
    for gpu, job in enumerate((1, 1, 2)):
        rig.run(gpu, 100 + gpu, SLURM.format(job), {})
    return rig


def test_energy_is_what_the_gpus_of_the_job_used_since_it_was_seen(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=5000.0, g2=7.0)
    busy.look()
    assert busy.value(ENERGY, job_id="1") == 0.0
    busy.meter(g0=1100.0, g1=5300.0, g2=8.5)
    busy.look()
    assert (busy.value(ENERGY, job_id="1"), busy.value(ENERGY, job_id="2")) == (400.0, 1.5)


def test_a_shared_gpus_energy_is_attributed_to_no_job(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=5000.0, g2=7.0)
    busy.look()
    busy.proc.process(200, SLURM.format(2), {})
    busy.put(0, 200)
    busy.meter(g0=1100.0, g1=5300.0, g2=8.0)
    busy.look()
    busy.meter(g0=1900.0, g1=5400.0, g2=9.0)
    busy.look()
    assert busy.value(ENERGY, job_id="1") == 400.0
    assert busy.value(ENERGY, job_id="2") == 2.0


def test_a_gpu_that_passes_to_another_job_gives_neither_what_it_used_in_between(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=0.0, g2=0.0)
    busy.look()
    busy.running[busy.gpus[0]] = ()
    busy.put(0, 102)
    busy.meter(g0=1500.0, g1=0.0, g2=0.0)
    busy.look()
    busy.meter(g0=1510.0, g1=0.0, g2=0.0)
    busy.look()
    assert (busy.value(ENERGY, job_id="1"), busy.value(ENERGY, job_id="2")) == (0.0, 10.0)


def test_a_counter_that_falls_takes_nothing_away(busy: Rig) -> None:
    for joules in (1000.0, 1100.0, 3.0, 5.0):
        busy.meter(g0=joules)
        busy.look()
    assert busy.value(ENERGY, job_id="1") == 102.0


def test_a_gpu_that_is_also_held_in_part_belongs_to_no_single_job(busy: Rig) -> None:
    busy.proc.process(50, SLURM.format(3), {})
    busy.put(2, 50, instance=5)
    for joules in (1000.0, 1100.0):
        busy.meter(g2=joules)
        busy.look()
    assert busy.value(ENERGY, job_id="2") is None


def test_without_a_counter_there_is_a_gap_and_no_zero(busy: Rig) -> None:
    busy.look()
    assert busy.value(ENERGY, job_id="1") is None
    gap = busy.gap(ENERGY)
    assert gap is not None
    assert "slurm job 1" in gap.detail


def test_a_counter_that_was_missing_for_a_look_shows_later_what_was_used(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=5000.0)
    busy.look()
    busy.meter(g1=5010.0)
    busy.look()
    busy.meter(g0=1100.0, g1=5020.0)
    busy.look()
    assert busy.value(ENERGY, job_id="1") == 120.0


def test_a_job_between_two_steps_keeps_counting_and_keeps_its_start(rig: Rig) -> None:
    rig.run(0, 100, SLURM.format(1), {}, started=10)
    for joules in (0.0, 50.0):
        rig.meter(g0=joules)
        rig.look()
    began = rig.value("coldplate_job_start_timestamp_seconds", job_id="1")
    rig.running[rig.gpus[0]] = ()
    rig.meter(g0=60.0)
    rig.look()
    assert rig.value(ENERGY, job_id="1") is None
    rig.run(0, 101, SLURM.format(1), {}, started=90)
    for joules in (70.0, 75.0):
        rig.meter(g0=joules)
        rig.look()
    assert rig.value(ENERGY, job_id="1") == 55.0
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="1") == began


def test_a_job_that_was_gone_for_long_is_forgotten() -> None:
    ledger, gpu, key = JobEnergy(), Gpu("0", "a"), ("slurm", "1")
    for mono, joules in ((0.0, 10.0), (15.0, 20.0)):
        ledger.enter({gpu: key}, {gpu: joules})
        ledger.keep({key: 5.0}, mono)
    assert (ledger.total(key), ledger.started(key)) == (10.0, 5.0)
    ledger.enter({}, {})
    ledger.keep({}, 1000.0)
    assert (ledger.total(key), ledger.started(key)) == (None, None)


GPU, KEYS = Gpu("0", "a"), [("slurm", "1"), ("slurm", "2")]
TURN = st.tuples(st.sampled_from([None, *KEYS]), st.one_of(st.none(), st.floats(0, 1000)), st.booleans())


@given(st.lists(TURN, max_size=30))
def test_jobs_never_get_more_than_the_gpu_used_and_never_lose_any(turns) -> None:
    ledger, counter, totals = JobEnergy(), 0.0, dict.fromkeys(KEYS, 0.0)
    for mono, (owner, used, shown) in enumerate(turns):
        counter += used or 0.0
        ledger.enter({GPU: owner} if owner else {}, {GPU: counter} if shown else {})
        ledger.keep(dict.fromkeys(KEYS), float(mono))
        for key in KEYS:
            assert (ledger.total(key) or 0.0) >= totals[key]
            totals[key] = ledger.total(key) or 0.0
    assert sum(totals.values()) <= counter * (1 + 1e-9)
