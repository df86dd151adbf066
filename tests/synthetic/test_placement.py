"""A synthetic node tells its jobs in the families in which the jobs backend tells those of a real one."""

from __future__ import annotations

import pytest

from agent.catalogue.jobs import FACTS
from agent.model import Instant, Lane
from tests.synthetic.conftest import EPOCH, WALL

LATE = """
    description: d
    topology: dgx-h100
    jobs:
      - {id: j, name: n, user: u, account: a, partition: p,
         gpus: 0-3, start: 100s, end: 200s, phases: [{kind: training}]}
"""


def facts(node, t):
    return {
        key: value for key, value in node.node(t, Lane.SLOW).items() if key.startswith("job_") and "/u/n/0" not in key
    }


def test_a_job_is_shown_with_all_of_its_facts_while_it_runs(play, write):
    node = play(write(LATE))
    assert facts(node, 99.0) == facts(node, 201.0) == {}
    shown = facts(node, 160.0)
    joules = shown.pop("job_energy_joules_total/slurm/j")
    assert shown == {
        "job_info/slurm/j/u/n/a/p///": 1.0,
        "job_gpus/slurm/j": 4.0,
        "job_processes/slurm/j": 4.0,
        "job_start_timestamp_seconds/slurm/j": WALL + 100.0,
    }
    assert joules == pytest.approx(60.0 * 4 * 690.0, rel=0.05)
    told = {f"coldplate_{key.split('/')[0]}" for key in (*shown, "job_energy_joules_total/")}
    assert told == {row.name for row in FACTS if row.labels != ("problem",)}, "a new family of jobs belongs here, too"


def test_the_energy_of_a_job_is_that_of_its_gpus_since_its_start(play, write):
    node = play(write(LATE))
    own = [sum(node.value(gpu, t, "energy_joules_total") for gpu in range(4)) for t in (100.0, 150.0, 190.0)]
    told = [facts(node, t)["job_energy_joules_total/slurm/j"] for t in (100.0, 150.0, 190.0)]
    assert told == pytest.approx([each - own[0] for each in own], abs=1.0)


def test_a_source_that_opens_late_shows_the_same(play, write):
    path = write(LATE)
    assert facts(play(path), 150.0) == pytest.approx(facts(play(path, 140.0), 150.0))


def test_the_start_stays_what_it_is_when_the_wall_clock_is_set(play, write):
    node = play(write(LATE))
    before = facts(node, 150.0)["job_start_timestamp_seconds/slurm/j"]
    later = node.fabric.read(Lane.SLOW, Instant(EPOCH + 160.0, WALL + 9999.0)).readings
    assert before in [each.value for each in later if each.metric.name == "coldplate_job_start_timestamp_seconds"]


def test_every_shipped_job_has_an_owner_an_account_and_a_partition(play):
    from agent.backends.synthetic import load_scenario, shipped_scenarios

    for name, _ in shipped_scenarios():
        for job in load_scenario(name).jobs:
            assert all((job.user, job.name, job.account, job.partition)), name
