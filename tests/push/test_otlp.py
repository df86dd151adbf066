"""OpenTelemetry: the table against the package of the conventions; requests as the protocol's own code reads them."""

import gzip
import inspect
import re
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.semconv._incubating.attributes import (
    cpu_attributes,
    disk_attributes,
    hw_attributes,
    network_attributes,
    system_attributes,
)
from opentelemetry.semconv._incubating.metrics import hw_metrics, system_metrics
from opentelemetry.semconv.attributes import network_attributes as stable_attributes

from agent.catalogue import BY_NAME
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Frame, Gpu, IbPort, Instant, Kind, Layout, Node, Series, Snapshot, Unit
from exporters.push.otlp_names import CONVENTIONS, UCUM, Instrument, name_of
from exporters.push.otlp_push import MetricsMaker, OtlpPush
from exporters.push.push_queue import EXPIRED
from tests.each import for_each
from tests.exporters.conftest import one_of_each_row
from tests.frames import snapshot_of
from tests.push.conftest import Nodes
from tests.waiting import wait_until

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text()
GPU = Gpu("3", "GPU-3")


def published() -> dict[str, tuple[str, str]]:
    """Instrument and unit of each metric of the conventions that is not deprecated."""
    text = inspect.getsource(hw_metrics) + inspect.getsource(system_metrics)
    found = re.findall(r'Final = "(.+)"\n"""\n.*\nInstrument: (\w+)\nUnit: (.+)\n', text)
    return {name: (instrument, unit) for name, instrument, unit in found}


def values_of(*modules: object) -> set[str]:
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


PUBLISHED = published()
KEYS = values_of(
    hw_attributes, system_attributes, network_attributes, stable_attributes, disk_attributes, cpu_attributes
)


@for_each("row", sorted(CONVENTIONS))
def test_a_name_is_one_of_the_conventions_fits_our_row_and_is_in_the_document(row: str) -> None:
    """A counter stays one, and a unit is converted nowhere."""
    ours, name = BY_NAME[row], CONVENTIONS[row]
    assert PUBLISHED[name.name] == (name.instrument.value, name.unit)
    assert {key for key, _ in name.attributes} | {key for _, key in name.renamed} <= KEYS
    assert {"hw.id", "hw.name", "hw.parent", "hw.sensor_location"} <= KEYS
    assert (ours.kind is Kind.COUNTER) == (name.instrument is Instrument.COUNTER)
    assert ours.unit is Unit.NONE or UCUM[ours.unit] == name.unit
    assert {label for label, _ in name.renamed} <= set(ours.labels)
    assert f"| `{row}` | `{name.name}`" in DOCUMENT


