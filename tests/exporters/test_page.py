"""A page is kept for as long as it is true, and no longer than anybody wants it."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from agent.model import Instant
from exporters.pages import PageCache, Rendering, age_of, compress, compressed
from tests.frames import snapshot_of


def rendering(kind: str = "metrics", detail: object = None, basis: tuple[object, ...] = (), **more: bool) -> Rendering:
    return Rendering(kind, detail, basis, lambda now: (b"page",), **more)


FIRST, SECOND = [1], [1]
"""Two things that are equal and not the same."""


def test_a_page_is_true_while_what_it_shows_is_the_same_object() -> None:
    cache = PageCache()
    page = cache.keep(rendering(basis=(FIRST,)), b"page", 100.0)
    assert cache.find(rendering(basis=(FIRST,)), 100.0) is page
    assert cache.find(rendering(basis=(SECOND,)), 100.0) is None
    assert cache.find(rendering(basis=(FIRST, FIRST)), 100.0) is None
    assert cache.find(rendering(kind="snapshot", basis=(FIRST,)), 100.0) is None
    assert cache.find(rendering(detail="other", basis=(FIRST,)), 100.0) is None


def test_another_page_is_true_until_something_changes() -> None:
    cache = PageCache()
    cache.keep(rendering(tells_age=False), b"page", 100.0)
    assert cache.find(rendering(tells_age=False), 500.0) is not None


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


def test_the_page_that_was_asked_for_last_is_kept_longest() -> None:
    cache = PageCache()
    for number in range(4):
        cache.keep(rendering("rules", number), b"page", 100.0)
    assert cache.find(rendering("rules", 0), 100.0) is not None
    cache.keep(rendering("rules", 4), b"page", 100.0)
    assert cache.find(rendering("rules", 0), 100.0) is not None
    assert cache.find(rendering("rules", 1), 100.0) is None


@pytest.mark.parametrize("make", [lambda page: compress(page), lambda page: b"".join(compressed(page))])
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
def test_a_page_is_compressed_the_same_each_time(make: Callable[[bytes], bytes], size: int) -> None:
    page = bytes(number % 251 for number in range(size))
    packed = make(page)
    assert gzip.decompress(packed) == page
    assert packed == make(page)
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp


def test_a_snapshot_from_the_future_has_no_negative_age() -> None:
    snapshot = snapshot_of(1, Instant(100.5, 0.0), ())
    assert age_of(snapshot, 100.0) == 0.0
    assert age_of(snapshot, 101.0004) == 0.5
