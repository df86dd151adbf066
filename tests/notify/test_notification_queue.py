"""What waits for a receiver: bounded, the newest state of each alert, in the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.notify.delivery import NotificationQueue
from alerts.notify.receiver import Notice
from tests.notify.conftest import make_alert


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
