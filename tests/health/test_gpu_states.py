"""What is judged at a moment agrees with the rules that judge over time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.health import gpu_states, port_states
from agent.health.expectations import load_expectations, shipped_names

RULES = Path(__file__).parents[2] / "alerts" / "rules"


@pytest.mark.parametrize(
    ("file", "expression"),
    [
        ("thermal", f"gpu:temperature_margin_celsius:avg2m <= {gpu_states.MARGIN_CELSIUS:g}"),
        ("thermal", f"coldplate_gpu_memory_temperature_mean_celsius >= {gpu_states.MEMORY_HOT_CELSIUS:g}"),
        ("imbalance", f">= {gpu_states.BUSY:g}) - {gpu_states.BEHIND:g}"),
        ("infiniband", f"{port_states.BELOW_RATE:g} * quantile by"),
    ],
)
def test_a_threshold_is_that_of_the_rule(file: str, expression: str) -> None:
    assert expression in re.sub(r"\s+", " ", (RULES / f"{file}.yml").read_text())


def test_the_shipped_expectations_have_the_margin_that_every_gpu_needs() -> None:
    margins = {load_expectations(name).node.gpu_temperature_margin_celsius for name in shipped_names()}
    assert margins - {None} == {gpu_states.MARGIN_CELSIUS}
