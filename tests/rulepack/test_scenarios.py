"""Shipped scenarios, played through the sampler and the whole pack faster than time passes: what fires, and when.

Faults in scenarios are injected; nothing here was recorded on hardware. `fired` gives seconds from the beginning.
The limits in time are here, and what alerts say; all scenarios, several seeds and hours of silence are in `make score`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(("scenario", "seconds"), [("healthy-training", 370), ("idle", 70)])
def test_a_healthy_node_is_silent(scenario: str, seconds: int, play: Any) -> None:
    """For as long as the comparisons of GPUs take to fire; hours of it are in `make score`."""
    assert play(scenario, seconds).fired == {}


def test_a_straggler_is_reported_once_within_4_minutes(play: Any) -> None:
    node = play("straggler", 900)
    assert set(node.fired) == {("GpuImbalance", "5")}
    assert node.fired["GpuImbalance", "5"] - 660 <= 240
    alert = node.alert("GpuImbalance")
    assert alert.annotations["summary"].startswith("GPU 5 of node:19400 is nearly idle")
    assert alert.annotations["owner"] == "slurm job 6001 of ada"
    assert dict(alert.labels)["cause"] == "uneven"


def test_a_gpu_for_which_its_peers_wait_is_named_within_a_minute(play: Any) -> None:
    node = play("checkpoint-stall", 190)
    assert set(node.fired) == {("GpuImbalance", "0")}
    assert dict(node.alert("GpuImbalance").labels)["cause"] == "awaited"
    assert node.fired["GpuImbalance", "0"] - 120 <= 60


def test_a_power_brake_is_reported_within_15_seconds_and_never_as_heat(play: Any) -> None:
    fired = play("power-brake", 90).fired
    assert set(fired) == {("GpuPowerBrake", "")}
    assert max(fired.values()) - 60 <= 15


def test_a_lost_gpu_is_reported_within_10_seconds(play: Any) -> None:
    node = play("gpu-lost", 90)
    fired = node.fired
    assert fired["GpuLost", "3"] - 60 <= 10
    assert set(fired) == {("GpuLost", "3"), ("GpuXid", "3"), *(("GpuXidInfo", str(gpu)) for gpu in range(3))}
    assert node.alert("GpuLost").annotations["owner"] == "slurm job 6006 of ada"


def test_an_nvswitch_whose_link_fails_is_reported_by_its_address(play: Any, tmp_path: Path) -> None:
    file = tmp_path / "switch.yaml"
    file.write_text("description: d\ntopology: dgx-h100\nfaults: [{kind: sxid, at: 60s, code: 20034, switch: 2}]\n")
    fired = play(str(file), 120).fired
    assert set(fired) == {("NvSwitchErrors", "0000:c3:00.0")}
    assert fired["NvSwitchErrors", "0000:c3:00.0"] - 60 <= 15
