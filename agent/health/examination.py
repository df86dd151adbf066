"""Compare a snapshot with the expectations: every check in one table, and the series of the facts in the running agent.
Expectations are also made of a node as it is, for the nodes that are to be like it.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from math import floor, inf
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.health import gpu_findings, link_findings
from agent.health.device_facts import PORT_UP, RATE
from agent.health.expectations import Expected, NodeExpectations, recognise
from agent.health.gpu_findings import NOBODY, Judge
from agent.health.seen_node import LINK_UP, SeenNode
from agent.health.verdicts import HealthFinding, Verdict
from agent.lib.logs import LogOnce
from agent.model import EMPTY_FRAME, Frame, Gpu, Instant, NvLink, Snapshot

METRICS = (*gpu_findings.METRICS, *link_findings.METRICS)


class Check(NamedTuple):
    """One check of what the node is against what it should be; how it is doing, the rules judge.

    `is_fact` is False of a check that has an alert of its own.
    One `of_gpus` is of those that answer: where none does, it is skipped.
    """

    name: str
    judge: Judge
    is_fact: bool = True
    of_gpus: bool = False

    def __call__(self, view: SeenNode, expected: Expected) -> HealthFinding | None:
        """Return the finding under the check's name; None where nothing of the kind is expected."""
        finding = self.judge(view, expected)
        if finding is not None and self.of_gpus and not view.answering:
            finding = HealthFinding(Verdict.SKIPPED, finding.expected, NOBODY)
        return None if finding is None else replace(finding, name=self.name)


CHECKS = (
    Check("gpus-present", gpu_findings.present, False),
    Check("gpu-count", gpu_findings.count),
    Check("gpu-model", gpu_findings.model),
    Check("gpu-memory", gpu_findings.memory, of_gpus=True),
    Check("gpus-alike", gpu_findings.alike),
    Check("ecc", gpu_findings.ecc, of_gpus=True),
    Check("persistence", gpu_findings.persistence, of_gpus=True),
    Check("power-limit", gpu_findings.power_limit, of_gpus=True),
    Check("pcie-generation", link_findings.pcie_generation, of_gpus=True),
    Check("pcie-width", link_findings.pcie_width, of_gpus=True),
    Check("nvlinks", link_findings.nvlinks, of_gpus=True),
    Check("nvlink-speed", link_findings.nvlink_speed, of_gpus=True),
    Check("fabric", link_findings.fabric, of_gpus=True),
    Check("infiniband-ports", link_findings.ports),
    Check("infiniband-rate", link_findings.rate),
    Check("nearest-hca", link_findings.nearest_hca, of_gpus=True),
    Check("rack-nodes", link_findings.rack_nodes),
)
FACTS = frozenset(check.name for check in CHECKS if check.is_fact)
"""The checks that the running agent makes all the time; a GPU that does not answer has an alert of its own."""


def view_of(snapshot: Snapshot, devices: str = "") -> SeenNode:
    """Return the part of a snapshot that the checks read; `devices` is the family of devices in it, if it is known."""
    view = SeenNode(METRICS, devices)
    view.add_snapshot(snapshot)
    return view


def expected_of(view: SeenNode) -> Expected:
    """Return the shipped expectations for the GPUs that a node shows."""
    return recognise(list(view.facts("model").values()), len(view.gpus))


def run_checks(view: SeenNode, expected: Expected, names: Collection[str]) -> list[HealthFinding]:
    """Return the findings of the checks with these names, as far as anything is expected of what they look at."""
    findings = (check(view, expected) for check in CHECKS if check.name in names)
    return [finding for finding in findings if finding is not None]


log = logging.getLogger("coldplate.expectations")

MET = "coldplate_expectation_met"
SET = "coldplate_expectations_info"
FIRST_SECONDS, SETTLED_SECONDS = 15.0, 60.0
"""Seconds until the next look at the facts after one that found something new, and after one that did not."""


class ExpectationChoice(Struct, frozen=True):
    """What is expected: nothing, what is shipped for the node's GPUs (`by_gpus`), or `named`."""

    by_gpus: bool = True
    named: Expected | None = None


