"""The seconds of each GPU by what it did: they add up, and accuse no GPU without a reason."""

from collections import defaultdict

import pytest

from agent.backends.synthetic import load_scenario, shipped_names
from agent.catalogue import BY_NAME
from agent.model import Frame, Framer, Gpu, Labels, Node, Reading, Series
from agent.sampler.gpu_second import GpuHolder, GpuSecond, peers_of, shares_of
from agent.sampler.ledger import GpuLedger
from tests.lab.score.play import Play

JOB = GpuHolder((("scheduler", "slurm"), ("job_id", "7")), False)
FREE, SHARED = GpuHolder(None, False), GpuHolder(None, True)
COMPUTES, WAITS = GpuSecond(True, 1.0, True, False, False), GpuSecond(True, 1.0, False, False, False)
IDLE, LOST = GpuSecond(True, 0.0, True, False, False), GpuSecond(False, 0.0, False, False, False)


@pytest.mark.parametrize(
    ("second", "held", "others", "host", "expected"),
    [
        (COMPUTES, JOB, [IDLE], "", {"computing": 1.0}),
        (COMPUTES._replace(is_throttled=True), JOB, [], "", {"throttled": 1.0}),
        (COMPUTES._replace(busy=0.7), JOB, [COMPUTES], "", {"computing": 0.7, "held": 0.3}),
        (WAITS, JOB, [WAITS, IDLE], "", {"waiting": 1.0}),
        (IDLE, JOB, [WAITS, WAITS], "", {"awaited": 1.0}),
        (IDLE, JOB, [WAITS, IDLE, COMPUTES, COMPUTES], "", {"held": 1.0}),
        (IDLE, JOB, [COMPUTES, COMPUTES], "reads", {"held": 1.0}),
        (IDLE, JOB, [IDLE], "reads", {"starved": 1.0}),
        (IDLE, JOB, [WAITS, WAITS], "writes", {"saving": 1.0}),
        (WAITS, JOB, [IDLE, WAITS], "writes", {"saving": 1.0}),
        (WAITS, JOB, [COMPUTES], "writes", {"waiting": 1.0}),
        (IDLE, JOB, [LOST, LOST], "", {"held": 1.0}),
        (IDLE._replace(is_loading=True), JOB, [WAITS], "", {"loading": 1.0}),
        (IDLE, SHARED, [], "", {"held": 1.0}),
        (IDLE, FREE, [], "", {"free": 1.0}),
        (WAITS, FREE, [], "", {"waiting": 1.0}),
        (WAITS._replace(used=4e6), FREE, [], "", {"free": 1.0}),  # utilization without a user (clip-as-service 254)
        (WAITS._replace(used=4e6), JOB, [], "", {"waiting": 1.0}),
        (IDLE._replace(is_known=False), JOB, [WAITS], "", {}),
        (IDLE, JOB, [WAITS, IDLE._replace(is_known=False)], "", {"awaited": 1.0}),
        (LOST, JOB, [WAITS], "", {"lost": 1.0}),
    ],
)
def test_one_second_of_one_gpu(
    second: GpuSecond, held: GpuHolder, others: list[GpuSecond], host: str, expected: dict[str, float]
) -> None:
    shares = shares_of(second, held, peers_of(others), writes=host == "writes", reads=host == "reads")
    assert {state: pytest.approx(share) for state, share in shares if share} == expected


