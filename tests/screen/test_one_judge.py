"""The API, the page at `/`, `top` and `check` show the same conditions on the same devices, and judge nothing."""

import json
import re

import pytest

from agent.catalogue import BY_NAME
from agent.commands.check.node_conditions import NodeConditions, condition_findings, of_node
from agent.commands.top.node_sources import node_sample_of
from agent.commands.top.screen.node_samples import NodeSample
from agent.commands.top.screen.view_builder import ViewKeeper
from agent.model import Gpu, GroupReport, Instant, PastMoment, Phase, Reading, RuleReport, Severity
from agent.wiring.agent_client import AgentResponse, SnapshotReader, read_alerts
from exporters import rules_json
from exporters.http_messages import Request
from exporters.routes import Routes
from tests.asking import ask, context, overview
from tests.exporters.conftest import reading
from tests.frames import frame_of, snapshot_of
from tests.screen.scenes import played

MOMENTS = [
    ("gpu-lost", 70), ("gpu-lost", 100), ("gpu-lost", 200), ("thermal-throttle", 200), ("thermal-throttle", 600),
    ("ecc-remap", 200), ("ib-flap", 75), ("power-brake", 90), ("nvlink-down", 200), ("healthy-training", 60),
]  # fmt: skip
OF_GPU = re.compile(r'<b class="badge [a-z]*">\S+ (firing|pending)[^<]*</b> (?:<a href="[^"]*">)?(\w+)')


@pytest.mark.parametrize(("scenario", "second"), MOMENTS)
def test_page_top_check_and_api_name_the_same_conditions_on_the_same_gpus(scenario: str, second: int) -> None:
    snapshots, conditions = played(scenario, second, True)
    assert conditions is not None
    groups = (
        GroupReport(
            "g", "f", 1.0, rules=tuple(RuleReport(each.rule, True, "x", alerts=(each,)) for each in conditions)
        ),
    )
    alerts = read_alerts(rules_json.alerts(groups)).alerts
    by_gpu = {(dict(each.labels)["gpu"], each.phase.value, each.rule) for each in alerts if "gpu" in dict(each.labels)}
    scene = ViewKeeper(1.0).scene([NodeSample("n", "here", snapshots[-1], alerts, mono=snapshots[-1].at.mono)], 0.0)
    of_top = {(gpu.index, each.phase.value, each.rule) for gpu in scene.nodes[0].gpus for each in gpu.row.conditions}
    page = overview(context(snapshots[-1], rules=lambda: groups))
    table = re.search(r"<h2>GPUs.*?</table>", page, re.DOTALL)
    assert table is not None
    bodies = re.findall(r"<tbody.*?</tbody>", table[0], re.DOTALL)
    of_page = {
        (index, phase, rule)
        for body in bodies
        for index in re.findall(r'data-h="GPU"[^>]*><b>(\d+)</b>', body)
        for phase, rule in OF_GPU.findall(body.partition('class="why"')[2])
    }
    assert of_top == of_page == by_gpu
    of_check = {
        (each.name, each.verdict.value)
        for each in condition_findings(NodeConditions(of_node(alerts)))
        if each.name != "alerts"
    }
    counted = [each for each in alerts if each.phase is Phase.FIRING and not each.inhibited_by]
    assert of_check == {(each.rule, each.severity.value) for each in counted if each.severity is not Severity.INFO}
    assert json.loads(rules_json.alerts(groups))["status"] == "success"


def test_page_and_top_show_the_same_state_at_the_onset_of_a_fault() -> None:
    """Ten seconds of a minute after the fault: `top` has seen these alone, and the page the whole minute."""
    gpu = Gpu("0", "GPU-a")

    def seconds(computing: float, waiting: float) -> list[Reading]:
        values = {"computing": computing, "waiting": waiting}
        return [
            reading("coldplate_gpu_state_seconds_total", value, gpu, state=state) for state, value in values.items()
        ]

    def moment(wall: float, computing: float, waiting: float) -> PastMoment:
        frame = frame_of(tuple(seconds(computing, waiting)))
        return PastMoment(wall, ((frame.layout, frame.values),))

    moments = [moment(1e9, 100.0, 0.0), moment(1e9 + 60.0, 150.0, 10.0)]
    readings = [reading("coldplate_gpu_up", 1.0, gpu), reading("coldplate_gpu_utilization_ratio", 1.0, gpu)]
    keeper, reader = ViewKeeper(1.0), SnapshotReader()
    for at, waiting in ((Instant(50.0, 1e9 + 51.0), 0.0), (Instant(60.0, 1e9 + 60.0), 10.0)):
        view = context(snapshot_of(1, at, [*readings, *seconds(150.0, waiting)]), ledger=lambda: moments)
        body = ask(Routes(view), Request("GET", "/api/v1/snapshot")).body
        sample = reader.read(body)
        scene = keeper.scene([node_sample_of("n", AgentResponse(sample.snapshot, states=sample.states))], at.mono)
    (gpu_view,) = scene.nodes[0].gpus
    assert max(gpu_view.state_seconds, key=gpu_view.state_seconds.__getitem__) == "waiting", "since top has looked"
    assert gpu_view.word == "computing"
    assert ">? computing<" in overview(view)


def test_a_disabled_rule_is_no_trouble_anywhere() -> None:
    """A GPU at its slowdown threshold, of a site that has disabled GpuHot and GpuThrottled."""
    snapshots, conditions = played("thermal-throttle", 600, True)
    assert conditions is not None
    quiet = [each for each in conditions if each.rule not in ("GpuHot", "GpuThrottled")]
    rules = tuple(RuleReport(each.rule, True, "x", alerts=(each,)) for each in quiet) or (RuleReport("A", True, "x"),)
    page = overview(context(snapshots[-1], rules=lambda: (GroupReport("g", "f", 1.0, rules=rules),)))
    scene = ViewKeeper(1.0).scene([NodeSample("n", "here", snapshots[-1], quiet, mono=0.0)], 0.0)
    for text in (
        page.partition('<section class="state')[2].partition("</section>")[0],
        " ".join(each.text for each in scene.troubles),
    ):
        assert not re.search(r"hot|heat|throttl", text, re.IGNORECASE)
    margins = [
        value for series, value in snapshots[-1] if series.metric is BY_NAME["coldplate_gpu_temperature_margin_celsius"]
    ]
    assert min(margins) < 5.0
