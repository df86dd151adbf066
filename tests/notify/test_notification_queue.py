"""What waits for a receiver: bounded, the newest state of each alert, in the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.notify.delivery import NotificationQueue
from alerts.notify.receiver import Notice
from tests.notify.conftest import make_alert


def names(notices: list[Notice]) -> list[str]:
    return [notice.alert.rule for notice in notices]


def test_a_newer_state_takes_the_place_of_one_that_waits() -> None:
    queue = NotificationQueue()
    end = Notice(make_alert("A", resolved_at=1010.0), 2000.0)
    assert queue.put([Notice(make_alert("A"), 2000.0), Notice(make_alert("B"), 2000.0), end]) == 0
    taken, _ = queue.take(64, 1500.0)
    assert names(taken) == ["A", "B"]
    assert taken[0] is end


def test_overflow_drops_the_oldest_and_says_so() -> None:
    queue = NotificationQueue(capacity=2)
    assert queue.put([Notice(make_alert(name), 2000.0) for name in "ABCA"]) == 2
    assert names(queue.take(64, 1500.0)[0]) == ["C", "A"]


def test_a_firing_alert_that_has_become_invalid_is_not_given_out() -> None:
    notices = [
        Notice(make_alert("A"), 2000.0),
        Notice(make_alert("B"), 2001.0),
        Notice(make_alert("C", resolved_at=1.0), 2.0),
    ]
    queue = NotificationQueue()
    queue.put(notices)
    assert queue.take(64, 2000.0) == (notices[1:], 1)
    lasting = NotificationQueue(expires=False)
    lasting.put(notices)
    assert lasting.take(64, 2000.0) == (notices, 0)


def test_what_is_given_back_gives_way_to_what_is_newer_and_to_what_is_full() -> None:
    queue = NotificationQueue(capacity=3)
    queue.put([Notice(make_alert(name), 2000.0) for name in "ABC"])
    taken, _ = queue.take(3, 0.0)
    newer = Notice(make_alert("B", value=99.0), 2000.0)
    queue.put([newer, Notice(make_alert("D"), 2000.0)])
    assert queue.give_back(taken, first=True) == 1
    left, _ = queue.take(64, 0.0)
    assert names(left) == ["C", "B", "D"]
    assert left[1] is newer


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.lists(st.sampled_from("ABCDEFG"), max_size=6)),
            st.tuples(st.just("take"), st.integers(0, 5)),
            st.tuples(st.sampled_from(["back first", "back last"]), st.just(0)),
        )
    )
)
def test_nothing_is_lost_uncounted_and_nothing_old_outlives_the_new(moves) -> None:
    """Every notice put in is given out, replaced by a newer one, counted as dropped, or still there."""
    queue = NotificationQueue(capacity=4)
    newest: dict[str, float] = {}
    put = delivered = replaced = dropped = 0
    hand: list[Notice] = []

    def stays_true(before: int, added: int, lost: int) -> int:
        assert len(queue) <= 4
        return before + added - lost - len(queue)  # what is neither there nor lost was replaced

    for move, argument in moves:
        before = len(queue)
        if move == "put":
            for name in argument:
                put += 1
                newest[name] = float(put)
            lost = queue.put([Notice(make_alert(name, value=newest[name]), 2000.0) for name in argument])
            replaced += stays_true(before, len(argument), lost)
            dropped += lost
        elif move == "take":
            delivered += len(hand)
            hand, outdated = queue.take(argument, 0.0)
            assert outdated == 0
            assert len(hand) == min(argument, before)
            assert all(notice.alert.value == newest[notice.alert.rule] for notice in hand)
        else:
            lost = queue.give_back(hand, first=move == "back first")
            replaced += stays_true(before, len(hand), lost)
            dropped += lost
            hand = []
    assert replaced >= 0
    assert put == delivered + len(hand) + replaced + dropped + len(queue)