def totals(frame: Frame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for reading in frame.readings:
        if reading.metric.name == "coldplate_gpu_state_seconds_total" and reading.value:
            found[dict(reading.series.all_labels)["gpu"]][dict(reading.labels)["state"]] = reading.value
    return found


DID = {
    "checkpoint-stall": (400, {("0", "awaited"): 200.0, ("3", "waiting"): 200.0}),
    "gpu-lost": (200, {("3", "lost"): 130.0, ("0", "waiting"): 120.0}),
    "healthy-training": (120, {("0", "computing"): 100.0}),
    "idle": (90, {("0", "free"): 88.0}),
}
"""For how long a scenario is played, and at least how many seconds of it a GPU was in a state."""


@pytest.mark.parametrize("name", shipped_names())
def test_the_states_of_every_gpu_add_up_to_the_time_that_passed(name: str) -> None:
    begins, (seconds, did) = (0, DID[name]) if name in DID else (25, (90, {}))  # no fault comes earlier
    play = Play(load_scenario(name), (), begins=begins).until(seconds - 20)
    play.reopen()
    play.until(seconds - 1)
    snapshot = play.sample()
    play.close()
    ledger = next(
        frame
        for frame in snapshot.frames
        if any(series.metric.name == "coldplate_gpu_state_seconds_total" for series in frame.layout.series)
    )
    found, passed = totals(ledger), pytest.approx(seconds - 1 - begins)
    assert {gpu: sum(states.values()) for gpu, states in found.items()} == dict.fromkeys(found, passed)
    for (gpu, state), least in did.items():
        assert found[gpu].get(state, 0.0) >= least, found[gpu]
    whole: dict[Labels, float] = defaultdict(float)
    for reading in ledger.readings:
        if reading.metric.name == "coldplate_job_gpu_seconds_total":
            whole[reading.labels[:2]] += reading.value
    assert all(total <= (seconds - 1) * len(found) + 0.001 for total in whole.values())


def frame_at(**values: float) -> Frame:
    gpu = Gpu("0", "GPU-0")
    names = {
        "up": "coldplate_gpu_up",
        "busy": "coldplate_gpu_utilization_ratio",
        "power": "coldplate_gpu_power_watts",
        "limit": "coldplate_gpu_power_limit_watts",
        "default": "coldplate_gpu_power_limit_default_watts",
        "tensor": "coldplate_gpu_tensor_active_ratio",
        "used": "coldplate_gpu_memory_used_bytes",
    }
    return Framer().frame(Reading(Series(BY_NAME[names[key]], gpu), value) for key, value in values.items())


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"busy": 1.0, "power": 650.0, "limit": 700.0}, "computing"),
        ({"busy": 1.0, "power": 150.0, "limit": 700.0}, "waiting"),
        ({"busy": 1.0, "power": 190.0, "limit": 700.0}, "computing"),  # decoding falls to 27% of the limit
        ({"busy": 1.0, "power": 150.0, "limit": 700.0, "tensor": 0.2}, "computing"),
        ({"busy": 1.0, "power": 190.0, "limit": 700.0, "tensor": 0.0}, "waiting"),
        ({"busy": 1.0, "power": 150.0, "limit": 400.0, "default": 700.0, "tensor": 0.0}, "waiting"),
        ({"busy": 1.0, "power": 390.0, "limit": 400.0, "default": 700.0}, "computing"),
        ({"busy": 1.0}, "computing"),  # nothing tells the two apart
        ({"power": 650.0, "limit": 700.0}, "computing"),
        ({"power": 90.0, "limit": 700.0}, "free"),
        ({"busy": 0.0, "power": 90.0, "limit": 700.0, "used": 21e9}, "held"),  # by a process that the agent cannot see
        ({"busy": 0.0, "power": 90.0, "limit": 700.0, "used": 0.5e9}, "free"),
        ({"busy": 1.7, "power": 650.0, "limit": 700.0}, "computing"),
    ],
)
def test_spinning_is_told_from_work_by_what_the_device_shows(values: dict[str, float], state: str) -> None:
    ledger = GpuLedger()
    ledger.frames(10.0, [frame_at(up=1.0, **values)])
    assert totals(ledger.frames(11.0, [frame_at(up=1.0, **values)])[0])["0"] == {state: pytest.approx(1.0)}


@pytest.mark.parametrize("values", [{}, {"power": 90.0}, {"used": 0.0}])
def test_a_gpu_that_shows_neither_utilization_nor_power_has_no_state(values: dict[str, float]) -> None:
    """As Tegra, whose NVML offers nothing; watts alone say nothing without a limit."""
    ledger = GpuLedger()
    ledger.frames(10.0, [frame_at(up=1.0, **values)])
    assert "0" not in totals(ledger.frames(11.0, [frame_at(up=1.0, **values)])[0])
    assert totals(ledger.frames(12.0, [frame_at(up=0.0, **values)])[0])["0"] == {"lost": 1.0}


def test_what_a_gpu_draws_when_idle_tells_how_it_spins() -> None:
    """A board without activity counters that idles at 85 of 350 W: 95 W are spinning, as soon as that is known."""
    ledger, now = GpuLedger(), 0.0
    steps = (
        (95.0, 1.0, 5, "computing"),
        (300.0, 0.0, 5, "held"),
        (85.0, 0.0, 90, "held"),
        (95.0, 1.0, 5, "waiting"),
        (120.0, 1.0, 5, "computing"),
    )
    for watts, busy, seconds, state in steps:
        frames = job_of({0: level(power_watts=watts, power_limit_watts=350.0, utilization_ratio=busy)})
        before = totals(ledger.frames(now, frames)[0])["0"].get(state, 0.0)
        for _ in range(seconds):
            now += 1.0
            found = totals(ledger.frames(now, frames)[0])["0"]
        assert found[state] - before == pytest.approx(seconds), (watts, found)


