"""`sum()` over a family is right: what is the total of its neighbours has a metric of its own."""

from __future__ import annotations

from agent.backends.host.kernel import CPU_MODES, PRESSURE
from agent.catalogue import ROWS
from agent.catalogue.bindings import Field
from agent.catalogue.gpu import EVENT_REASONS
from agent.model import Metric
from tests.each import for_each

CONTAINED = {
    # NVML fields: a whole, and what is counted in it, too (NVML API reference; PCIe Base Specification, AER)
    5: (3,), 6: (4,), 173: (175, 176, 178), 176: (182,), 179: (181,), 183: (175,),
    75: (269, 270), 80: (74, 75, 269, 270, 271), 81: (74, 75, 269, 270, 271),
    208: (206, 207, 209, 210), 215: (213, 214), 221: (219, 208), 219: (208,),
}  # fmt: skip
REASONS_CONTAINED = {0x8: (0x40, 0x80)}
WORDS = {"total", "all", "any", "sum", "both", "overall", "aggregate", "thermal", "hw_slowdown"}
"""Label values that are, or in the drivers' words were, the total of others."""


def label_values(row: Metric) -> list[str]:
    if not row.labels:
        return []  # a call's labels may name the member of its answer
    return [value for binding in row.origin for value in getattr(binding, "labels", ())]


@for_each("row", ROWS)
def test_no_family_has_a_whole_beside_its_parts(row: Metric) -> None:
    fields = {binding.id for binding in row.origin if isinstance(binding, Field)}
    beside = {whole: sorted(fields.intersection(parts)) for whole, parts in CONTAINED.items() if whole in fields}
    assert not {whole: parts for whole, parts in beside.items() if parts}
    assert not WORDS.intersection(label_values(row))
    assert "scope" not in row.labels


def test_no_throttle_reason_stands_for_others() -> None:
    bits = {bit for bit, _ in EVENT_REASONS}
    assert not [whole for whole, parts in REASONS_CONTAINED.items() if whole in bits and bits.intersection(parts)]


def test_figures_of_the_kernel_that_contain_each_other_are_not_of_one_family() -> None:
    assert not {"guest", "guest_nice"}.intersection(CPU_MODES)  # in user and nice
    assert PRESSURE["some"] is not PRESSURE["full"]  # a time in which all waited is one in which some did
