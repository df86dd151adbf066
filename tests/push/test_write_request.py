"""What is sent is what a scrape would store: the same series, labels, values and times."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agent.catalogue import BY_NAME
from agent.model import Frame, Gpu, Instant, Layout, Node, Reading, Series, Snapshot
from exporters.encoder import Encoder, Format
from exporters.push import write_request
from exporters.push.snappy_template import SnappyTemplate
from exporters.push.write_request import RequestWriter
from tests.exporters.conftest import one_of_each_row
from tests.frames import snapshot_of
from tests.push.conftest import GPUS, Nodes, watts
from tests.push.decoding import Sent, plain, samples

TARGET = {"instance": "node-1:19400", "job": "coldplate"}


def sent(requests: list[write_request.WriteRequest]) -> list[Sent]:
    return [each for request in requests for each in samples(request.body)]


def test_every_series_of_a_page_is_sent_with_its_value_and_the_snapshot_s_time() -> None:
    snapshot = snapshot_of(1, Instant(5.0, 1_700_000_000.123), one_of_each_row())
    page = Encoder().render(snapshot, Format.TEXT, 0.25).decode()
    scraped = {
        tuple(sorted({**sample.labels, "__name__": sample.name}.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    found = sent(RequestWriter({}).write(snapshot, 0.25))
    assert {each.labels: each.value for each in found} == scraped
    assert len(found) == len(scraped) > 200
    assert {each.stamp for each in found} == {1_700_000_000_123}


def test_the_target_s_labels_are_added_as_a_scrape_adds_them() -> None:
    own = Reading(
        Series(BY_NAME["coldplate_alert"], Node(), (("instance", "peer"), ("job", ""), ("severity", ""))), 1.0
    )
    (alert, age) = sent(RequestWriter(TARGET).write(snapshot_of(1, Instant(5.0, 9.0), [own]), 0.5))
    assert dict(alert.labels) == {"__name__": "coldplate_alert", "exported_instance": "peer", **TARGET}
    assert dict(age.labels) == {"__name__": "coldplate_sample_age_seconds", **TARGET}
    assert (alert.value, age.value) == (1.0, 0.5)


def test_a_series_that_appears_twice_is_sent_once() -> None:
    series = Series(BY_NAME["coldplate_gpu_power_watts"], GPUS[0])
    snapshot = Snapshot(1, Instant(1.0, 2.0), (Frame(Layout((series,)), (1.0,)), Frame(Layout((series,)), (2.0,))))
    assert [each.value for each in sent(RequestWriter({}).write(snapshot, 0.0))] == [1.0, 0.0]


def test_values_change_from_push_to_push_and_labels_do_not() -> None:
    nodes, writer = Nodes(), RequestWriter(TARGET)
    first, second = (sent(writer.write(nodes.snapshot(), 0.0)) for _ in range(2))
    assert [each.labels for each in first] == [each.labels for each in second]
    assert [each.value for each in first] == [100.0, 101.0, 102.0, 1.0, 0.0]
    assert [each.value for each in second] == [200.0, 201.0, 202.0, 2.0, 0.0]
    assert {each.stamp for each in second} == {1_700_000_002_000}


def test_a_series_that_vanishes_is_ended_once_and_the_others_go_on() -> None:
    nodes, writer = Nodes(), RequestWriter(TARGET)
    writer.write(nodes.snapshot(), 0.0)
    nodes.power = watts(GPUS[:2])
    found = sent(writer.write(nodes.snapshot(), 0.0))
    (gone,) = (each for each in found if each.ends)
    assert (gone.name, dict(gone.labels)["gpu"], gone.stamp) == ("coldplate_gpu_power_watts", "2", 1_700_000_002_000)
    assert len(found) == 5
    assert not any(each.ends for each in sent(writer.write(nodes.snapshot(), 0.0)))


def test_a_series_that_moves_to_another_layout_is_not_ended() -> None:
    nodes, writer = Nodes(), RequestWriter(TARGET)
    writer.write(nodes.snapshot(), 0.0)
    nodes.power = watts(GPUS[::-1])
    found = sent(writer.write(nodes.snapshot(), 0.0))
    assert not any(each.ends for each in found)
    assert {dict(each.labels)["gpu"]: each.value for each in found if each.name == "coldplate_gpu_power_watts"} == {
        "2": 200.0, "1": 201.0, "0": 202.0
    }  # fmt: skip


def test_many_series_go_into_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_request, "MOST_SERIES", 3)
    nodes, writer = Nodes(), RequestWriter(TARGET)
    requests = writer.write(nodes.snapshot(), 0.0)
    assert [each.samples for each in requests] == [3, 2] == [len(samples(each.body)) for each in requests]
    assert [each.value for each in sent(requests)] == [100.0, 101.0, 102.0, 1.0, 0.0]
    assert [each.samples for each in writer.end(5.0)] == [3, 2]


def test_the_largest_node_and_far_copies() -> None:
    """More than 64 KiB of labels lie between a label and where it stood before."""
    gpus = [Gpu(str(number), f"GPU-{number:032d}") for number in range(1500)]
    layout = Layout(
        tuple(Series(BY_NAME[f"coldplate_gpu_{name}"], gpu) for name in ("power_watts", "up") for gpu in gpus)
    )
    values = tuple(map(float, range(len(layout))))
    (request,) = RequestWriter(TARGET).write(Snapshot(1, Instant(1.0, 2.0), (Frame(layout, values),)), 0.0)
    found = samples(request.body)
    assert sorted(each.value for each in found[:-1]) == list(values)
    assert len({each.labels for each in found}) == len(layout) + 1
    assert len(request.body) < len(plain(request.body)) / 3


PIECES = st.lists(st.binary(max_size=100), max_size=6)


@given(st.lists(PIECES, min_size=1, max_size=30), st.binary(min_size=1, max_size=9), st.data())
def test_a_template_is_the_message_compressed(rows: list[list[bytes]], stamp: bytes, data: st.DataObject) -> None:
    template = SnappyTemplate(len(stamp))
    for row in rows:
        template.constant(row)
        template.number()
        template.stamp()
    message = template.finish()
    for _ in range(2):
        numbers = data.draw(st.lists(st.floats(allow_nan=False), min_size=len(rows), max_size=len(rows)))
        expected = b"".join(
            b"".join(row) + pack("<d", number) + stamp for row, number in zip(rows, numbers, strict=True)
        )
        assert plain(message.fill(stamp, numbers)) == expected
