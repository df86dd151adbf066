"""The windows as a file: what is written is read again; damage is told, and never fatal."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.lib.state_files import DamagedError, seal
from alerts.windows.archive import FORM, ArchivedSeries, decode, encode

SAMPLES = st.lists(st.tuples(st.floats(0, 4e9), st.floats(allow_nan=False)), min_size=1, max_size=5)
LABELS = st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=3).map(tuple)


def kept(labels: tuple[tuple[str, str], ...], live: bool, samples: list[tuple[float, float]]) -> ArchivedSeries:
    unique = sorted(dict(samples).items())
    return ArchivedSeries(
        labels, live, array("d", [at for at, _ in unique]), array("d", [value for _, value in unique])
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.builds(kept, LABELS, st.booleans(), SAMPLES), max_size=4))
def test_what_is_written_is_read_again(series: list[ArchivedSeries]) -> None:
    found = decode(encode(7.5, "devices", series))
    assert (found.at, found.source, list(found.series)) == (7.5, "devices", series)


GOOD = encode(7.5, "devices", [kept((("a", "b"),), True, [(1.0, 2.0), (2.0, 3.0)])])
BODY = GOOD.partition(b"\n")[2]


@pytest.mark.parametrize(
    "content",
    [
        b"", GOOD[:-1], GOOD[:-1] + b"x", b"\0" * 100, seal(FORM, b""), seal(FORM, b"[]\n"), seal(FORM, BODY[:-8]),
        seal(FORM, BODY.replace(b"true, 2", b"true, 0")), seal(FORM, BODY.replace(b"true, 2", b"true, -2")),
        seal(FORM, BODY.replace(b"little", b"middle")), seal("coldplate-windows-0", BODY),
        encode(1.0, "devices", [ArchivedSeries((), True, array("d", [2.0, 1.0]), array("d", [0.0, 0.0]))]),
    ],
)  # fmt: skip
def test_damage_is_reported(content: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(content)
