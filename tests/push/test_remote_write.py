"""What is sent is what a scrape would store, and the push as a whole against a receiver that answers as it is told."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agent.catalogue import BY_NAME
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Frame, Gpu, Instant, Layout, Node, Reading, Series, Snapshot
from exporters.encoder import Encoder, Format
from exporters.push import push_queue, write_request
from exporters.push.push_queue import REJECTED
from exporters.push.remote_write import RemoteWrite, RemoteWriteSettings
from exporters.push.write_request import RequestWriter, SnappyTemplate
from tests.exporters.conftest import one_of_each_row
from tests.frames import snapshot_of
from tests.push.conftest import GPUS, Nodes, Sent, plain, samples, watts
from tests.waiting import wait_until

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


def test_the_target_s_labels_are_added_as_a_scrape_adds_them_and_what_appears_twice_is_sent_once() -> None:
    own = Reading(
        Series(BY_NAME["coldplate_alert"], Node(), (("instance", "peer"), ("job", ""), ("severity", ""))), 1.0
    )
    (alert, age) = sent(RequestWriter(TARGET).write(snapshot_of(1, Instant(5.0, 9.0), [own]), 0.5))
    assert dict(alert.labels) == {"__name__": "coldplate_alert", "exported_instance": "peer", **TARGET}
    assert dict(age.labels) == {"__name__": "coldplate_sample_age_seconds", **TARGET}
    assert (alert.value, age.value) == (1.0, 0.5)
    power = Layout((Series(BY_NAME["coldplate_gpu_power_watts"], GPUS[0]),))
    twice = Snapshot(1, Instant(1.0, 2.0), (Frame(power, (1.0,)), Frame(power, (2.0,))))
    assert [each.value for each in sent(RequestWriter({}).write(twice, 0.0))] == [1.0, 0.0]


def test_values_change_from_push_to_push_and_a_series_that_vanishes_is_ended_once() -> None:
    nodes, writer = Nodes(), RequestWriter(TARGET)
    first, second = (sent(writer.write(nodes.snapshot(), 0.0)) for _ in range(2))
    assert [each.labels for each in first] == [each.labels for each in second]
    assert [each.value for each in first] == [100.0, 101.0, 102.0, 1.0, 0.0]
    assert [each.value for each in second] == [200.0, 201.0, 202.0, 2.0, 0.0]
    assert {each.stamp for each in second} == {1_700_000_002_000}
    nodes.power = watts(GPUS[::-1])  # another layout, of the same series
    third = sent(writer.write(nodes.snapshot(), 0.0))
    assert not any(each.ends for each in third)
    of_gpus = {dict(each.labels)["gpu"]: each.value for each in third if each.name == "coldplate_gpu_power_watts"}
    assert of_gpus == {"2": 300.0, "1": 301.0, "0": 302.0}
    nodes.power = watts(GPUS[:2])
    fourth = sent(writer.write(nodes.snapshot(), 0.0))
    (gone,) = (each for each in fourth if each.ends)
    assert (gone.name, dict(gone.labels)["gpu"], gone.stamp) == ("coldplate_gpu_power_watts", "2", 1_700_000_004_000)
    assert len(fourth) == 5
    assert not any(each.ends for each in sent(writer.write(nodes.snapshot(), 0.0)))


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
    assert len(request.body) < len(plain(request.body)) / 2


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


INTERVAL = 0.02


def now() -> Instant:
    return Instant(time.monotonic(), time.time())


class Source:
    def __init__(self) -> None:
        self.nodes = Nodes()
        self.current: Snapshot | None = None
        self.given: Snapshot | None = None

    def next(self) -> None:
        self.current = self.nodes.snapshot()

    def latest(self) -> Snapshot | None:
        self.given = self.current
        return self.given


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture
def push() -> Iterator[Callable[..., RemoteWrite]]:
    running: list[RemoteWrite] = []

    def start(url: str, source: Source, folder: Path | None = None) -> RemoteWrite:
        target = HttpTarget(url, timeout=5.0)
        settings = RemoteWriteSettings("central", target, INTERVAL, {"job": "coldplate"}, folder, age=1e12)
        made = RemoteWrite(settings, source.latest, now, Threads())
        running.append(made)
        made.start()
        return made

    yield start
    for each in running:
        each.stop(0.2)


def ticks(requests: list[list[Sent]]) -> list[float]:
    return [
        each.value for request in requests for each in request if each.name == "coldplate_ticks_total" and not each.ends
    ]


def test_each_snapshot_is_pushed_once_and_then_only_its_age_and_at_the_end_the_series_end(receive, push) -> None:
    source, receiver = Source(), receive()
    push(receiver.url, source).stop(1.0)
    assert receiver.asked == [], "there is no snapshot yet"
    source.next()
    made = push(receiver.url, source)
    wait_until(lambda: len(receiver.taken) >= 3)
    first, *others = receiver.taken[:3]
    assert len(first) == 5
    assert [[each.name for each in request] for request in others] == [["coldplate_sample_age_seconds"]] * 2
    assert others[0][0].stamp < others[1][0].stamp
    assert others[0][0].value < others[1][0].value or others[0][0].value == 0.0
    source.next()
    wait_until(lambda: ticks(receiver.taken) == [1.0, 2.0])
    made.stop(5.0)
    assert {each.labels for each in receiver.taken[-1]} == {each.labels for each in first}
    assert all(each.ends for each in receiver.taken[-1])
    asked = receiver.asked[0]
    assert asked["content-encoding"] == "snappy"
    assert asked["content-type"] == "application/x-protobuf"
    assert asked["x-prometheus-remote-write-version"] == "0.1.0"


def test_a_busy_receiver_gets_everything_later_and_in_order(receive, push, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    well = threading.Event()
    source = Source()
    receiver = receive(lambda _: (204, {}, "") if well.is_set() else (503, {"Retry-After": "0"}, "busy, come later"))
    made = push(receiver.url, source, tmp_path)
    for _ in range(5):
        source.next()
        wait_until(lambda: source.given is source.current)
    wait_until(lambda: len(receiver.asked) >= 1)
    assert made.figures.pending > 0
    well.set()
    wait_until(lambda: ticks(receiver.taken) == [1.0, 2.0, 3.0, 4.0, 5.0])
    told = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == 1
    assert "busy, come later" in str(told[0].__dict__["facts"])
    assert made.figures.failures >= 1


def test_what_the_receiver_refuses_is_dropped_counted_and_said_once(receive, push, caplog) -> None:
    source = Source()
    receiver = receive(lambda number: (400, {}, "out of order sample") if number <= 3 else (204, {}, ""))
    source.next()
    made = push(receiver.url, source)
    wait_until(lambda: len(receiver.taken) >= 2)
    assert ticks(receiver.taken) == []
    assert made.figures.dropped[REJECTED] == 7
    assert made.figures.failures == 0
    (told,) = caplog.records
    assert "out of order sample" in str(told.__dict__["facts"])


@pytest.mark.parametrize("status", [401, 404, 429, 302])
def test_what_is_not_about_the_content_is_repeated(receive, push, status: int) -> None:
    source = Source()
    receiver = receive(lambda number: (status, {"Location": "/x"}, "no") if number == 1 else (204, {}, ""))
    source.next()
    made = push(receiver.url, source)
    wait_until(lambda: ticks(receiver.taken) == [1.0])
    assert sum(made.figures.dropped.values()) == 0


def test_what_a_run_could_not_send_the_next_one_sends_first(receive, push, tmp_path: Path) -> None:
    source, away = Source(), receive(lambda _: (503, {}, ""))
    source.next()
    first = push(away.url, source, tmp_path)
    wait_until(lambda: len(away.asked) >= 1)
    first.stop(0.2)
    well = receive()
    source.next()
    push(well.url, source, tmp_path)
    wait_until(lambda: ticks(well.taken) == [1.0, 2.0])
    ends = next(number for number, request in enumerate(well.taken) if any(each.ends for each in request))
    assert ticks(well.taken[:ends]) == [1.0]
