"""A page is made when it is asked for, once, and its sample age stays honest."""

from __future__ import annotations

import gzip

from agent.model import Instant, Snapshot
from exporters.encoder import Encoder, Format
from exporters.page import PageCache


class CountingEncoder(Encoder):
    """Counts what it is asked to render."""

    def __init__(self) -> None:
        super().__init__()
        self.rendered: list[Format] = []

    def render(self, snapshot: Snapshot, fmt: Format, age: float) -> bytes:
        self.rendered.append(fmt)
        return super().render(snapshot, fmt, age)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def empty(sequence: int = 1, mono: float = 100.0) -> Snapshot:
    return Snapshot(sequence, Instant(mono, 0.0), ())


def age_shown(page: bytes) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith(b"coldplate_sample_age_seconds ")]
    return float(line.split()[1])


def test_a_page_that_nobody_asks_for_is_not_rendered() -> None:
    encoder = CountingEncoder()
    pages = PageCache(encoder, Clock())
    assert encoder.rendered == []
    pages.get(empty(), Format.TEXT, False)
    assert encoder.rendered == [Format.TEXT]


def test_a_page_is_rendered_once_for_a_snapshot_and_format() -> None:
    encoder, snapshot = CountingEncoder(), empty()
    pages = PageCache(encoder, Clock())
    first = pages.get(snapshot, Format.TEXT, False)
    assert pages.get(snapshot, Format.TEXT, False) is first
    assert gzip.decompress(pages.get(snapshot, Format.TEXT, True)) == first
    pages.get(snapshot, Format.OPENMETRICS, False)
    assert encoder.rendered == [Format.TEXT, Format.OPENMETRICS]


def test_a_page_is_compressed_once_and_the_same_each_time() -> None:
    snapshot = empty()
    pages = PageCache(Encoder(), Clock())
    packed = pages.get(snapshot, Format.TEXT, True)
    assert pages.get(snapshot, Format.TEXT, True) is packed
    assert packed == PageCache(Encoder(), Clock()).get(snapshot, Format.TEXT, True)
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp


def test_a_new_snapshot_gets_a_new_page_even_with_the_same_number() -> None:
    encoder = CountingEncoder()
    pages = PageCache(encoder, Clock())
    assert age_shown(pages.get(empty(mono=100.0), Format.TEXT, False)) == 0.0
    assert age_shown(pages.get(empty(mono=99.5), Format.TEXT, False)) == 0.5


def test_the_age_grows_while_the_sampler_stands_still() -> None:
    clock, snapshot = Clock(), empty()
    pages = PageCache(Encoder(), clock)
    ages = []
    for clock.now in (100.25, 101.0, 101.5, 107.0):
        plain = pages.get(snapshot, Format.TEXT, False)
        assert gzip.decompress(pages.get(snapshot, Format.TEXT, True)) == plain
        ages.append(age_shown(plain))
    assert ages == [0.25, 0.25, 1.5, 7.0]  # 101.0 is within the second for which a page is kept


def test_a_page_asked_for_compressed_only_ages_as_well() -> None:
    clock, snapshot = Clock(), empty()
    pages = PageCache(Encoder(), clock)
    pages.get(snapshot, Format.TEXT, True)
    clock.now = 105.0
    assert age_shown(gzip.decompress(pages.get(snapshot, Format.TEXT, True))) == 5.0


def test_a_snapshot_from_the_future_is_not_shown_with_a_negative_age() -> None:
    assert age_shown(PageCache(Encoder(), Clock()).get(empty(mono=100.5), Format.TEXT, False)) == 0.0
