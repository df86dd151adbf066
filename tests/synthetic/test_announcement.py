"""What is said at the start of a demonstration: when something will happen, and where."""

from __future__ import annotations

from agent.backends.synthetic import load_scenario, shipped_scenarios
from agent.backends.synthetic.scenario import MOST, announced

WALL = 1_700_000_000.0  # 22:13:20 UTC


def test_a_fault_is_announced_with_its_place_and_both_times():
    assert list(announced(load_scenario("straggler"), WALL)) == ["straggler of GPU 5 starts at 22:24:20 UTC, in 660 s"]
    assert list(announced(load_scenario("healthy-training"), WALL)) == []


def test_ports_links_repeats_and_the_node_are_named(write):
    path = write("""
        description: d
        topology: dgx-h100
        faults:
          - {kind: node-power, at: 90s, watts: 1kW}
          - {kind: ib-down, port: mlx5_3, at: 30s, duration: 4s, repeat: 60s}
          - {kind: nvlink-down, gpu: 2, link: 7, at: 0s}
          - {kind: power-brake, gpu: 0-2, at: 61s}
    """)
    assert list(announced(load_scenario(str(path)), WALL)) == [
        "nvlink-down of link 7 of GPU 2 from the start",
        "ib-down of mlx5_3 starts at 22:13:50 UTC, in 30 s, repeated every 60 s",
        "power-brake of GPU 0, 1, 2 starts at 22:14:21 UTC, in 61 s",
        "node-power starts at 22:14:50 UTC, in 90 s",
    ]


def test_many_faults_do_not_fill_the_log(write):
    faults = "".join(f"\n  - {{kind: xid, gpu: 1, at: {each}s, code: 31}}" for each in range(MOST + 3))
    path = write(f"description: d\ntopology: dgx-h100\nfaults:{faults}")
    told = list(announced(load_scenario(str(path)), WALL))
    assert len(told) == MOST + 1
    assert told[-1] == "and 3 more faults"


def test_every_shipped_fault_is_announced():
    for name, _ in shipped_scenarios():
        scenario = load_scenario(name)
        assert len(list(announced(scenario, WALL))) == min(len(scenario.faults), MOST + 1), name