def test_a_clock_that_stands_or_jumps_costs_no_second_twice() -> None:
    ledger, reading = GpuLedger(), frame_at(up=1.0, busy=1.0, power=650.0, limit=700.0)
    for now in (10.0, 11.0, 11.0, 10.5, 40.0):
        frame = ledger.frames(now, [reading])[0]
    assert totals(frame)["0"] == {"computing": pytest.approx(30.5)}


def test_series_of_a_job_end_with_it() -> None:
    ledger = GpuLedger()
    reading = frame_at(up=1.0, busy=1.0, power=650.0, limit=700.0)
    labels = (("scheduler", "slurm"), ("job_id", "7"), ("mig", "0"))
    job = Framer().frame([Reading(Series(BY_NAME["coldplate_gpu_job_info"], Gpu("0", "GPU-0"), labels), 1)])
    ledger.frames(1.0, [reading, job])
    assert Node() in {each.series.entity for each in ledger.frames(2.0, [reading, job])[0].readings}
    ended = ledger.frames(3.0, [reading])[0]
    assert {each.series.entity for each in ended.readings} == {Gpu("0", "GPU-0")}
    assert totals(ended)["0"] == {"computing": pytest.approx(2.0)}
    for gone, back, seconds in ((3.5, 4.0, 1.5), (5.0, 700.0, 695.0)):  # what it had before, and since it was last seen
        ledger.frames(gone, [reading])
        readings = ledger.frames(back, [reading, job])[0].readings
        assert sum(each.value for each in readings if each.series.entity == Node()) == pytest.approx(seconds)


def job_of(levels: dict[int, dict[str, float]]) -> list[Frame]:
    readings, labels = [], (("scheduler", "slurm"), ("job_id", "7"), ("mig", "0"))
    for index, values in levels.items():
        gpu = Gpu(str(index), f"GPU-{index}")
        readings += [Reading(Series(BY_NAME["coldplate_gpu_job_info"], gpu, labels), 1)]
        readings += [Reading(Series(BY_NAME[f"coldplate_gpu_{key}"], gpu), value) for key, value in values.items()]
    return [Framer().frame(readings)]


def level(**values: float) -> dict[str, float]:
    return {"up": 1.0, "utilization_ratio": 1.0, "power_watts": 600.0, "power_limit_watts": 700.0, **values}


def lock_step(activities: dict[int, list[float]]) -> dict[str, float]:
    ledger = GpuLedger()
    for second in range(len(activities[0])):
        frames = job_of({gpu: level(tensor_active_ratio=each[second]) for gpu, each in activities.items()})
        _, found = ledger.frames(float(second), frames)
    return {dict(each.series.all_labels)["gpu"]: each.value for each in found.readings}


def test_gpus_that_rise_and_fall_together_are_in_step_and_others_are_not() -> None:
    step, own = [0.2, 0.5, 0.8, 0.5] * 50, [0.5, 0.8, 0.5, 0.2, 0.8, 0.2, 0.5] * 29
    found = lock_step({0: step, 1: step, 2: step, 3: own[:200]})
    assert min(found[gpu] for gpu in "012") > 0.95
    assert abs(found["3"]) < 0.4
    assert lock_step({0: [0.5] * 200, 1: [0.5] * 200}) == {}, "nothing varies"
    assert lock_step({0: [0.2, 0.8] * 25, 1: [0.2, 0.8] * 25}) == {}, "too little was seen"


def test_an_idle_gpu_keeps_the_step_that_it_had() -> None:
    ledger, step = GpuLedger(), [0.2, 0.5, 0.8, 0.5]
    for second in range(400):
        idle = second >= 200
        levels = {gpu: level(tensor_active_ratio=step[second % 4]) for gpu in range(3)}
        if idle:
            levels[2] = level(utilization_ratio=0.0, tensor_active_ratio=0.0, power_watts=100.0)
        _, found = ledger.frames(float(second), job_of(levels))
    assert {dict(each.series.all_labels)["gpu"] for each in found.readings if each.value > 0.9} == {"0", "1", "2"}


