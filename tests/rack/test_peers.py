"""Whose seconds count: another rack's, another time's and our own do not, and a node listed twice counts once."""

import json
import logging
import math
from itertools import combinations
from typing import Any

import msgspec
import pytest

from agent.model import Instant
from agent.rack.finder import PeerTarget
from agent.rack.nvlink_domain import DomainShare
from agent.rack.peer_messages import GarbageError, PeerFault, Report, decode, encode
from agent.rack.peers import OWN_REST, WELL_SECONDS, Member, Peers
from agent.rack.power import PowerLedger
from tests.rack.conftest import report_at

OWN = Member("r1", "", "own-run-0", "n1:19400", "coldplate")
START = Instant(50.0, 1_000.2)
REPORT = report_at(1_000.25, run="run-of-n2", watts=[500.0, 600.0])


class Rig:
    def __init__(self, *names: str, chance: float = 0.9) -> None:
        self.ledger = PowerLedger()
        self.peers = Peers(OWN, self.ledger, lambda: chance)
        self.targets = {name: PeerTarget(name, name, 1) for name in names}
        self.peers.set_targets(tuple(self.targets.values()))

    def answer(self, name: str, body: bytes | None = None, after: float = 0.0, **changes: Any) -> int:
        """An answer that took 100 ms, of a peer whose clock goes right unless it is changed."""
        report = {**REPORT, "now": REPORT["now"] + after, "last": int(1000 + after), **changes}
        sent = Instant(START.mono + after, START.wall + after)
        received = Instant(sent.mono + 0.1, sent.wall + 0.1)
        return self.peers.answered(self.targets[name], body or json.dumps(report).encode(), sent, received)

    def fail(self, name: str, fault: PeerFault = PeerFault.CONNECT) -> int:
        return self.peers.failed(self.targets[name], fault, "for a test")

    def total(self, now: float = 1_000.5) -> tuple[float, frozenset[str]] | None:
        made = self.ledger.add_up(now)
        return None if made is None else (made.watts, made.nodes)

    @property
    def states(self) -> dict[str, tuple[bool, dict[str, int]]]:
        return {
            peer.name: (peer.up, {fault.value: count for fault, count in peer.failures.items()})
            for peer in self.peers.others()
        }


def test_a_good_answer_counts_and_a_restarted_peer_takes_its_own_place() -> None:
    rig = Rig("a")
    assert not rig.peers.tried
    assert rig.answer("a") == 0
    assert rig.peers.tried
    assert rig.total() == (600.0, {"run-of-n2"})
    assert rig.states == {"a": (True, {})}
    ((run, series),) = rig.peers.power_series.items()
    assert run == "run-of-n2"
    assert dict(series.all_labels) == {"source": "ipmi", "instance": "n2:19400", "job": "coldplate"}
    rig.answer("a", run="second-run", watts=[700.0])
    assert rig.total() == (700.0, {"second-run"})
    assert [*rig.peers.power_series] == ["second-run"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rack": "r2"}, "other_rack"),
        ({"cluster": "other"}, "other_rack"),
        ({"watts": [1e300]}, "invalid"),
        ({"last": 1_000_000}, "invalid"),
    ],
)
def test_an_answer_that_does_not_count_is_counted_logged_once_and_changes_no_sum(
    changes: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig("good", "bad")
    rig.answer("good")
    for _ in range(5):
        rig.answer("bad", **{"run": "run-of-n3", **changes})
    assert rig.total() == (600.0, {"run-of-n2"})
    assert rig.states["bad"] == (False, {reason: 5})
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].facts["reason"] == reason  # type: ignore[attr-defined]


def test_a_peer_that_fails_or_leaves_no_longer_counts_and_a_hanging_one_does() -> None:
    rig = Rig("a", "b")
    rig.answer("a")
    rig.answer("b", run="run-of-n3", instance="n3:19400")
    rig.fail("a", PeerFault.TIMEOUT)
    assert rig.total() == (1200.0, {"run-of-n2", "run-of-n3"})  # it may answer in a moment
    rig.fail("b", PeerFault.CONNECT)
    assert rig.total() == (600.0, {"run-of-n2"})
    rig.answer("b", run="run-of-n3", instance="n3:19400")
    rig.peers.set_targets([rig.targets["b"]])
    assert rig.total() == (600.0, {"run-of-n3"})
    assert rig.answer("a") == 0  # one that was on its way
    assert set(rig.states) == {"b"}


def test_a_clock_may_be_a_little_off() -> None:
    rig = Rig("a")
    rig.answer("a", now=REPORT["now"] + 1.9, last=1002)
    assert rig.states == {"a": (True, {})}
    assert rig.peers.own_lead() == pytest.approx(-1.9)


@pytest.mark.parametrize("off", [600, -600, -1_000])
def test_a_clock_that_is_far_off_but_steady_costs_one_answer_and_no_node(off: int, caplog) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig("good", "off")
    rig.answer("good")
    for after in range(4):
        rig.answer("good", after=after)
        now = {"now": REPORT["now"] + off + after, "last": 1000 + off + after}
        rig.answer("off", after=after, run="run-of-n3", instance="n3:19400", watts=[70.0 + after], **now)
    assert rig.states["off"] == (True, {"clock": 1})
    assert rig.total(1_003.5) == (673.0, {"run-of-n2", "run-of-n3"})
    assert rig.peers.own_lead() == 0.0  # of three clocks two agree
    rig.answer("off", after=4, run="run-of-n3", instance="n3:19400")
    said = [record.message for record in caplog.records if "clock" in record.message]
    assert said == ["peer clock differs: synchronise both clocks", "peer clock agrees again"]


