"""Pages are rendered once for all who want them, and kept while they are true."""

import gzip
from http import HTTPStatus

import pytest

from agent.model import Instant
from exporters.http_messages import Request, Response
from exporters.pages import PageCache, PageSource, age_of, compress
from tests.conftest import FakeClock
from tests.frames import snapshot_of


def request(gzipped: bool = False) -> Request:
    return Request("GET", "/", headers={"accept-encoding": "gzip"} if gzipped else {})


class Site:
    """A cache, and the kinds and details of the pages that were rendered for it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.cache = PageCache(clock)
        self.rendered: list[tuple[str, object]] = []

    def get(
        self,
        kind: str = "metrics",
        detail: object = None,
        *,
        basis: tuple[object, ...] = (),
        lifetime: float = 1.0,
        body: bytes = b"page",
        gzipped: bool = False,
    ) -> Response:
        def render(now: float) -> bytes:
            assert now == self.clock.now
            self.rendered.append((kind, detail))
            return body

        source = PageSource(kind, detail, basis, render, "text/plain", lifetime=lifetime)
        return self.cache.get(source, request(gzipped))


@pytest.fixture
def site(clock: FakeClock) -> Site:
    return Site(clock)


def test_a_page_is_rendered_once_for_all_who_want_it_plain_or_compressed(site: Site) -> None:
    answers = [site.get(body=b"a" * 999, gzipped=gzipped) for gzipped in (False, True, False, True)]
    assert site.rendered == [("metrics", None)]
    assert {answer.body for answer in answers[::2]} == {b"a" * 999}
    assert {gzip.decompress(answer.body) for answer in answers[1::2]} == {b"a" * 999}
    assert [("Content-Encoding", "gzip") in answer.headers for answer in answers] == [False, True, False, True]


def test_a_page_of_other_objects_is_rendered_again_also_if_they_are_equal(site: Site) -> None:
    first, equal = [1.0], [1.0]
    for basis in ((first,), (first,), (equal,), (equal, first), (equal, first)):
        site.get(basis=basis)
    assert len(site.rendered) == 3


def test_a_page_is_valid_for_its_lifetime(site: Site) -> None:
    for seconds in (1.0, 15.0):
        site.get("rules", seconds, lifetime=seconds)
    site.clock.now += 1.0
    for seconds in (1.0, 15.0):
        site.get("rules", seconds, lifetime=seconds)
    assert len(site.rendered) == 2
    site.clock.now += 0.5
    for seconds in (1.0, 15.0):
        site.get("rules", seconds, lifetime=seconds)
    assert site.rendered[2:] == [("rules", 1.0)]


@pytest.mark.parametrize(("size", "kept"), [(10, 4), (3 * 1024 * 1024, 2), (20 * 1024 * 1024, 1)])
def test_ever_new_selections_keep_few_pages_and_drop_no_other_kind(site: Site, size: int, kept: int) -> None:
    body = bytes(size)
    site.get()
    for number in range(100):
        site.get("rules", number, body=body)
    del site.rendered[:]
    site.get()
    for number in range(99, 99 - kept, -1):
        site.get("rules", number, body=body)
    assert site.rendered == []
    site.get("rules", 99 - kept, body=body)
    assert len(site.rendered) == 1


def test_a_page_that_cannot_be_rendered_is_no_page_of_the_next_client(site: Site) -> None:
    def broken(now: float) -> bytes:
        raise ZeroDivisionError("our bug")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            site.cache.get(PageSource("metrics", None, (), broken, "text/plain"), request())
    assert site.get().status == HTTPStatus.OK


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
def test_a_page_is_compressed_the_same_each_time(size: int) -> None:
    page = bytes(number % 251 for number in range(size))
    packed = compress(page)
    assert gzip.decompress(packed) == page
    assert packed == compress(page)
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp


def test_a_snapshot_from_the_future_has_no_negative_age() -> None:
    snapshot = snapshot_of(1, Instant(100.5, 0.0), ())
    assert age_of(snapshot, 100.0) == 0.0
    assert age_of(snapshot, 101.0004) == 0.5
