"""What the demo announces: the alert that each fault of a simulated site leads to, where, and how soon."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent.backends.synthetic.scenario import ScenarioFault, Window
from agent.commands.simulate.simulated_site import OutageCause, SimulatedSite


class Effect(NamedTuple):
    """The alert of one kind of fault. `within_seconds` counts from the fault's onset to the alert in Alertmanager.

    `also` is an alert about the whole job or rack that may come as well.
    """

    alert: str
    labels: tuple[str, ...]
    within_seconds: float
    cause: str
    also: str = ""


EFFECTS = {
    "lost": Effect("GpuLost", ("instance", "gpu"), 60, "a GPU falls off the bus"),
    "ib-down": Effect("InfinibandPortDown", ("instance", "device"), 90, "an InfiniBand port goes down"),
    "power-brake": Effect("GpuPowerBrake", ("instance",), 60, "the facility brakes all GPUs of a node"),
    "checkpoint-stall": Effect(
        "GpuImbalance", ("instance", "gpu"), 240, "seven GPUs wait for one that saves", "JobHung"
    ),
    "node-power": Effect("RackPowerHigh", ("rack",), 60, "the nodes of a rack draw too much power"),
    OutageCause.AGENT.value: Effect("AgentDown", ("instance",), 180, "an agent stops answering", "RackPowerUnknown"),
    OutageCause.POWER.value: Effect("RackAgentsDown", ("rack",), 120, "a rack loses its power"),
}
"""Longer than the rule's `for` and its windows, two scrapes and two evaluations."""
PARTS = {"gpu": "GPU", "device": "port"}


@dataclass(frozen=True, eq=False)
class Announcement:
    """An alert that is expected. `at` is the fault's onset in seconds from the start of the simulation."""

    at: float
    effect: Effect
    labels: Mapping[str, str]

    @property
    def minute(self) -> int:
        return int(self.at // 60)

    @property
    def place(self) -> str:
        """The node, its GPU or port, or the rack."""
        node, rack = self.labels.get("instance"), self.labels.get("rack")
        part = "".join(f", {word} {self.labels[name]}" for name, word in PARTS.items() if name in self.labels)
        return f"{node}{part}" if node else f"rack {rack}"

    def is_about(self, labels: Mapping[str, str]) -> bool:
        """Return True if an alert with these labels is what was announced, whenever it comes."""
        return labels["alertname"] == self.effect.alert and self.labels.items() <= labels.items()

    def may_bring(self, labels: Mapping[str, str]) -> bool:
        """Return True if these are the labels of what may come as well."""
        return labels["alertname"] == self.effect.also and labels.get("instance") in (None, self.labels.get("instance"))


def announcements(site: SimulatedSite, seconds: float) -> list[Announcement]:
    """Return what the site's faults lead to within so many seconds, by time; repeated faults are announced each time.

    Raises KeyError for a kind of fault that is not in EFFECTS.
    """
    found = [
        Announcement(at, EFFECTS[kind], {name: labels[name] for name in EFFECTS[kind].labels})
        for kind, window, labels in faults(site)
        for at in onsets(window, seconds)
    ]
    once = {(each.at, each.effect.alert, each.place): each for each in found}
    return sorted(once.values(), key=lambda each: (each.at, each.place))


def faults(site: SimulatedSite) -> Iterator[tuple[str, Window, dict[str, str]]]:
    """Yield kind, times and labels of each fault at each of its nodes."""
    for node in site.nodes:
        for fault in node.scenario.faults:
            yield fault.kind, fault.window, {"instance": node.name, "rack": node.rack, **part(fault)}
        for outage in site.outages:
            if node.name in outage.nodes:
                yield outage.loss.value, outage.window, {"instance": node.name, "rack": node.rack}


def part(fault: ScenarioFault) -> dict[str, str]:
    """Return the labels of the part of a node that has the fault."""
    gpu = {"gpu": str(fault.gpus[0])} if len(fault.gpus) == 1 else {}
    return {**gpu, "device": fault.port} if fault.port else gpu


def onsets(window: Window, seconds: float) -> Iterator[float]:
    """Yield when the window begins, each time, within so many seconds."""
    at = window.at
    while at <= seconds:
        yield at
        if window.repeat is None:
            return
        at += window.repeat


INHIBITION_GRACE_SECONDS = 30.0
"""How long an alert may be there before its cause is: the shipped `group_wait`, so that no person would see it."""


class Watch:
    """Holds which announcements came, and which alerts were shown. Seconds are since the start of the simulation."""

    def __init__(self, announced: Sequence[Announcement]) -> None:
        self.announced = announced
        self.came: set[Announcement] = set()
        self.missed: set[Announcement] = set()
        self._first_seen: dict[str, float] = {}
        self._shown: set[str] = set()

    def lines(self, alerts: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[str]:
        """Yield a line for each alert of Alertmanager's API that is new, and for each announcement that failed."""
        names = {each["fingerprint"]: each["labels"]["alertname"] for each in alerts}
        for alert in alerts:
            key = f"{alert['fingerprint']} {alert['startsAt']}"
            first = self._first_seen.setdefault(key, seconds)
            if key not in self._shown and (line := self._line(alert, names, first, seconds)) is not None:
                self._shown.add(key)
                yield from filter(None, [line])
        for each in self.announced:
            if each not in self.came | self.missed and seconds > each.at + each.effect.within_seconds:
                self.missed.add(each)
                what = f"{each.effect.alert} on {each.place} DID NOT COME"
                yield f"minute {minute(seconds)}: {what}, announced for minute {each.minute}"

    def _line(self, alert: Mapping[str, Any], names: Mapping[str, str], first: float, seconds: float) -> str | None:
        """Return the words of an alert, "" if it needs none, None as long as it may be inhibited soon."""
        labels, when = alert["labels"], f"minute {minute(first)}: {alert['labels']['alertname']}"
        for each in self.announced:
            is_due = each.at <= first <= each.at + each.effect.within_seconds
            if each in self.came and each.is_about(labels):
                return ""  # another severity of what came
            if is_due and each.is_about(labels):
                self.came.add(each)
                return f"{when} on {each.place}, as announced: {alert['annotations']['summary']}"
            if is_due and each.may_bring(labels):
                return f"{when} on {where(labels)}, with {each.effect.alert}: {alert['annotations']['summary']}"
        if causes := sorted({names.get(each, "an alert") for each in alert["status"]["inhibitedBy"]}):
            return f"{when} on {where(labels)}, not sent because of {', '.join(causes)}"
        if seconds - first < INHIBITION_GRACE_SECONDS:
            return None
        return f"{when} on {where(labels)}, NOT ANNOUNCED: {alert['annotations'].get('summary', '')}"


def minute(seconds: float) -> int:
    return int(seconds // 60)


def where(labels: Mapping[str, str]) -> str:
    """Return the node, rack or job of an alert."""
    found = next((name for name in ("instance", "rack", "job_id") if name in labels), "")
    return labels[found] if found == "instance" else f"{found.removesuffix('_id')} {labels.get(found, '')}".strip()
