"""Power meters and RAPL domains: what is the node, what is a part, and counters that wrap."""

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.power.rapl import MAX_WATTS, RaplDomain
from agent.backends.protocol import AbsentError
from agent.catalogue.node import RAPL
from agent.model import Node, Reason, Series

WRAP = 262_143_328_850


def test_a_single_nameless_meter_is_the_node_and_one_of_two_is_not(tree, read) -> None:
    tree.write("class/hwmon/hwmon0/name", "amdgpu")
    tree.write("class/hwmon/hwmon0/power1_average", 300_000_000)
    tree.rapl("0", "package-0", 1)  # which is not in the order
    with pytest.raises(AbsentError, match="no power meter for the whole node"):
        read(["hwmon"]).sample(0.0)
    tree.meter(1, 2_450_000_000)
    assert read(["hwmon"]).values(0.0) == {'power_watts{source="hwmon"}': 2450.0}
    tree.meter(2, 900_000_000)
    (gap,) = read(["hwmon"]).gaps(0.0)
    assert (gap.metric.name, gap.reason) == ("coldplate_node_power_watts", Reason.UNSUPPORTED)
    assert "hwmon1" in gap.detail
    assert "hwmon2" in gap.detail


def test_the_meters_of_grace_are_parts_wherever_they_say_so_and_never_the_node(tree, read) -> None:
    for number, (part, watts) in enumerate((("Module", 1900), ("Grace", 240), ("CPU", 150), ("SysIO", 30))):
        tree.meter(number, watts * 1_000_000, f"{part} Power Socket 0")
    tree.write("class/hwmon/hwmon4/name", "power_meter")
    tree.write("class/hwmon/hwmon4/power1_label", "Module Power Socket 1")
    tree.write("class/hwmon/hwmon4/power1_input", 5_000_000)
    assert read(["hwmon"]).values(0.0) == {
        'module_power_watts{socket="0"}': 1900.0,
        'module_power_watts{socket="1"}': 5.0,
        'grace_power_watts{socket="0"}': 240.0,
        'component_power_watts{component="cpu",socket="0"}': 150.0,
        'component_power_watts{component="sysio",socket="0"}': 30.0,
    }


def test_a_meter_with_an_unknown_name_is_the_node_only_where_there_are_no_parts(tree, read) -> None:
    tree.meter(0, 700_000_000, "Some Vendor Meter")
    assert read(["hwmon"]).values(0.0) == {'power_watts{source="hwmon"}': 700.0}
    tree.meter(1, 600_000_000, "Module Power Socket 0")
    assert list(read(["hwmon"]).values(0.0)) == ['module_power_watts{socket="0"}']


def test_two_meters_with_one_name_do_not_make_one_series_twice(tree, read) -> None:
    tree.meter(0, 1_000_000, "Module Power Socket 0")
    tree.meter(1, 2_000_000, "Module Power Socket 0")
    sample = read(["hwmon"]).sample(0.0)
    assert len(sample.readings) == 1
    assert [gap.reason for gap in sample.gaps] == [Reason.MALFORMED]


def test_a_part_that_draws_nothing_shows_zero_but_a_running_node_cannot(tree, read) -> None:
    tree.meter(0, 0, "Module Power Socket 0")
    tree.meter(1, 0)
    sample = read(["hwmon"]).sample(0.0)
    assert [reading.value for reading in sample.readings] == [0.0]
    assert [(gap.metric.name, gap.reason) for gap in sample.gaps] == [
        ("coldplate_node_power_watts", Reason.IMPLAUSIBLE)
    ]


def test_meters_are_read_once_a_second_and_a_failing_one_is_a_gap_with_the_reason(tree, read) -> None:
    path = tree.meter(0, 1_000_000_000)
    reader = read(["hwmon"])
    assert reader.values(0.0) == {'power_watts{source="hwmon"}': 1000.0}
    path.write_text("2000000000\n")
    assert reader.values(0.9) == {'power_watts{source="hwmon"}': 1000.0}
    assert reader.values(1.0) == {'power_watts{source="hwmon"}': 2000.0}
    path.unlink()
    assert not reader.values(2.0)
    (gap,) = reader.gaps(2.1)
    assert gap.reason is Reason.UNSUPPORTED
    assert str(path) in gap.detail


def test_rapl_domains_are_separate_energy_also_under_one_name_and_not_node_power(tree, read) -> None:
    tree.rapl("0", "package-0", 5_000_000)
    tree.rapl("0:0", "dram", 1_000_000)
    tree.rapl("0:1", "core", 3_000_000)
    tree.rapl("1", "package-1", 7_000_000)
    tree.rapl("2", "psys", 1_000_000)
    tree.rapl("3", "psys", 2_000_000)
    assert read(["rapl"]).values(0.0) == {
        'rapl_part_energy_joules_total{domain="package-0-core"}': 3.0,
        'rapl_energy_joules_total{domain="package-0"}': 5.0,
        'rapl_energy_joules_total{domain="package-0-dram"}': 1.0,
        'rapl_energy_joules_total{domain="package-1"}': 7.0,
        'rapl_platform_energy_joules_total{domain="psys"}': 1.0,
        'rapl_platform_energy_joules_total{domain="psys-3"}': 2.0,
    }