class ExpectationSeries:
    """Holds the latest snapshot against the expectations. For the sampling thread, but for `reconfigure`.

    `devices` is the family of devices in it, where that is known.
    """

    def __init__(self, latest: Callable[[], Snapshot | None], choice: ExpectationChoice, devices: str = "") -> None:
        self._latest = latest
        self._devices = devices
        self._choice = choice
        self._due = -inf
        """The monotonic second of the next look."""
        self._frame = EMPTY_FRAME
        self._own = OwnSeries()
        self._once = LogOnce(log)

    def reconfigure(self, choice: ExpectationChoice) -> None:
        """Expect something else from the next look on."""
        self._choice = choice
        self._due = -inf

    def frame(self, now: Instant) -> Frame:
        """Return a series for each expectation of which it is known whether it is met."""
        snapshot = self._latest()
        if snapshot is not None and now.mono >= self._due:
            before, self._frame = self._frame, self._compare(snapshot)
            self._due = now.mono + (SETTLED_SECONDS if self._frame == before else FIRST_SECONDS)
        return self._frame

    def _compare(self, snapshot: Snapshot) -> Frame:
        choice = self._choice
        if choice.named is None and not choice.by_gpus:
            return EMPTY_FRAME
        view = view_of(snapshot, self._devices)
        expected = choice.named or expected_of(view)
        findings = [finding for finding in run_checks(view, expected, FACTS) if finding.is_met is not None]
        for finding in findings:
            if finding.is_met:
                self._once.over(finding.name, "expectation is met again: %s", finding.name)
            else:
                facts = {"expectation": finding.name, "expected": finding.expected, "found": finding.found}
                self._once.problem(finding.name, "expectation is not met", facts=facts)
        if not findings:
            return EMPTY_FRAME
        met = (OwnReading(MET, int(bool(finding.is_met)), (("expectation", finding.name),)) for finding in findings)
        return self._own.frame((OwnReading(SET, 1, (("expectations", expected.name),)), *met))


HEADER = """\
# What this node should be, as it was when `coldplate check --learn` wrote this file. Read it before you rely on it:
# what was broken then is expected from now on. Keys: docs/terminal.md. Remove what is not to be checked.
"""


def expectations_from_node(view: SeenNode, description: str) -> NodeExpectations:
    """Return the facts of the node. Of what differs between its GPUs, the least is taken."""
    links = Counter(
        reading.entity.gpu for reading in view.all(LINK_UP) if isinstance(reading.entity, NvLink) and reading.value
    )
    speeds = [value / links[gpu] for gpu, value in view.of_gpus(link_findings.SPEED).items() if links[gpu]]
    active = {reading.entity for reading in view.all(PORT_UP) if reading.value}
    rates = [reading.value for reading in view.all(RATE) if reading.entity in active]
    joined = view.of_gpus(link_findings.FABRIC_STATE, state="completed")
    near, distances = link_findings.nearest_adapters(view)
    slots = view.facts("slot")
    memory = _least(view.of_gpus(gpu_findings.MEMORY))
    return NodeExpectations(
        description=description,
        models=tuple(dict.fromkeys(view.facts("model").values())),
        gpus=len(view.gpus),
        gpu_memory_gib=None if memory is None else floor(memory / 2**30 * 10) / 10,
        gpu_power_limit_watts=_least(view.of_gpus(gpu_findings.LIMIT)),
        ecc=_switch(view.of_gpus(gpu_findings.ECC)),
        persistence=_switch(view.of_gpus(gpu_findings.PERSISTENCE)),
        pcie_generation=_whole(_least(view.of_gpus(link_findings.GENERATION_MAX))),
        pcie_width=_whole(_least(view.of_gpus(link_findings.WIDTH))),
        nvlinks=min((links[gpu] for gpu in view.answering), default=0) or None,
        nvlink_gigabytes_per_second=round(min(speeds) / link_findings.GIGABYTE, 3) if speeds else None,
        fabric=True if joined and all(joined.values()) else None,
        ports=len(active) or None,
        port_gigabits_per_second=round(min(rates) / link_findings.GIGABIT, 1) if rates else None,
        hca_distances=tuple(dict.fromkeys(distances.values())) or None,
        nearest_hcas={slots[gpu]: tuple(sorted(devices)) for gpu, devices in near.items() if slots.get(gpu)} or None,
    )


def format_expectations(node: NodeExpectations) -> str:
    """Return the expectations as a file that `--expect` reads."""
    lines = []
    for key, value in msgspec.to_builtins(node).items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {_in_json(name)}: {_in_json(entry)}" for name, entry in value.items())]
        else:
            lines.append(f"{key}: {_in_json(value)}")
    return HEADER + "\n".join(lines) + "\n"


def _in_json(value: object) -> str:
    """Return a value in JSON, which YAML reads as well."""
    return json.dumps(value, ensure_ascii=False)


def _least(values: Mapping[Gpu, float]) -> float | None:
    return min(values.values(), default=None)


def _switch(values: Mapping[Gpu, float]) -> bool | None:
    return all(values.values()) if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
