"""Scenario files are read strictly: an error names the file, the key and what was probably meant."""

import pytest

from agent.backends.synthetic import ScenarioError, load_scenario, shipped_names
from agent.backends.synthetic.scenario import MOST, announced
from agent.catalogue.jobs import FACTS
from agent.model import Instant, Lane
from tests.synthetic.conftest import EPOCH, WALL, scenario

HEAD = "description: d\ntopology: dgx-h100\n"
JOB = "{id: a, gpus: all, phases: [{kind: training}]}"

MISTAKES = [
    ("description: d\ntopologie: dgx-h100", r"topologie: unknown key; did you mean 'topology'\?"),
    ("description: d", "topology: is missing"),
    ("description: d\ntopology: dgx-h10", r"topology: unknown value 'dgx-h10'; did you mean 'dgx-h100'\?"),
    (HEAD + "seed: -1", "seed: expected a whole number"),
    (HEAD + "jobs: 3", "jobs: expected a list"),
    (HEAD + "jobs: [{id: a, gpus: all}]", r"jobs\[0\].phases: is missing"),
    (HEAD + "jobs: [{id: a, gpus: all, phases: []}]", r"jobs\[0\].phases: a job needs at least one phase"),
    (HEAD + "jobs: [{id: a, gpus: all, phases: [{kind: trainning}]}]", r"phases\[0\].kind: .*did you mean 'training'"),
    (HEAD + "jobs: [{id: a, gpus: all, phases: [{kind: idle, powr: 1}]}]", r"phases\[0\].powr: unknown key"),
    (
        HEAD + "jobs: [{id: a, gpus: all, phases: [{kind: idle}, {kind: training}]}]",
        r"phases\[0\].duration: is missing; only the last",
    ),
    (HEAD + "jobs: [{id: a, gpus: 6-9, phases: [{kind: idle}]}]", r"jobs\[0\].gpus: dgx-h100 has GPUs 0 to 7"),
    (HEAD + "jobs: [{id: a, gpus: x, phases: [{kind: idle}]}]", r"jobs\[0\].gpus: expected a GPU number"),
    (HEAD + f"jobs: [{JOB}, {JOB}]", r"jobs\[1\].gpus: GPU 0 is held by jobs\[0\]"),
    (HEAD + "faults: [{kind: stragler, gpu: 1}]", r"faults\[0\].kind: .*did you mean 'straggler'"),
    (HEAD + "faults: [{kind: straggler, gpu: 1, utilisation: 5%}]", r"utilisation: .*did you mean 'utilization'"),
    (HEAD + "faults: [{kind: straggler, gpu: 1, utilization: 5}]", "not between 0 and 1"),
    (HEAD + "faults: [{kind: straggler, gpu: 1, at: soon}]", r"faults\[0\].at: expected a quantity such as 90s"),
    (HEAD + "faults: [{kind: lost, gpu: 1, at: -3}]", r"faults\[0\].at: -3 is not between"),
    (HEAD + "faults: [{kind: xid, gpu: 1}]", r"faults\[0\].code: is missing"),
    (HEAD + "faults: [{kind: nvlink-down, gpu: 1, link: 18}]", "NVLinks 0 to 17"),
    (HEAD + "faults: [{kind: ib-down, port: mlx5_9}]", r"faults\[0\].port: unknown value 'mlx5_9'"),
    (HEAD + "faults: [{kind: ib-down, port: mlx5_1, duration: 30s, repeat: 20s}]", "must be shorter than `repeat`"),
    (HEAD + "faults: [{kind: ib-down, port: mlx5_1, repeat: 1s}]", "repeat: must be at least 10s"),
    (HEAD + "faults: [{kind: checkpoint-stall, gpu: 0, every: 60s, takes: 60s}]", "must be shorter than `every`"),
    (HEAD + "faults: [{kind: missing, gpu: 0, metric: coldplate_gpu_power_wats}]", "mean 'coldplate_gpu_power_watts'"),
    (HEAD + "faults: [{kind: missing, metric: coldplate_gpu_power_watts}]", "gpu or port: is missing"),
    (HEAD + "faults: [{kind: missing, gpu: 1, port: mlx5_1, metric: coldplate_gpu_power_watts}]", "name only one"),
    *(
        (f"description: d\ntopology: {topology}\nfaults: [{{kind: {fault}}}]", rf"faults\[0\].{message}")
        for topology, fault, message in (
            ("dgx-h100", "light-loss, optic: enp41s0f0np0, loss: 6dB", "optic: dgx-h100 has none"),
            ("dgx-h100-optics", "light-loss, optic: enp41s0f0np1, loss: 6dB", "optic: .* did you mean 'enp41s0f0np0'"),
            ("dgx-h100-optics", "light-loss, optic: enp41s0f0np0, loss: 6dB, lane: 5", "lane: .* number from 0 to 4"),
            ("nvl72-tray", "leak, detector: a", "detector: unknown value 'a'"),
            ("gb200-tray", "coolant-warm, degrees: 5", "kind: gb200-tray is not cooled by water"),
            ("nvl72-tray", "humid-air, humidity: 90%", "kind: nvl72-tray has no distribution unit"),
            ("nvl72-rack", "pump-failure, pump: PumpC", "pump: unknown value 'PumpC'; did you mean 'PumpB'"),
            ("dgx-h100", "feed-lost, feed: A", "feed: dgx-h100 has none"),
            ("nvl72-rack", "supply-failure, shelf: 9", "shelf: unknown value '9'"),
        )
    ),
    ("- a\n- b", "expected a mapping of keys"),
    ("a: [", "is not valid YAML"),
]


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_a_mistake_is_an_error_that_says_where_it_is(write, content, message):
    path = write(content)
    with pytest.raises(ScenarioError, match=message) as caught:
        load_scenario(str(path))
    assert str(path) in str(caught.value)