def read(data: object) -> dict[str, metrics_pb2.Metric]:
    """Metrics by name, as the protocol's own code reads what the exporter would send."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    request = ExportMetricsServiceRequest.FromString(encode_metrics(data).SerializeToString())  # type: ignore[arg-type]
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
    return {metric.name: metric for metric in scope.metrics}


def points(metric: metrics_pb2.Metric) -> dict[frozenset[tuple[str, str]], float]:
    data = metric.sum if metric.HasField("sum") else metric.gauge
    found = {
        frozenset((each.key, each.value.string_value) for each in point.attributes): point.as_double
        for point in data.data_points
    }
    assert len(found) == len(data.data_points), f"{metric.name}: two points have the same attributes"
    return found


def test_every_reading_is_there_once() -> None:
    snapshot = snapshot_of(1, Instant(5.0, 1_700_000_000.5), one_of_each_row())
    made = read(MetricsMaker({}, "1").make(snapshot, 0.25, 1_700_000_001.0))
    assert sum(len(points(metric)) for metric in made.values()) == len(snapshot) + 1
    ours = {each.metric.name for each in snapshot} - CONVENTIONS.keys()
    assert ours <= made.keys()
    assert {name.name for name in CONVENTIONS.values()} <= made.keys()
    assert points(made["coldplate_sample_age_seconds"]) == {frozenset(): 0.25}
    for name in (name_of(each.metric) for each in snapshot):
        assert made[name.name].unit == name.unit


def test_kinds_times_and_attributes_and_that_what_is_gone_is_absent() -> None:
    layout = Layout((
        Series(BY_NAME["coldplate_gpu_utilization_ratio"], GPU),
        Series(BY_NAME["coldplate_gpu_encoder_utilization_ratio"], GPU),
        Series(BY_NAME["coldplate_gpu_temperature_celsius"], GPU),
        Series(BY_NAME["coldplate_gpu_memory_temperature_celsius"], GPU),
        Series(BY_NAME["coldplate_gpu_energy_joules_total"], GPU),
        Series(BY_NAME["coldplate_infiniband_port_data_received_bytes_total"], IbPort("mlx5_0", "1")),
        Series(BY_NAME["coldplate_node_cpu_seconds_total"], Node(), (("mode", "user"),)),
        Series(BY_NAME["coldplate_gpu_memory_used_bytes"], GPU),
        Series(BY_NAME["coldplate_gpu_throttle_active"], GPU, (("reason", "thermal"),)),
    ))  # fmt: skip
    maker = MetricsMaker({"host.name": "n1"}, "1.2")
    first = Snapshot(1, Instant(5.0, 1000.0), (Frame(layout, (0.5, 0.0, 60.0, 70.0, 9.0, 8.0, 7.0, 6.0, 1.0)),))
    maker.make(first, 0.0, 1000.0)
    second = Snapshot(2, Instant(6.0, 1015.5), (Frame(layout, (0.25, 0.0, 61.0, 71.0, 9.5, 8.5, 7.5, 6.5, 0.0)),))
    made = read(maker.make(second, 0.0, 1015.5))
    gpu = {("hw.id", "GPU-3"), ("hw.name", "GPU 3"), ("hw.type", "gpu")}
    assert points(made["hw.gpu.utilization"]) == {
        frozenset({*gpu, ("hw.gpu.task", "general")}): 0.25, frozenset({*gpu, ("hw.gpu.task", "encoder")}): 0.0
    }  # fmt: skip
    assert {dict(key)["hw.sensor_location"]: (dict(key)["hw.id"], dict(key)["hw.parent"], value)
            for key, value in points(made["hw.temperature"]).items()} == {
        "GPU": ("GPU-3/GPU", "GPU-3", 61.0), "GPU_MEMORY": ("GPU-3/GPU_MEMORY", "GPU-3", 71.0)
    }  # fmt: skip
    energy = made["hw.energy"]
    assert energy.sum.is_monotonic
    assert energy.sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = energy.sum.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1000 * 10**9, 1_015_500_000_000)
    assert not made["hw.gpu.memory.usage"].sum.is_monotonic
    assert points(made["hw.network.io"]) == {
        frozenset({("hw.id", "mlx5_0/1"), ("hw.name", "mlx5_0"), ("hw.type", "network"),
                   ("network.io.direction", "receive")}): 8.5
    }  # fmt: skip
    assert points(made["system.cpu.time"]) == {frozenset({("cpu.mode", "user")}): 7.5}
    throttle = frozenset({("gpu", "3"), ("uuid", "GPU-3"), ("reason", "thermal")})
    assert points(made["coldplate_gpu_throttle_active"]) == {throttle: 0.0}
    third = Snapshot(3, Instant(7.0, 1016.5), (Frame(Layout(layout.series[:1]), (0.5,)),))
    assert set(read(maker.make(third, 0.0, 1016.5))) == {"hw.gpu.utilization", "coldplate_sample_age_seconds"}


def test_a_collector_gets_snapshots_and_their_age_and_a_refusal_is_said_once(receive, caplog, tmp_path) -> None:
    status = 200
    collector = receive(
        lambda _: (status, {}, ""), lambda body: ExportMetricsServiceRequest.FromString(gzip.decompress(body))
    )
    (tmp_path / "token").write_text("good-token\n")
    nodes = Nodes()
    snapshots = [nodes.snapshot()]
    target = HttpTarget(f"{collector.address}/v1/metrics", timeout=2.0, bearer_token_file=str(tmp_path / "token"))
    node = {"service.name": "coldplate", "host.name": "n1"}
    push = OtlpPush(target, 0.02, MetricsMaker(node, "1.2"), lambda: snapshots[-1], clock, threads=Threads())
    push.start()
    try:
        wait_until(lambda: len(collector.taken) >= 2)
        status, before = 400, len(collector.asked)
        wait_until(lambda: len(collector.asked) >= before + 4)
        status, before = 200, len(collector.taken)
        wait_until(lambda: len(collector.taken) > before)
    finally:
        push.stop(5.0)
    first, second, *_ = collector.taken
    (resource,) = first.resource_metrics
    assert {each.key: each.value.string_value for each in resource.resource.attributes} == node
    names = [metric.name for scope in resource.scope_metrics for metric in scope.metrics]
    assert sorted(names) == ["coldplate_sample_age_seconds", "coldplate_ticks_total", "hw.power"]
    assert [m.name for s in second.resource_metrics[0].scope_metrics for m in s.metrics] == names[-1:]
    assert collector.asked[0]["authorization"] == "Bearer good-token"
    assert push.figures.failures >= 3
    assert push.figures.dropped[EXPIRED] == push.figures.failures
    assert push.figures.oldest is None
    assert [each.levelname for each in caplog.records if each.name == "coldplate.push"] == ["WARNING"]