def test_an_answer_that_does_not_advance_is_not_a_clock() -> None:
    rig = Rig("a")
    for after in range(12):
        rig.answer("a", after=after, now=REPORT["now"], last=1000)
    assert rig.states == {"a": (False, {"clock": 9})}
    assert rig.total(1_011.5) is None


def test_the_node_whose_clock_is_wrong_knows_it_by_the_others() -> None:
    rig = Rig("a", "b", "c")
    for after in range(2):
        for name in "abc":
            now = {"now": REPORT["now"] + 600 + after, "last": 1600 + after}
            rig.answer(name, after=after, run=f"run-of-{name}", instance=name, **now)
    assert rig.peers.own_lead() == pytest.approx(-600.0)


def test_this_node_finds_itself_among_the_peers_and_leaves_itself_out() -> None:
    rig = Rig("self", "a", "b")
    assert rig.peers.nodes == 1  # nobody was asked yet
    assert rig.answer("self", run=OWN.run) == OWN_REST
    rig.answer("a")
    rig.fail("b")
    assert rig.peers.nodes == 3
    assert set(rig.states) == {"a", "b"}
    assert rig.total() == (600.0, {"run-of-n2"})


def test_a_node_that_is_listed_twice_counts_once() -> None:
    rig = Rig("name", "address")
    rig.answer("name")
    rig.answer("address")
    assert rig.peers.nodes == 2
    assert rig.total() == (600.0, {"run-of-n2"})
    rig.fail("name")
    assert rig.peers.nodes == 2
    assert rig.total() == (600.0, {"run-of-n2"})
    rig.fail("address")
    assert rig.peers.nodes == 2
    assert rig.total() is None


def test_a_dead_peer_is_asked_less_often_and_not_all_at_the_same_time() -> None:
    rig = Rig("a", chance=0.9)
    assert [rig.fail("a") for _ in range(6)] == [0, 1, 3, 4, 4, 4]
    assert [rig.fail("a") for rig in (Rig("a", chance=0.1),) for _ in range(6)] == [0, 1, 3, 5, 5, 5]
    rig.answer("a")
    assert rig.fail("a") == 0


def test_a_failure_is_logged_again_only_after_the_peer_was_well_for_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig("a")

    def said() -> list[str]:
        lines = [record.message for record in caplog.records]
        caplog.clear()
        return lines

    rig.answer("a")
    assert said() == ["peer answers"]
    for _ in range(3):  # a line that comes and goes
        rig.fail("a")
        rig.answer("a")
    assert said() == ["a peer of the rack is left out of the sum", "peer answers"]
    rig.answer("a", after=WELL_SECONDS + 1)
    rig.fail("a")
    assert said() == ["a peer of the rack is left out of the sum"]


def test_two_nodes_of_the_same_name_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig("a", "b")
    for _ in range(3):
        rig.answer("a", instance=OWN.instance)
        rig.answer("b", run="run-of-n3", instance="n3:19400")
    assert [record.message for record in caplog.records] == [
        "two nodes of the rack have the same name; give each its own node.name"
    ]


# A peer may send anything: what is no report is refused, and nothing else ever happens.
GOOD = Report(1, "r12", "", "0123456789abcdef", "n1:19400", "coldplate", 1000.5, 1000, (7.5, None, 8.0), "ipmi")


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(GOOD)), **changes}).encode()


def test_a_report_is_read_as_it_was_written() -> None:
    assert decode(encode(GOOD)) == GOOD
    assert GOOD.seconds() == [(998, 7.5), (1000, 8.0)]
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


IMPOSSIBLE: list[dict[str, object]] = [
    {"watts": [-1.0]}, {"watts": [1e7]}, {"watts": [math.nan]}, {"watts": [math.inf]}, {"watts": ["1"]},
    {"watts": [1.0] * 65}, {"watts": [True]}, {"watts": None}, {"watts": {}},
    {"now": -1.0}, {"now": "soon"}, {"now": 990.0}, {"now": 1003.0}, {"last": 1e3 + 0.5}, {"last": -1},
    {"last": 10**30}, {"rack": ""}, {"rack": "r" * 300}, {"rack": None}, {"run": "short"}, {"run": "r" * 100},
    {"instance": ""}, {"instance": "n\n1"}, {"instance": "n\x00"}, {"instance": "\ud800"}, {"source": 7},
    {"source": "i\u2028pmi"}, {"job": "x\x1b[2J"}, {"version": 2}, {"version": "1"},
    {"limits": {"power_budget": 0}}, {"limits": {"power_budget": -1.0}}, {"limits": {"feeds.a": 0.0}},
    {"limits": {"nodes_expected": 1001}}, {"limits": {"nodes_expected": 1e8}},
]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [*(changed(**each) for each in IMPOSSIBLE), b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"now":1e999}', b"[" * 60_000,
     b'{"x":' * 10_000, b"<html>" * 100],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_what_is_no_report_or_says_what_cannot_be_is_refused(body: bytes) -> None:
    with pytest.raises(GarbageError):
        decode(body)