def test_an_unknown_scenario_suggests_the_nearest_and_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match="did you mean 'healthy-training'"):
        load_scenario("healthy-trainin")
    with pytest.raises(ScenarioError, match=r"gone\.yaml: cannot be read"):
        load_scenario(str(tmp_path / "gone.yaml"))


def test_every_shipped_scenario_states_expectations_owners_and_faults():
    assert len(shipped_names()) == 30
    for name in shipped_names():
        shipped = load_scenario(name)
        assert shipped.name == name
        assert shipped.description
        assert shipped.expect
        assert all(all((job.user, job.name, job.account, job.partition)) for job in shipped.jobs), name
        assert len(list(announced(shipped, WALL))) == min(len(shipped.faults), MOST + 1), name


def test_values_take_units_and_plain_numbers_alike(write):
    content = HEAD + "faults: [{kind: node-power, at: %s, watts: %s}]"
    first = load_scenario(str(write(content % ("2m", "2.7kW")))).faults[0]
    second = load_scenario(str(write(content % ("120", "2700")))).faults[0]
    assert (first.window.at, first.parameters["watts"]) == (120.0, 2700.0)
    assert first == second


def test_a_job_ends_with_its_last_phase(play, write):
    node = play(write(scenario("dgx-h100", job="gpus: 0-3, start: 10s, phases: [{kind: training, duration: 30s}]")))
    busy = [node.value(0, t, "utilization_ratio") > 0 for t in (5.0, 20.0, 41.0)]
    assert busy == [False, True, False]
    assert [any("job_info" in key for key in node.node(t, Lane.SLOW)) for t in (5.0, 20.0, 41.0)] == busy


# A synthetic node tells its jobs in the families in which the jobs backend tells those of a real one.
FOUR_GPUS = "gpus: 0-3, start: 100s, end: 200s, phases: [{kind: training}]"
LATE = scenario("dgx-h100", job=f"name: n, user: u, account: a, partition: p, {FOUR_GPUS}")


def facts(node, t):
    return {
        key: value for key, value in node.node(t, Lane.SLOW).items() if key.startswith("job_") and "/u/n/0" not in key
    }


def test_a_running_job_has_all_facts_whenever_the_source_opened_or_the_clock_moved(play, write) -> None:
    node = play(write(LATE))
    path = write(LATE)
    node = play(path)
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
    own = [sum(node.joules(gpu, t) for gpu in range(4)) for t in (100.0, 150.0, 190.0)]
    since = [facts(node, t)["job_energy_joules_total/slurm/j"] for t in (100.0, 150.0, 190.0)]
    assert since == pytest.approx([each - own[0] for each in own], abs=1.0)
    assert facts(node, 150.0) == pytest.approx(facts(play(path, 140.0), 150.0))
    before = facts(node, 150.0)["job_start_timestamp_seconds/slurm/j"]
    later = node.fabric.read(Lane.SLOW, Instant(EPOCH + 160.0, WALL + 9999.0)).readings
    assert before in [each.value for each in later if each.metric.name == "coldplate_job_start_timestamp_seconds"]


# What is said at the start of a demonstration: when something will happen, and where.
def test_faults_are_announced_with_place_and_times_and_do_not_fill_the_log(write) -> None:
    assert list(announced(load_scenario("straggler"), WALL)) == ["straggler of GPU 5 starts at 22:24:20 UTC, in 660 s"]
    assert list(announced(load_scenario("healthy-training"), WALL)) == []
    path = write(
        scenario(
            "dgx-h100",
            "{kind: node-power, at: 90s, watts: 1kW}",
            "{kind: ib-down, port: mlx5_3, at: 30s, duration: 4s, repeat: 60s}",
            "{kind: nvlink-down, gpu: 2, link: 7, at: 0s}",
            "{kind: power-brake, gpu: 0-2, at: 61s}",
        )
    )
    assert list(announced(load_scenario(str(path)), WALL)) == [
        "nvlink-down of link 7 of GPU 2 from the start",
        "ib-down of mlx5_3 starts at 22:13:50 UTC, in 30 s, repeated every 60 s",
        "power-brake of GPU 0, 1, 2 starts at 22:14:21 UTC, in 61 s",
        "node-power starts at 22:14:50 UTC, in 90 s",
    ]
    faults = "".join(f"\n  - {{kind: xid, gpu: 1, at: {each}s, code: 31}}" for each in range(MOST + 3))
    path = write(f"description: d\ntopology: dgx-h100\nfaults:{faults}")
    told = list(announced(load_scenario(str(path)), WALL))
    assert len(told) == MOST + 1
    assert (told[0], told[-1]) == ("xid 31 of GPU 1 from the start", "and 3 more faults")