def test_a_counter_beyond_its_range_is_left_out_with_both_numbers(tree, read) -> None:
    path = tree.rapl("0", "package-0", WRAP)
    reader = read(["rapl"])
    assert reader.values(0.0) == {'rapl_energy_joules_total{domain="package-0"}': pytest.approx(WRAP / 1e6)}
    path.write_text(f"{WRAP + 1}\n")
    sample = reader.sample(1.0)
    (gap,) = sample.gaps
    assert (gap.metric.name, gap.reason) == ("coldplate_node_rapl_energy_joules_total", Reason.MALFORMED)
    assert gap.detail == f"{path}: {WRAP + 1} exceeds the counter's range of {WRAP}"
    assert list(sample.readings) == []
    path.write_text("1000000\n")
    assert reader.values(2.0) == {'rapl_energy_joules_total{domain="package-0"}': pytest.approx(WRAP / 1e6 + 1.0)}


def test_a_fall_is_a_wrap_if_the_domain_could_have_drawn_as_much_and_else_a_reset(tree, read) -> None:
    path = tree.rapl("0", "package-0", WRAP)
    reader = read(["rapl"])
    (before,) = reader.values(0.0).values()
    path.write_text(f"{5000 * 10**6}\n")  # 5000 W for a second, which is the limit
    (wrapped,) = reader.values(1.0).values()
    assert wrapped - before == pytest.approx(5000.0)
    path.write_text(f"{WRAP}\n")
    (full,) = reader.values(2.0).values()
    path.write_text(f"{5001 * 10**6}\n")
    assert reader.values(3.0) == {'rapl_energy_joules_total{domain="package-0"}': full}
    path.write_text(f"{5101 * 10**6}\n")
    assert reader.values(4.0) == {'rapl_energy_joules_total{domain="package-0"}': pytest.approx(full + 100.0)}


def test_zones_are_searched_each_minute_and_sooner_while_one_cannot_be_read(tree, read) -> None:
    tree.rapl("0", "package-0", 0)
    reader = read(["rapl"])
    first, second, third = (f'rapl_energy_joules_total{{domain="package-{number}"}}' for number in "012")
    assert reader.values(0.0) == {first: 0.0}
    tree.rapl("1", "package-1", 1_000_000, wrap="a lot")
    assert (reader.values(59.0), reader.gaps(59.5)) == ({first: 0.0}, [])
    (gap,) = reader.gaps(60.0)
    assert "intel-rapl:1/max_energy_range_uj" in gap.detail
    assert reader.values(60.5) == {first: 0.0}
    tree.rapl("1", "package-1", 1_000_000)
    assert reader.values(64.0) == {first: 0.0}
    assert len(reader.gaps(64.5)) == 1
    assert reader.values(65.0) == {first: 0.0, second: 1.0}
    assert reader.gaps(65.5) == []
    tree.rapl("2", "package-2", 2_000_000)
    shutil.rmtree(tree.root / "class/powercap/intel-rapl:1")
    assert set(reader.values(124.0)) == {first}
    assert reader.values(125.0) == {first: 0.0, third: 2.0}
    assert reader.gaps(125.5) == []


def test_a_part_without_its_package_and_a_name_that_is_there_already_are_gaps(tree, read) -> None:
    tree.rapl("0:0", "dram", 1_000_000)
    for zone, name in (("1", "psys"), ("2", "psys-3"), ("3", "psys")):
        tree.rapl(zone, name, 3_000_000)
    reader = read(["rapl"])
    assert set(reader.values(0.0)) == {f'rapl_platform_energy_joules_total{{domain="psys{end}"}}' for end in ("", "-3")}
    root = tree.root / "class/powercap"
    assert [(gap.reason, gap.detail) for gap in reader.gaps(1.0)] == [
        (Reason.LOST, f"{root}/intel-rapl:0:0: its parent {root}/intel-rapl:0 is unknown"),
        (Reason.MALFORMED, f"{root}/intel-rapl:3: a second zone is named psys-3"),
    ]


@contextlib.contextmanager
def without_root() -> Iterator[None]:
    """As a user who may read nothing of root's."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_node_without_any_source_is_absent_and_says_what_was_looked_for(read) -> None:
    with pytest.raises(AbsentError) as told:
        read(["hwmon", "rapl", "estimate"]).sample(0.0)
    assert "power meter" in str(told.value)
    assert "intel-rapl" in str(told.value)


@given(st.lists(st.integers(0, 5_000_000_000), min_size=1, max_size=40), st.integers(0, WRAP - 1))
def test_energy_is_the_sum_of_what_was_drawn_wherever_the_counter_wraps(steps: list[int], start: int) -> None:
    domain = RaplDomain(WRAP, Series(RAPL[0], Node(), (("domain", "x"),)))
    raw, shown = start, [domain.advance(start, 0.0)]
    for second, step in enumerate(steps, 1):
        raw = (raw + step) % WRAP
        shown.append(domain.advance(raw, float(second)))
    assert step <= MAX_WATTS * 1e6
    assert shown == sorted(shown)
    assert round((shown[-1] - shown[0]) * 1e6) == sum(steps)  # to the microjoule: floats are finer than that
