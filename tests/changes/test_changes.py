"""What an alert says of the two minutes before it, and that it is told once and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from agent.catalogue import BY_NAME
from agent.model import (
    Alert,
    Backend,
    BackendReport,
    Entity,
    Framer,
    Gap,
    Gpu,
    IbPort,
    Labels,
    Node,
    NvLink,
    Outcome,
    Phase,
    Reading,
    Reason,
    Series,
)
from alerts import alert_state
from alerts.changes import ANNOTATION
from alerts.changes.change_journal import (
    KEPT_SECONDS,
    MAX_LISTED,
    MOMENTS,
    MOST,
    QUIET_SECONDS,
    SM_CLOCK,
    SPARE,
    STEPS,
    ChangeJournal,
    explain,
)
from alerts.engine import RuleEngine, Ruleset
from tests.engine.conftest import Node as HandmadeNode
from tests.engine.conftest import later, ruleset

GPU_0, GPU_3 = Gpu("0", "GPU-0"), Gpu("3", "GPU-3")
PORT = IbPort("mlx5_3", "1")
BEGAN = 1_699_999_200.0  # 22:00:00Z

UP = ("coldplate_gpu_up", GPU_3, ())
CLOCK = ("coldplate_gpu_clock_hertz", GPU_3, (("domain", "sm"),))
HEAT = ("coldplate_gpu_throttle_active", GPU_3, (("reason", "hw_thermal_slowdown"),))
CAP = ("coldplate_gpu_throttle_active", GPU_3, (("reason", "sw_power_cap"),))
PORT_UP = ("coldplate_infiniband_port_up", PORT, ())
XID = ("coldplate_gpu_xid_last_timestamp_seconds", GPU_3, (("xid", "79"),))
JOB = ("coldplate_job_start_timestamp_seconds", Node(), (("scheduler", "slurm"), ("job_id", "41")))
ECC = "coldplate_gpu_ecc_errors_total"
SXID = (
    "coldplate_node_nvswitch_sxid_errors_total",
    Node(),
    (("pci", "0000:05:00"), ("sxid", "20034"), ("grade", "fatal")),
)

Key = tuple[str, Entity, Labels]


class Told:
    """A journal, fed with a snapshot a second."""

    def __init__(self) -> None:
        self.journal = ChangeJournal()
        self._framer = Framer()

    def seconds(
        self, first: int, last: int, values: Mapping[Key, float], reports: Sequence[BackendReport] = ()
    ) -> Told:
        """Snapshots with these values from one second to another, both included."""
        for second in range(first, last + 1):
            readings = [
                Reading(Series(BY_NAME[name], entity, labels), value)
                for (name, entity, labels), value in values.items()
            ]
            self.journal.record_snapshot([self._framer.frame(readings)], BEGAN + second, reports)
        return self

    def of(self, second: float, now: float, **labels: str) -> str:
        """What an alert that began in one second says in another."""
        alert = Alert("Any", tuple(labels.items()), Phase.FIRING, 1.0, BEGAN + second, BEGAN + now)
        return explain(self.journal, alert, BEGAN + now)


def test_no_change_is_an_answer_with_its_span_from_the_agents_start_on() -> None:
    assert {*STEPS, SM_CLOCK, *MOMENTS} <= BY_NAME.keys()
    told = Told().seconds(0, 300, {UP: 1.0, ("coldplate_gpu_power_watts", GPU_0, ()): 1.0})
    assert told.of(240, 300, gpu="3", uuid="GPU-3") == (
        "no other change was seen on this node from 22:02:00Z to 22:05:00Z"
    )
    assert told.of(30, 60).endswith("from 22:00:00Z, the agent's start, to 22:01:00Z")


def test_a_step_has_its_second_and_its_part_and_moves_with_a_clock_that_is_set() -> None:
    told = Told().seconds(0, 200, {UP: 1.0}).seconds(201, 210, {UP: 0.0})
    assert told.of(205, 210) == "22:03:21Z GPU 3: not answering (from 22:01:25Z to 22:03:30Z)"
    told.journal.shift(3600.0)
    assert told.of(3803, 3805).startswith("23:03:21Z GPU 3: not answering")


@pytest.mark.parametrize(
    ("key", "before", "now", "words"),
    [
        (HEAT, 0.0, 1.0, "GPU 3: clocks held down by hw_thermal_slowdown"),
        (HEAT, 1.0, 0.0, None),
        (CAP, 0.0, 1.0, None),
        (PORT_UP, 1.0, 0.0, "port mlx5_3/1: down"),
        (PORT_UP, 0.0, 1.0, "port mlx5_3/1: up again"),
        (("coldplate_nvlink_up", NvLink(GPU_3, 4), ()), 1.0, 0.0, "NVLink of GPU 3: down"),
        (("coldplate_gpu_power_limit_watts", GPU_3, ()), 700.0, 400.0, "GPU 3: power limit from 700 to 400 W"),
        (("coldplate_gpu_row_remap_pending", GPU_3, ()), 0.0, 1.0, "GPU 3: a memory row waits to be remapped"),
        (("coldplate_gpu_row_remap_pending", GPU_3, ()), 1.0, 0.0, None),
        ((ECC, GPU_3, (("type", "uncorrected"),)), 2.0, 3.0, "an uncorrected memory error"),
        ((ECC, GPU_3, (("type", "corrected"),)), 2.0, 3.0, None),
        (("coldplate_backend_up", Backend("infiniband"), ()), 1.0, 0.0, "backend infiniband: cannot be read"),
        (SXID, 1.0, 2.0, "SXid 20034 of NVSwitch 0000:05:00"),
    ],
)
def test_what_counts_as_a_change(key: Key, before: float, now: float, words: str | None) -> None:
    told = Told().seconds(0, 200, {key: before}).seconds(201, 201, {key: now}).of(201, 205)
    assert words in told if words is not None else told.startswith("no other change")


def test_why_a_device_or_a_backend_cannot_be_read_is_said_also_at_the_agents_start() -> None:
    mismatch = "NVML cannot be opened: library and driver versions differ (18): reboot the node"
    gap = Gap(
        BY_NAME["coldplate_gpu_power_watts"], GPU_3, Reason.MALFORMED, "no value can be read: unknown error (999)"
    )
    reports = [BackendReport("nvml", Outcome.FAILED, 0.0, mismatch, (gap,))]
    down: dict[Key, float] = {UP: 0.0, ("coldplate_backend_up", Backend("nvml"), ()): 0.0}
    text = Told().seconds(0, 10, down, reports).of(8, 10, gpu="3", uuid="GPU-3")
    assert f"backend nvml: cannot be read: {mismatch}" in text
    assert "GPU 3: not answering: no value can be read: unknown error (999)" in text
    up = dict.fromkeys(down, 1.0)
    assert mismatch in Told().seconds(0, 200, up).seconds(201, 210, down, reports).of(205, 210)
    assert Told().seconds(0, 10, up, reports).of(8, 10).startswith("no other change")


def test_what_has_a_time_of_its_own_is_told_with_it_and_only_if_the_agent_was_there() -> None:
    values: dict[Key, float] = {XID: BEGAN - 30, JOB: BEGAN + 100.4}
    told = Told().seconds(0, 110, {}).seconds(111, 140, values).of(130, 140)
    assert told == "22:01:40Z job 41 began (from 22:00:10Z to 22:02:20Z)"
    again = (
        Told()
        .seconds(0, 110, values)
        .seconds(111, 140, {**values, XID: BEGAN + 110})
        .of(130, 140, gpu="3", uuid="GPU-3")
    )
    assert "22:01:50Z GPU 3: XID 79" in again


def test_a_clock_counts_once_it_has_stayed_elsewhere_and_since_then() -> None:
    told = Told().seconds(0, 100, {CLOCK: 1.98e9}).seconds(101, 105, {CLOCK: 1.2e9}).seconds(106, 150, {CLOCK: 1.9e9})
    assert told.of(150, 150).startswith("no other change")
    told.seconds(151, 170, {CLOCK: 1.2e9})
    assert told.of(170, 170) == "22:02:31Z GPU 3: SM clock from 2.0 to 1.2 GHz (from 22:00:50Z to 22:02:50Z)"


def test_what_flaps_is_told_once_a_minute() -> None:
    told = Told().seconds(0, 100, {HEAT: 0.0})
    for second in range(101, 161, 2):
        told.seconds(second, second, {HEAT: 1.0}).seconds(second + 1, second + 1, {HEAT: 0.0})
    assert told.of(160, 160).count("hw_thermal_slowdown") == 1
    assert len(list(told.journal.between(BEGAN, BEGAN + 200))) <= 60 / QUIET_SECONDS + 1


@pytest.mark.parametrize(
    ("name", "parts", "words"),
    [
        ("coldplate_gpu_up", [Gpu(str(each), f"GPU-{each}") for each in range(4)], "GPUs 0-3: not answering"),
        ("coldplate_nvlink_up", [NvLink(GPU_3, each) for each in range(2)], "NVLinks of GPU 3: down"),
    ],
)
def test_the_same_of_several_parts_is_told_together(name: str, parts: list[Entity], words: str) -> None:
    """Links are counted, and so are the GPUs that they are of."""
    others: dict[Key, float] = {(name, each, ()): 1.0 for each in parts}
    told = Told().seconds(0, 100, others).seconds(101, 101, dict.fromkeys(others, 0.0))
    assert f"22:01:41Z {words} (" in told.of(101, 110)


def test_what_is_forgotten_is_not_claimed() -> None:
    """An alert that waited for long fires when its beginning is out of memory."""
    told = Told().seconds(0, 1, {UP: 1.0})
    told.journal.record_snapshot([], BEGAN + KEPT_SECONDS + 600)
    assert told.of(60, KEPT_SECONDS + 600).endswith("from 22:10:00Z, as far back as it remembers, to 22:55:00Z")
    full = Told()
    for second in range(MOST + 5):
        row = ("coldplate_gpu_row_remap_pending", Gpu(str(second), f"GPU-{second}"), ())
        full.seconds(second, second, {row: 0.0}).seconds(second, second, {row: 1.0})
    assert full.journal.known_since(BEGAN + MOST + 10) == BEGAN + 5, "since the oldest change that there is room for"


def test_the_nearest_come_first_and_the_rest_is_counted() -> None:
    own: dict[Key, float] = {
        (f"coldplate_gpu_{name}", GPU_0, labels): value
        for name, labels, value in (("up", (), 1.0), ("throttle_active", (("reason", "hw_power_brake"),), 0.0))
    }
    far: dict[Key, float] = {
        ("coldplate_infiniband_port_up", IbPort(f"mlx5_{each}", "1"), ()): 1.0 for each in range(6)
    }
    told = Told().seconds(0, 100, {**own, **far})
    now = {**own, **far}
    for place, key in enumerate(far):  # one after the other, so that each is told by itself
        now[key] = 0.0
        told.seconds(101 + 6 * place, 106 + 6 * place, now)
    now[("coldplate_gpu_throttle_active", GPU_0, (("reason", "hw_power_brake"),))] = 1.0
    told.seconds(140, 141, now)
    text = told.of(141, 141, gpu="0", uuid="GPU-0")
    assert text.count(";") == MAX_LISTED
    assert "22:02:20Z GPU 0: clocks held down by hw_power_brake" in text
    assert "; and 2 more (" in text


def test_its_own_job_is_nearer_than_other_parts() -> None:
    told = Told().seconds(0, 100, {PORT_UP: 1.0}).seconds(101, 110, {PORT_UP: 0.0, JOB: BEGAN + 100.5})
    assert told.of(110, 110, job_id="41", gpu="3", uuid="GPU-3").startswith(
        "22:01:40Z job 41 began; 22:01:41Z port mlx5_3/1: down"
    )


def test_a_series_that_is_away_for_a_moment_is_compared_with_what_it_was() -> None:
    limit = ("coldplate_gpu_power_limit_watts", GPU_3, ())
    told = (
        Told()
        .seconds(0, 100, {UP: 1.0, limit: 700.0})
        .seconds(101, 103, {UP: 1.0})
        .seconds(104, 104, {UP: 1.0, limit: 500.0})
    )
    assert "power limit from 700 to 500 W" in told.of(104, 104)


def test_layouts_that_come_and_go_do_not_add_up() -> None:
    told = Told().seconds(0, 0, {UP: 1.0})
    for each in range(3 * SPARE):
        gpu = Gpu("9", f"GPU-{each}")
        told.seconds(each, each, {UP: 1.0, ("coldplate_gpu_up", gpu, ()): 1.0, (CLOCK[0], gpu, CLOCK[2]): 1e9})
    assert len(told.journal._watched) == 1
    assert len(told.journal._values) + len(told.journal._levels) <= SPARE + 4


HOT = "{alert: Hot, expr: t > 80, for: 10s, annotations: {summary: 'at {{ $value }}'}}"
OWN = "{alert: Hot, expr: t > 80, annotations: {changes: mine}}"
HOT_NODE = {("t", "0"): 90.0}


class Explained:
    """An engine whose explanations are numbered, so that each is seen to be asked for once."""

    def __init__(self, rules: str | Ruleset) -> None:
        self.asked: list[Alert] = []
        self._node = HandmadeNode()
        found = ruleset(rules) if isinstance(rules, str) else rules
        self.engine = RuleEngine(found, (), later(0), explain=self._explain)

    def _explain(self, alert: Alert, now: float) -> str:
        self.asked.append(alert)
        return f"story {len(self.asked)} at {now - later(0).wall:.0f}"

    def rounds(self, first: int, last: int, hot: bool = True) -> Explained:
        for second in range(first, last + 1):
            snapshot = self._node.snapshot(HOT_NODE if hot else {("t", "0"): 20.0}, later(second))
            self.engine.round(snapshot, later(second))
        return self

    @property
    def alert(self) -> Alert:
        (found,) = [record.alert for _, _, record in self.engine.remembered()]
        return found


def test_an_alert_that_fires_is_explained_once_for_each_incident() -> None:
    run = Explained(HOT).rounds(0, 9)
    assert run.alert.phase is Phase.PENDING and ANNOTATION not in run.alert.annotations
    run.rounds(10, 30)
    assert dict(run.alert.annotations) == {"summary": "at 90", ANNOTATION: "story 1 at 10"}
    assert run.rounds(31, 35, hot=False).alert.annotations[ANNOTATION] == "story 1 at 10"
    assert run.alert.phase is Phase.RESOLVED
    assert run.rounds(36, 50).alert.annotations[ANNOTATION] == "story 2 at 46"


def test_a_restart_and_a_reload_keep_it() -> None:
    run = Explained(HOT).rounds(0, 12)
    content = alert_state.encode(run.engine.time(later(12)), "devices", run.engine.remembered())
    after = Explained(HOT)
    after.engine.restore(alert_state.decode(content), later(14))
    assert after.rounds(14, 20).alert.annotations[ANNOTATION] == "story 1 at 10"
    assert after.asked == []
    after.engine.reload(ruleset(HOT.replace("at {{", "now at {{")), later(21))
    assert dict(after.rounds(21, 30).alert.annotations) == {"summary": "now at 90", ANNOTATION: "story 1 at 10"}


def test_a_rule_with_an_annotation_of_that_name_keeps_its_own() -> None:
    run = Explained(OWN).rounds(0, 5)
    assert dict(run.alert.annotations) == {ANNOTATION: "mine"}
    assert run.asked == []
