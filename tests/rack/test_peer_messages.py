"""A peer may send anything: what is no report is refused, and nothing else ever happens."""

from __future__ import annotations

import json
import math
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.rack.nvlink_domain import DomainShare
from agent.rack.peer_messages import GarbageError, Report, decode, encode

GOOD = Report(1, "r12", "", "0123456789abcdef", "n1:19400", "coldplate", 1000.5, 1000, (7.5, None, 8.0), "ipmi")


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(GOOD)), **changes}).encode()


def test_a_report_is_read_as_it_was_written() -> None:
    assert decode(encode(GOOD)) == GOOD
    assert GOOD.seconds() == [(998, 7.5), (1000, 8.0)]
    assert decode(changed(later="a key of a later version")) == GOOD
    assert decode(changed(limits={"nodes_expected": 1000})).limits == {"nodes_expected": 1000}


OPTIONAL = ("source", "limits", "domains", "equipment")
"""Keys that versions of this format added: an agent that does not know them sends none."""


def test_agents_of_two_versions_read_each_other() -> None:
    """Of one with more keys, and of one with each number of fewer ones; what must be there is named if it is not."""
    full = json.loads(encode(msgspec.structs.replace(GOOD, domains=(DomainShare("c", "1", 4),), equipment=("cdu",))))
    assert decode(json.dumps({**full, "of_the_next": {"a": [1]}}).encode()) == decode(json.dumps(full).encode())
    for count in range(1, len(OPTIONAL) + 1):
        for left_out in combinations(OPTIONAL, count):
            report = decode(json.dumps({key: each for key, each in full.items() if key not in left_out}).encode())
            assert report.seconds() == GOOD.seconds()
    for key in full.keys() - set(OPTIONAL):
        with pytest.raises(GarbageError, match=key):
            decode(json.dumps({name: each for name, each in full.items() if name != key}).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"watts": [-1.0]}, {"watts": [1e7]}, {"watts": [math.nan]}, {"watts": [math.inf]}, {"watts": ["1"]},
        {"watts": [1.0] * 65}, {"watts": [True]}, {"watts": None}, {"watts": {}},
        {"now": -1.0}, {"now": "soon"}, {"now": 990.0}, {"now": 1003.0}, {"last": 1e3 + 0.5}, {"last": -1},
        {"last": 10**30}, {"rack": ""}, {"rack": "r" * 300}, {"rack": None}, {"run": "short"}, {"run": "r" * 100},
        {"instance": ""}, {"instance": "n\n1"}, {"instance": "n\x00"}, {"instance": "\ud800"}, {"source": 7},
        {"source": "i\u2028pmi"}, {"job": "x\x1b[2J"}, {"version": 2}, {"version": "1"},
        {"limits": {"power_budget": 0}}, {"limits": {"power_budget": -1.0}}, {"limits": {"feeds.a": 0.0}},
        {"limits": {"nodes_expected": 1001}}, {"limits": {"nodes_expected": 1e8}},
    ],
)  # fmt: skip
def test_what_a_report_cannot_hold_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(GarbageError):
        decode(changed(**changes))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"now":1e999}', b"[" * 60_000, b'{"x":' * 10_000, b"<html>" * 100],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_not_a_report_is_refused(body: bytes) -> None:
    with pytest.raises(GarbageError):
        decode(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(Report.__struct_fields__), json_values, max_size=4))
def test_whatever_is_read_is_within_bounds(changes: dict[str, object]) -> None:
    try:
        report = decode(changed(**changes))
    except GarbageError:
        return
    assert all(0 <= watts <= 1e6 for _, watts in report.seconds())
    assert 0 <= report.now - report.last < 2
    assert report.instance.isprintable()
    report.instance.encode()
