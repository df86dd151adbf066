"""Faults of those whom the daemon asks and tells: receivers of alerts, the rack's peers, the management controller."""

from __future__ import annotations

from tests.lab.drill.fault import Fault, Seen, grown, shrunk


def _receiver(title: str, manner: str, expected: str = "failures are counted, alerts are sent again") -> Fault:
    return Fault(
        f"the receiver {title}",
        expected,
        lambda drill: drill.behave(receiver=manner),
        lambda drill: drill.behave(),
        grown("coldplate_notification_failures_total"),
        grown("coldplate_notifications_total"),
    )


def _peer(title: str, manner: str, noticed: Seen | None = None) -> Fault:
    return Fault(
        f"the peer {title}",
        "the rack's sum is without it, and says so",
        lambda drill: drill.behave(peer=manner),
        lambda drill: drill.behave(),
        noticed or shrunk("coldplate_rack_peer_up"),
    )


def _controller(title: str, manner: str) -> Fault:
    return Fault(
        f"the management controller {title}",
        "node power is missing or from another source, with a reason",
        lambda drill: drill.behave(controller=manner),
        lambda drill: drill.behave(),
        grown("coldplate_metric_missing"),
    )


UNREAD = "the rest of its answer is not read, alerts are delivered"

OUTSIDERS = (
    _receiver("does not answer", "hang"),
    _receiver("resets connections", "reset"),
    _receiver("answers with errors", "failing"),
    _receiver("answers a byte at a time", "drip"),
    _receiver("answers 10 MiB", "huge", UNREAD),
    _receiver("never ends its answer", "endless", UNREAD),
    _peer("does not answer", "hang"),
    _peer("resets connections", "reset"),
    _peer("answers a byte at a time", "drip"),
    _peer("answers garbage", "garbage"),
    _peer("lies: a power that no node has", "lie"),
    _peer("answers 10 MiB", "huge"),
    _peer("never ends its answer", "endless"),
    _controller("does not answer", "hang"),
    _controller("resets connections", "reset"),
    _controller("answers garbage", "garbage"),
    _controller("answers 10 MiB", "huge"),
)