def test_a_gpu_that_is_still_loading_is_not_awaited() -> None:
    for used, state in ((2e9, "loading"), (70e9, "awaited")):
        ledger = GpuLedger()
        spinning = level(power_watts=150.0, memory_used_bytes=70e9)
        idle = level(utilization_ratio=0.0, power_watts=100.0, memory_used_bytes=used)
        levels = {0: idle, 1: spinning, 2: spinning}
        ledger.frames(1.0, job_of(levels))
        assert totals(ledger.frames(2.0, job_of(levels))[0])["0"] == {state: 1.0}
    ledger = GpuLedger()
    for second in (1, 2, 3):
        idle = level(utilization_ratio=0.0, power_watts=100.0, pcie_receive_bytes_total=second * 5e9)
        counters, _ = ledger.frames(float(second), job_of({0: idle, 1: idle}))
    assert totals(counters)["0"] == {"held": 1.0, "starved": 1.0}  # a rate needs two values


# The seconds of each GPU instance by what it did, from its activity and whether a job holds it.
GPU = Gpu("0", "GPU-0")
MIG_COMPUTES, MIG_SPINS, MIG_IDLE = (
    {"utilization": 1.0, "sm_active": 0.6},
    {"utilization": 1.0, "sm_active": 0.1},
    {"utilization": 0.0},
)


class Rig:
    """A ledger of one GPU, and its frames: the activity of its instances, and those that jobs hold."""

    def __init__(self) -> None:
        self.ledger = GpuLedger()
        self._activity, self._jobs = Framer(), Framer()

    def at(self, now: float, instances: dict[str, dict[str, float]], *held: str) -> dict[str, dict[str, float]]:
        """Return the seconds of each instance by state, without those that are 0."""
        activity = self._activity.frame(
            Reading(Series(BY_NAME[f"coldplate_gpu_mig_{name}_ratio"], GPU, labels(number)), value)
            for number, each in instances.items()
            for name, value in each.items()
        )
        jobs = self._jobs.frame(
            Reading(Series(BY_NAME["coldplate_gpu_job_info"], GPU, (("job_id", "7"), ("mig", number))), 1)
            for number in held
        )
        return mig_totals(self.ledger.frames(now, (activity, jobs))[0])


def labels(number: str) -> tuple[tuple[str, str], ...]:
    return (("mig_uuid", f"MIG-{number}"), ("gpu_instance", number))


def mig_totals(frame: Frame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for reading in frame.readings:
        its = dict(reading.labels)
        assert its["mig_uuid"] == f"MIG-{its['gpu_instance']}"
        states = found.setdefault(its["gpu_instance"], {})
        if reading.value:
            states[its["state"]] = reading.value
    return found


@pytest.mark.parametrize(
    ("activity", "held", "expected"),
    [
        (MIG_COMPUTES, True, {"computing": 10.0}),
        (MIG_SPINS, True, {"waiting": 10.0}),
        (MIG_SPINS | {"dram_active": 0.2}, True, {"computing": 10.0}),
        (MIG_IDLE, True, {"held": 10.0}),
        (MIG_IDLE, False, {"free": 10.0}),
        (MIG_COMPUTES | {"utilization": 0.3}, True, {"computing": 3.0, "held": 7.0}),
        (MIG_COMPUTES | {"utilization": 0.3}, False, {"computing": 3.0, "free": 7.0}),
    ],
)
def test_ten_seconds_of_one_instance(activity: dict[str, float], held: bool, expected: dict[str, float]) -> None:
    rig = Rig()
    jobs = ["3"] if held else []
    assert rig.at(0.0, {"3": activity}, *jobs) == {"3": {}}
    assert rig.at(10.0, {"3": activity}, *jobs) == {"3": pytest.approx(expected)}


def test_the_instances_of_a_gpu_are_apart_and_without_activity_there_are_no_states() -> None:
    rig = Rig()
    instances = {"1": MIG_COMPUTES, "2": MIG_IDLE, "5": MIG_IDLE, "6": {"sm_active": 0.5}}
    rig.at(0.0, instances, "1", "2")
    found = rig.at(10.0, instances, "1", "2")
    assert found == {"1": {"computing": 10.0}, "2": {"held": 10.0}, "5": {"free": 10.0}}


def test_an_instance_that_comes_back_soon_goes_on_where_it_was() -> None:
    rig = Rig()
    rig.at(0.0, {"1": MIG_COMPUTES})
    rig.at(5000.0, {"1": MIG_COMPUTES})  # its layout never changed meanwhile
    assert rig.at(5010.0, {}) == {}
    assert rig.at(5020.0, {"1": MIG_IDLE})["1"] == {"computing": 5000.0, "free": 10.0}
    rig.at(5030.0, {})
    assert rig.at(6000.0, {"1": MIG_IDLE})["1"] == {"free": 970.0}
