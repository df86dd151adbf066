"""The rules about whole jobs on servers: who is named, how soon, and which healthy jobs look alike."""

import random
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import pytest

from tests.deployment.job_pages import (
    AWAITED,
    COMPUTES,
    DECODES,
    ENDED,
    HELD,
    LOST,
    SAVES,
    STEP_SECONDS,
    WAITS,
    Activity,
    Clock,
    Series,
    check_alerts,
    clock_pages,
    node_pages,
    ports_pages,
)

WORK, STALL = 48, 48
"""Steps of work, and of what follows: twelve minutes each."""
SENDS = [True] * WORK + [False] * STALL
HUNG = 'count by (severity, instance, gpu, cause) (ALERTS{alertname="JobHung",alertstate="firing"})'
EVER = 'count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[4h]))'


def after(seconds: int) -> int:
    """Return a time so long after the work stopped: the last step of work shows at its scrape."""
    return (WORK - 1) * STEP_SECONDS + seconds


def then(activity: Activity) -> list[Activity]:
    return [COMPUTES] * WORK + [activity] * STALL


WAIT = then(WAITS)
WAITING = node_pages(1, [WAIT] * 4, SENDS)
CASES: dict[str, tuple[list[list[Series]], str]] = {
    "a GPU is lost": (
        [WAITING, node_pages(2, [WAIT, then(LOST), WAIT, WAIT], SENDS)],
        'instance="n2:19400",gpu="1",cause="lost"',
    ),
    "a GPU spins after an XID, and another is idle": (
        [node_pages(1, [WAIT, WAIT, then(AWAITED), WAIT], SENDS), node_pages(2, [WAIT] * 4, SENDS, xid={3: WORK})],
        'instance="n2:19400",gpu="3",cause="xid"',
    ),
    "a process ended": (
        [WAITING, node_pages(2, [then(ENDED), WAIT, WAIT, WAIT], SENDS)],
        'instance="n2:19400",gpu="0",cause="ended"',
    ),
    "an agent is gone with its node": (
        [WAITING, node_pages(2, [WAIT] * 4, SENDS, gone=WORK)],
        'instance="n2:19400",cause="agent"',
    ),
    "a GPU is idle, and a port went down": (
        [node_pages(1, [WAIT] * 4, SENDS, port_down=WORK), node_pages(2, [WAIT, WAIT, WAIT, then(AWAITED)], SENDS)],
        'instance="n2:19400",gpu="3",cause="idle"',
    ),
    "a node is idle": ([WAITING, node_pages(2, [then(HELD)] * 4, SENDS)], 'instance="n2:19400",cause="idle"'),
    "a GPU computes": (
        [WAITING, node_pages(2, [WAIT, WAIT, then(COMPUTES), WAIT], SENDS)],
        'instance="n2:19400",gpu="2",cause="computing"',
    ),
    "a port is down": ([WAITING, node_pages(2, [WAIT] * 4, SENDS, port_down=WORK)], 'instance="n2:19400",cause="port"'),
    "all wait, and none differs": ([node_pages(each, [WAIT] * 4, SENDS) for each in (1, 2)], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_that_hangs_is_named_within_a_minute_with_what_it_waits_for(case: str, tmp_path: Path) -> None:
    pages, culprit = CASES[case]
    both = [",".join(filter(None, (f'severity="{each}"', culprit))) for each in ("warning", "critical")]
    check_alerts(tmp_path, [*chain.from_iterable(pages)], STEP_SECONDS, [
        (after(0), HUNG, []), (after(60), HUNG, both[:1]), (after(240), HUNG, both[:1]), (after(315), HUNG, both),
        (after(700), HUNG, both),
    ])  # fmt: skip


SPARE = [HELD] * (WORK + STALL)
HEALTHY: dict[str, list[list[Series]]] = {
    "decodes from memory": [node_pages(each, [then(DECODES)] * 4, SENDS) for each in (1, 2)],
    "is bound by its network": [node_pages(each, [WAIT] * 4, [True] * len(SENDS)) for each in (1, 2)],
    "never sent anything": [node_pages(each, [WAIT] * 4, [False] * len(SENDS)) for each in (1, 2)],
    "waits in part": [node_pages(each, [WAIT, WAIT, then(COMPUTES), then(COMPUTES)], SENDS) for each in (1, 2)],
    "saves on one node": [WAITING, node_pages(2, [then(SAVES)] * 4, SENDS)],
    "is too small": [node_pages(1, [WAIT] * 3, SENDS)],
    "is idle": [node_pages(each, [then(HELD)] * 4, SENDS) for each in (1, 2)],
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_job_that_does_not_hang_is_not_named(case: str, tmp_path: Path) -> None:
    check_alerts(tmp_path, [*chain.from_iterable(HEALTHY[case])], STEP_SECONDS, [(after(720), EVER, [])])


def phases(activity: Activity, *, minutes: int, times: int) -> list[Activity]:
    """Return 20 minutes of work and so many of something else, several times over."""
    return ([COMPUTES] * 80 + [activity] * (4 * minutes)) * times + [COMPUTES] * 8


def evaluating(minutes: int, times: int) -> list[Series]:
    """Return a job of which one GPU evaluates while the others wait."""
    wait, own = phases(WAITS, minutes=minutes, times=times), phases(COMPUTES, minutes=minutes, times=times)
    sends = [each is COMPUTES for each in wait]
    return node_pages(1, [wait] * 4, sends) + node_pages(2, [own, wait, wait, wait], sends)


def test_what_a_job_did_before_is_no_news(tmp_path: Path) -> None:
    """An evaluation of seven minutes: both levels the first time, none the second and third."""
    fired = 'count by (severity) (max_over_time(ALERTS{alertname="JobHung",alertstate="firing"}[%s]))'
    both = ['severity="warning"', 'severity="critical"']
    check_alerts(tmp_path, evaluating(7, 3), STEP_SECONDS, [
        (27 * 60, fired % "10m", both), (55 * 60, fired % "20m", []), (82 * 60, fired % "50m", []),
    ])  # fmt: skip


def test_a_hang_after_what_looked_like_one_is_named_when_it_lasts(tmp_path: Path) -> None:
    """Evaluations of two minutes, and then a hang of a quarter of an hour."""
    wait = phases(WAITS, minutes=2, times=2) + [WAITS] * 60
    own = phases(COMPUTES, minutes=2, times=2) + [AWAITED] * 60
    sends = [each is COMPUTES for each in wait]
    pages = node_pages(1, [wait] * 4, sends) + node_pages(2, [own, wait, wait, wait], sends)
    hang = 46 * 60
    check_alerts(tmp_path, pages, STEP_SECONDS, [
        (hang + 120, HUNG, []),
        (hang + 315, HUNG, ['severity="critical",instance="n2:19400",gpu="0",cause="idle"']),
        (hang + 720, HUNG, [f'severity="{each}",instance="n2:19400",gpu="0",cause="idle"'
                            for each in ("warning", "critical")]),
    ])  # fmt: skip


def test_a_spare_gpu_is_not_what_a_job_waits_for(tmp_path: Path) -> None:
    pages = WAITING + node_pages(2, [WAIT, WAIT, WAIT, SPARE], SENDS)
    check_alerts(tmp_path, pages, STEP_SECONDS, [(after(60), HUNG, ['severity="warning"'])])


SLOW = 'count by (instance, gpu) (ALERTS{alertname="JobGpuSlow",alertstate="firing"})'
CLOCK_STEPS = 17


def job(nodes: int, gpus: int = 8, **changed: Clock) -> list[Clock]:
    usual = {f"n{node}g{gpu}": Clock(node, gpu) for node in range(nodes) for gpu in range(gpus)}
    return list({**usual, **changed}.values())


@pytest.mark.parametrize("clock", [0.92, 0.85])
def test_a_gpu_that_does_its_work_at_a_lower_clock_is_named(clock: float, tmp_path: Path) -> None:
    pages = clock_pages(job(2, 4, n1g3=Clock(1, 3, clock, 1 / clock)), CLOCK_STEPS)
    check_alerts(tmp_path, pages, 30, [(480, SLOW, ['instance="n1:19400",gpu="3"'])])


def spread(count: int, seed: int) -> list[Clock]:
    """Return GPUs whose clocks spread by 3%, as chips do, and that do equal work."""
    chance = random.Random(seed)
    clocks = [chance.gauss(1, 0.03) for _ in range(count)]
    return [Clock(place // 8, place % 8, clock, 1 / clock) for place, clock in enumerate(clocks)]


def slower(
    nodes: int, gpus: int, which: Callable[[int, int], bool], clock: float, *, work: float = 1, limit: float = 700
) -> list[Clock]:
    """Return a job some of whose GPUs do that work at a lower clock, and under that power limit."""
    places = ((node, gpu) for node in range(nodes) for gpu in range(gpus))
    return [Clock(*each, clock, work / clock, limit=limit) if which(*each) else Clock(*each) for each in places]


FASTER: dict[str, Sequence[Clock]] = {
    "nodes with locked clocks": slower(16, 8, lambda node, gpu: node < 2, 0.85),
    "nodes with another power limit": slower(16, 2, lambda node, gpu: node < 2, 0.85, limit=500),
    "two clocks of one model": slower(10, 8, lambda node, gpu: node % 5 == 0, 0.89),
    "the last stage has 6% more work": slower(4, 8, lambda node, gpu: node == 3, 0.93, work=1.06),
    "the last stage of a node has 7% more work": slower(4, 8, lambda node, gpu: gpu > 6, 0.9, work=1.07),
    "a GPU at its power cap": job(2, 8, n1g3=Clock(1, 3, 0.85, 1 / 0.85, is_capped=True)),
    "a GPU whose peers do not wait": job(2, 8, n1g3=Clock(1, 3, 0.85, 0.9)),
    "256 chips that spread by 3%": spread(256, 7),
}


@pytest.mark.parametrize("case", FASTER)
def test_a_healthy_job_has_no_slow_gpu(case: str, tmp_path: Path) -> None:
    check_alerts(tmp_path, clock_pages(FASTER[case], CLOCK_STEPS), 30, [(480, EVER, [])])


@pytest.mark.release
def test_a_large_job_of_healthy_chips_has_no_slow_gpu(tmp_path: Path) -> None:
    check_alerts(tmp_path, clock_pages(spread(1024, 7), CLOCK_STEPS), 30, [(480, EVER, [])])


RAIL = 'count by (instance, device) (ALERTS{alertname="JobRailSlow",alertstate="firing"})'


@pytest.mark.parametrize(("others", "named"), [(1.0, True), (1 + 0.9 / 7, False)])
def test_a_rail_that_carries_a_tenth_is_named_unless_the_other_rails_carry_the_rest(
    others: float, named: bool, tmp_path: Path
) -> None:
    nodes = [[1.0] * 8 for _ in range(8)]
    nodes[3] = [others] * 5 + [0.1] + [others] * 2
    slow = ['instance="n3:19400",device="mlx5_5"']
    check_alerts(tmp_path, ports_pages(nodes, 28), 30, [(810, RAIL, slow) if named else (810, EVER, [])])


def test_adaptive_routing_makes_no_rail_slow(tmp_path: Path) -> None:
    chance = random.Random(0)
    nodes = [[chance.uniform(0.7, 1.3) for _ in range(8)] for _ in range(16)]
    check_alerts(tmp_path, ports_pages(nodes, 28), 30, [(810, EVER, [])])
