"""Conditions: the alert instances of a node's engine, pending and firing, as every place shows them.

A condition is an `Alert`: rule, labels, phase, since when, when a pending one fires, severity, texts, and the alert
that inhibits it. Here are their order, their counts, and which device each of them names.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest

from msgspec import Struct

from agent.lib.wording import age
from agent.model import Alert, Entity, Gpu, IbPort, Phase, Severity

MAX_OF_DEVICE = 8
"""Most conditions that are kept of one device: a runaway rule may name it a thousand times."""
_PHASES = {Phase.FIRING: 0, Phase.PENDING: 1}
_SEVERITIES = {severity: place for place, severity in enumerate(Severity)}
Place = tuple[str, ...]
"""A device by the values of its labels, after the names of those."""


def order_of(condition: Alert) -> tuple[object, ...]:
    """Return a key that sorts firing before pending, causes before effects, the worst first, then the oldest."""
    return (
        _PHASES[condition.phase],
        bool(condition.inhibited_by),
        _SEVERITIES[condition.severity],
        condition.active_at,
        condition.rule,
        condition.labels,
    )


def is_active(alert: Alert) -> bool:
    """Return True if the alert is a condition: it is pending or fires."""
    return alert.phase in _PHASES


def counts_now(condition: Alert) -> bool:
    """Return True if the condition fires and is no effect of another one."""
    return condition.phase is Phase.FIRING and not condition.inhibited_by


def worst_severity(conditions: Iterable[Alert]) -> Severity | None:
    """Return the severity of the worst condition that fires and is no effect of another, or None."""
    severities = [condition.severity for condition in conditions if counts_now(condition)]
    return min(severities, key=_SEVERITIES.__getitem__, default=None)


def phase_text(condition: Alert, now: float | None) -> str:
    """Return `firing`, or `pending` with the time until it fires where `now`, in wall seconds, is known."""
    if condition.phase is not Phase.PENDING or condition.fires_at is None or now is None:
        return condition.phase.value
    return f"pending, fires in {age(max(condition.fires_at - now, 0.0))}"


def condition_text(condition: Alert) -> str:
    """Return the rule of a condition, and its summary if it has one."""
    summary = condition.annotations.get("summary", "")
    return f"{condition.rule}: {summary}" if summary else condition.rule


class DeviceConditions:
    """The worst conditions of each GPU and port, by the labels that name it.

    `is_judged`: whether the rules were evaluated, so that a device without conditions has none.
    """

    def __init__(self, conditions: Iterable[Alert] = (), *, is_judged: bool = False) -> None:
        self.is_judged = is_judged
        self._by_place: dict[Place, list[Alert]] = {}
        for condition in conditions:
            self.add(condition)

    def add(self, condition: Alert) -> None:
        """Add a condition to the device that its labels name, if they name one."""
        place = _place_of(dict(condition.labels))
        if place is not None:
            conditions = self._by_place.setdefault(place, [])
            conditions[:] = nsmallest(MAX_OF_DEVICE, [*conditions, condition], key=order_of)

    def conditions_of(self, device: Entity) -> list[Alert]:
        """Return the conditions of a GPU or port, the worst first."""
        place = _place_of(dict(device.labels)) if isinstance(device, (Gpu, IbPort)) else None
        return self._by_place.get(place, []) if place is not None else []


def _place_of(labels: Mapping[str, str]) -> Place | None:
    """Return the GPU, or the port, that labels name; a GPU that never identified itself has no UUID."""
    if "gpu" in labels:
        return "gpu", labels["gpu"], labels.get("uuid", "")
    if "device" in labels and "port" in labels:
        return "port", labels["device"], labels["port"]
    return None


class ConditionCounts(Struct):
    """How many conditions fire and are pending; those that are inhibited are counted apart."""

    firing: int = 0
    pending: int = 0
    inhibited: int = 0

    def add(self, condition: Alert) -> None:
        if condition.inhibited_by:
            self.inhibited += 1
        elif condition.phase is Phase.FIRING:
            self.firing += 1
        elif condition.phase is Phase.PENDING:
            self.pending += 1

    @property
    def total(self) -> int:
        return self.firing + self.pending + self.inhibited

    @property
    def text(self) -> str:
        """The counts above 0, such as `1 firing, 3 inhibited`; or `none`."""
        counts = ((self.firing, "firing"), (self.pending, "pending"), (self.inhibited, "inhibited"))
        return ", ".join(f"{count} {word}" for count, word in counts if count) or "none"
