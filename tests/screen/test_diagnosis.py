"""Why a GPU is slow, in words, for what the scenarios do and for jobs that span nodes."""

from __future__ import annotations

import pytest

from agent.commands.top.screen.node_samples import Sighting
from agent.commands.top.screen.view_builder import ScreenData, ViewKeeper
from agent.model import BackendReport, Gpu, Instant, Node, Outcome, Rack, Reading, Snapshot
from exporters.markup import Tone
from tests.exporters.conftest import reading
from tests.frames import snapshot_of
from tests.screen.scenes import scene_of, texts

SAID = [  # what straggler, checkpoint-stall and thermal-throttle do is in the committed panes
    ("healthy-training", 60, None),
    ("two-jobs", 60, None),
    ("idle", 60, None),
    ("inference-mix", 60, None),
    ("gpu-lost", 100, "BAD GPU 3 is lost: 7 GPUs wait for it in job 6006, 100% busy at 22% of their power limit"),
    ("driver-hang", 100, "BAD GPU 2: no answer for 40 s"),
    ("slow-gpu", 180, "WARN GPU 6 holds job 6003 up, slower than its peers: 945 MHz, 7 peers 1545 MHz; 407 W, 7 peers"),
    ("nvlink-down", 200, "BAD GPU 2: NVLink 7 down"),
    ("power-brake", 90, "BAD GPU 0–7: power brake by the node's power supply (hw_power_brake)"),
    ("ecc-remap", 200, "BAD GPU 4: the driver requests gpu reset; XID 48 (double bit ECC error), 1 min ago; a row"),
    ("ib-flap", 75, "BAD port mlx5_3/1 down: Down, Polling"),
    ("ib-symbol-errors", 120, "WARN port mlx5_6/1 errors: 5 link recoveries, 11 symbol errors"),
]


@pytest.mark.parametrize(("scenario", "second", "first"), SAID)
def test_what_a_scenario_does_is_the_first_sentence(scenario: str, second: int, first: str | None) -> None:
    told = texts(scene_of(scenario, second, every=10).troubles)
    if first is None:
        assert told == []
    else:
        assert told[0].startswith(first)


GPUS = [Gpu(str(number), f"GPU-{number:08x}") for number in range(4)]


def busy(number: int, share: float, watts: float, job: str = "77") -> list[Reading]:
    gpu = GPUS[number]
    labels = {"scheduler": "slurm", "job_id": job, "user": "ada", "name": "x", "mig": "0", "shared": "false"}
    return [
        reading("coldplate_gpu_up", 1.0, gpu),
        reading("coldplate_gpu_utilization_ratio", share, gpu),
        reading("coldplate_gpu_power_watts", watts, gpu),
        reading("coldplate_gpu_power_limit_watts", 700.0, gpu),
        reading("coldplate_gpu_job_info", 1.0, gpu, **labels),
    ]


def seen(*nodes: tuple[str, list[Reading]], reports: tuple[BackendReport, ...] = ()) -> ScreenData:
    at = Instant(5.0, 1e9)
    told = [Sighting(name, "here", snapshot_of(1, at, readings, reports), mono=5.0) for name, readings in nodes]
    return ViewKeeper(1.0).scene(told, 5.0)


def test_a_job_of_two_nodes_names_the_gpu_of_the_other_node() -> None:
    scene = seen(
        ("a", [*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0)]), ("b", [*busy(2, 0.02, 120.0), *busy(3, 1.0, 150.0)])
    )
    assert texts(scene.troubles) == [
        "WARN b GPU 2 holds job 77 up, 2% busy: 3 GPUs wait for it, 100% busy at 21% of their power limit"
    ]
    waiting = scene.nodes[0].gpus[0]
    assert waiting.word == "waits"
    assert waiting.findings[0].text == "waits for b GPU 2: 100% busy at 21% of its power limit"


def test_a_gpu_that_lost_its_job_with_itself_is_still_the_one_that_is_waited_for() -> None:
    gone = [reading("coldplate_gpu_up", 0.0, GPUS[3])]
    scene = seen(("a", [*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0), *gone]))
    assert texts(scene.troubles)[0].startswith("BAD GPU 3 does not answer: 2 GPUs wait for it in job 77")


def test_gpus_of_another_job_are_no_peers() -> None:
    scene = seen(("a", [*busy(0, 1.0, 690.0, "1"), *busy(1, 0.02, 120.0, "2")]))
    assert texts(scene.troubles) == []


def test_a_job_that_waits_for_nobody_seen_here_says_where_to_look() -> None:
    scene = seen(("a", [*busy(0, 1.0, 150.0), *busy(1, 1.0, 150.0)]))
    assert "look at the job's other nodes" in texts(scene.troubles)[0]


def test_the_rack_is_told_near_its_budget_and_above() -> None:
    def told(watts: float) -> list[str]:
        rack = Rack("r12")
        readings = [
            reading("coldplate_rack_power_watts", watts, rack),
            reading("coldplate_rack_power_budget_watts", 40_000.0, rack),
        ]
        return texts(seen(("a", readings)).troubles)

    assert told(37_900.0) == []
    assert told(39_000.0) == ["WARN rack r12 draws 98% of its power budget"]
    assert told(42_000.0) == ["BAD rack r12 draws 105% of its power budget"]


def test_a_source_that_fails_is_told_with_its_reason_and_one_that_is_absent_is_not() -> None:
    failed = BackendReport("infiniband", Outcome.FAILED, 0.1, "no permission")
    absent = BackendReport("nvml", Outcome.ABSENT, 0.1, "no driver here")
    scene = seen(("a", []), reports=(failed, absent))
    assert texts(scene.troubles) == ["WARN infiniband cannot be read: no permission"]
    assert scene.nodes[0].no_devices == "no driver here"


def test_fewer_gpus_than_expected_is_bad() -> None:
    scene = seen(("a", [*busy(0, 1.0, 690.0), reading("coldplate_gpus_expected", 8.0, Node())]))
    assert [each.tone for each in scene.troubles] == [Tone.BAD]
    assert "1 of 8 GPUs are present" in scene.troubles[0].text


def test_old_data_are_said_to_be_old() -> None:
    watch = ViewKeeper(1.0)
    sighting = Sighting("a", "here", Snapshot(1, Instant(5.0, 1e9), ()), age=2.0, mono=10.0)
    assert texts(watch.scene([sighting], 11.0).troubles) == []
    assert texts(watch.scene([sighting], 19.0).troubles) == ["WARN a: what is shown is 11 s old"]
