"""Pages are made once for all who want them, the metrics first, and kept while they are true; who gets which format."""

import gzip
import logging
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from agent.model import Instant
from exporters.deferred import Deferred
from exporters.encoder import Format
from exporters.http_messages import Request, Response
from exporters.pages import (
    SLICE_SECONDS,
    URGENT_SLICE_SECONDS,
    PageCache,
    Rendering,
    RenderQueue,
    accepts_gzip,
    age_of,
    choose_format,
    compressed,
)
from tests.conftest import FakeClock
from tests.frames import snapshot_of


def rendering(kind: str = "metrics", detail: object = None, lifetime: float = 1.0) -> Rendering:
    return Rendering(kind, detail, (), lambda now: (b"page",), "text/plain", lifetime=lifetime)


def request(gzipped: bool = False) -> Request:
    return Request("GET", "/", headers={"accept-encoding": "gzip"} if gzipped else {})


@pytest.mark.parametrize(("size", "kept"), [(10, 4), (3 * 1024 * 1024, 2), (20 * 1024 * 1024, 1)])
def test_ever_new_selections_keep_few_pages_and_push_no_other_kind_out(size: int, kept: int) -> None:
    cache = PageCache()
    cache.keep(rendering(), b"page", 100.0)
    body = bytes(size)
    for number in range(1000):
        cache.keep(rendering("rules", number), body, 100.0)
    found = [cache.find(rendering("rules", number), 100.0) for number in range(1000)]
    assert [page is not None for page in found[-kept:]] == [True] * kept
    assert sum(page is not None for page in found) == kept
    assert cache.find(rendering(), 100.0) is not None


def test_a_page_is_valid_for_its_lifetime_and_leaves_the_memory_after_it() -> None:
    cache = PageCache()
    pages = [rendering("rules", seconds, lifetime=seconds) for seconds in (1.0, 15.0)]
    for each in pages:
        cache.keep(each, b"page", 100.0)
    assert all(cache.find(each, 101.0) for each in pages)
    cache.drop_old(110.0)
    assert [cache.find(each, 100.0) is not None for each in pages] == [False, True]
    assert [cache.find(each, 116.0) for each in pages] == [None, None]


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
def test_a_page_is_compressed_the_same_each_time(size: int) -> None:
    page = bytes(number % 251 for number in range(size))
    packed = b"".join(compressed(page))
    assert gzip.decompress(packed) == page
    assert packed == b"".join(compressed(page))
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp


def test_a_snapshot_from_the_future_has_no_negative_age() -> None:
    snapshot = snapshot_of(1, Instant(100.5, 0.0), ())
    assert age_of(snapshot, 100.0) == 0.0
    assert age_of(snapshot, 101.0004) == 0.5


COST = SLICE_SECONDS / 2
"""Seconds that each bit of a page takes to make."""


class Kitchen:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queue = RenderQueue(clock)
        self.begun: list[str] = []
        self.made: list[str] = []

    def bits(self, name: str, number: int) -> Iterator[bytes]:
        self.begun.append(name)
        for _ in range(number):
            self.clock.now += COST
            yield name.encode()
        self.made.append(name)

    def get(
        self, name: str, basis: object = None, gzipped: bool = False, urgent: bool = False, bits: int = 10
    ) -> Response | Deferred:
        rendering = Rendering(name, None, (basis,), lambda now: self.bits(name, bits), "text/plain", urgent=urgent)
        return self.queue.get(rendering, request(gzipped))

    def order(self, name: str, **more: object) -> Deferred:
        answer = self.get(name, **more)  # type: ignore[arg-type]
        assert isinstance(answer, Deferred)
        return answer

    def finish(self) -> None:
        while self.queue.work():
            pass


@pytest.fixture
def kitchen(clock: FakeClock) -> Kitchen:
    return Kitchen(clock)


def body(answer: Deferred) -> bytes:
    return answer.response.body


def test_a_page_is_made_once_for_all_who_want_it_plain_or_compressed(kitchen: Kitchen) -> None:
    answers = [kitchen.order("a", gzipped=gzipped) for gzipped in (False, True, False, True)]
    kitchen.queue.work()
    answers += [kitchen.order("a", gzipped=gzipped) for gzipped in (True, False)]  # it is being made
    kitchen.finish()
    assert kitchen.made == ["a"]
    plain = {body(answers[place]) for place in (0, 2, 5)}
    packed = {body(answers[place]) for place in (1, 3, 4)}
    assert plain == {b"a" * 10}
    assert [gzip.decompress(each) for each in packed] == [b"a" * 10]


def test_compression_is_made_in_slices_as_well(clock: FakeClock) -> None:
    queue = RenderQueue(lambda: setattr(clock, "now", clock.now + COST) or clock.now)
    page = bytes(4 * 1024 * 1024)
    answer = queue.get(Rendering("a", None, (), lambda now: (page,), "text/plain"), request(gzipped=True))
    assert isinstance(answer, Deferred)
    turns = 1
    while queue.work():
        turns += 1
    assert gzip.decompress(body(answer)) == page
    assert turns > 16


def test_work_ends_after_a_slice_however_long_the_page_is_and_urgent_pages_go_first(kitchen: Kitchen) -> None:
    slow = kitchen.order("slow", bits=1000)
    kitchen.queue.work()
    urgent = kitchen.order("urgent", urgent=True, bits=int(URGENT_SLICE_SECONDS / COST) - 1)
    kitchen.queue.work()
    assert body(urgent).startswith(b"urgent")
    assert slow.response is None
    began, turns = kitchen.clock.now, 1
    while kitchen.queue.work():
        turns += 1
        assert kitchen.clock.now - began <= turns * (SLICE_SECONDS + COST)
    assert turns >= 400
    assert body(slow) == b"slow" * 1000
    assert (kitchen.made, kitchen.begun) == (["urgent", "slow"], ["slow", "urgent"]), "it went on where it was"


def test_a_page_shows_what_was_asked_for_last_before_it_was_begun_and_who_wants_a_newer_one_gets_another(
    kitchen: Kitchen,
) -> None:
    kitchen.order("other")
    kitchen.queue.work()
    for basis in ("old", "newer", "newest"):
        kitchen.order("page", basis=basis)
    kitchen.finish()
    assert kitchen.begun == ["other", "page"]
    assert isinstance(kitchen.get("page", basis="newest"), Response)
    old = kitchen.order("page", basis="old")
    kitchen.queue.work()
    new = kitchen.order("page", basis="new")
    while old.response is None:
        kitchen.queue.work()
    assert new.response is None
    kitchen.finish()
    assert new.response is not None
    assert kitchen.begun == ["other", "page", "page", "page"]


def test_a_page_that_is_no_longer_wanted_is_not_made(kitchen: Kitchen) -> None:
    begun = kitchen.order("begun", bits=100)
    kitchen.queue.work()
    waiting = [kitchen.order(f"selection {number}") for number in range(100)]
    for each in (begun, *waiting):
        each.abandoned = True
    kitchen.order("last")
    kitchen.finish()
    assert kitchen.made == ["last"]


@pytest.mark.parametrize("urgent", [False, True])
def test_a_page_that_cannot_be_made_affects_only_itself_and_is_logged_once(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture, urgent: bool
) -> None:
    def pieces(now: float) -> Iterator[bytes]:
        yield b"well begun"
        raise ZeroDivisionError("our bug")

    broken = Rendering("broken", None, (), pieces, "text/plain", urgent=urgent)
    for _ in range(3):
        answer = kitchen.queue.get(broken, request())
        assert isinstance(answer, Deferred)
        good = kitchen.order("good", basis=object(), urgent=urgent)
        kitchen.finish()
        assert answer.response.status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert b"our bug" not in answer.response.body
        assert body(good) == b"good" * 10
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


@pytest.mark.parametrize("urgent", [False, True])
def test_a_page_in_the_midst_of_which_the_thread_failed_is_made_when_it_is_back(kitchen: Kitchen, urgent: bool) -> None:
    class FellError(BaseException):
        """Nothing that is caught on the way."""

    falls = [True]

    def pieces(now: float) -> Iterator[bytes]:
        yield b"well begun"
        if falls.pop():
            falls.append(False)
            raise FellError

    rendering = Rendering("page", None, (), pieces, "text/plain", urgent=urgent)
    answer = kitchen.queue.get(rendering, request())
    assert isinstance(answer, Deferred)
    with pytest.raises(FellError):
        kitchen.finish()
    kitchen.finish()
    assert body(answer) == b"well begun"


OM, TEXT = Format.OPENMETRICS, Format.TEXT
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF_FIRST = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", TEXT),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", TEXT),
        (PROMETHEUS_2, OM),
        (PROMETHEUS_3, OM),
        (PROTOBUF_FIRST, TEXT),
        ("application/openmetrics-text", OM),
        ("Application/OpenMetrics-Text; Version=1.0.0", OM),
        ('application/openmetrics-text; version="1.0.0"', OM),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.1", OM),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.7", TEXT),
        ("application/openmetrics-text;q=0.7,text/plain;q=0.3", OM),
        ("application/openmetrics-text;q=0.2,text/plain;q=0,*/*;q=0.9", OM),
        ("application/openmetrics-text;q=0.2,text/*;q=0.5", TEXT),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=much", OM),
        ("application/json", TEXT),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, chosen: Format) -> None:
    assert choose_format(accept) is chosen


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        *((each, True) for each in ("gzip", "GZIP", "x-gzip", "gzip, deflate, br", "deflate, gzip;q=0.5", "*")),
        *((each, False) for each in ("", "gzip;q=0", "gzip; q=0.000", "gzip;q=0, *", "*;q=0", "identity", "br")),
    ],
)
def test_gzip_is_used_when_it_is_accepted(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
