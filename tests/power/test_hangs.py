"""A meter, a domain or a controller that hangs costs itself; and so does a file that holds something else."""

import shutil
from collections.abc import Callable

import pytest

from agent.backends.polled_source import spawn_thread
from agent.backends.power.hwmon import METERS
from agent.model import Reason
from tests.fakes.trees import KINDS
from tests.power.conftest import Dcmi
from tests.waiting import wait_until

PARTS = ("Module", "Grace", "CPU")


@pytest.fixture
def full(tree):
    """Three meters of parts, and four RAPL domains."""
    for number, part in enumerate(PARTS):
        tree.meter(number, (number + 1) * 1_000_000, f"{part} Power Socket 0")
    for zone, name in (("0", "package-0"), ("0:0", "dram"), ("1", "package-1"), ("1:0", "dram")):
        tree.rapl(zone, name, 5_000_000)
    return tree


def module(number: int) -> str:
    part = PARTS[number].lower()
    if part in {"module", "grace"}:
        return f'{part}_power_watts{{socket="0"}}'
    return f'component_power_watts{{component="{part}",socket="0"}}'


FILES = {
    "class/hwmon/hwmon1/device/power1_average": {module(1)},
    "class/hwmon/hwmon1/device/power1_oem_info": {module(1)},
    "class/hwmon/hwmon1/name": {module(1)},
    "class/powercap/intel-rapl:0:0/energy_uj": {'rapl_energy_joules_total{domain="package-0-dram"}'},
    "class/powercap/intel-rapl:0:0/name": {'rapl_energy_joules_total{domain="package-0-dram"}'},
    "class/powercap/intel-rapl:1/max_energy_range_uj": {
        'rapl_energy_joules_total{domain="package-1"}',
        'rapl_energy_joules_total{domain="package-1-dram"}',  # which is named after its parent
    },
}


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_file_that_hangs_affects_only_its_own_series_and_comes_back(full, read, odd, file: str) -> None:
    whole = read(["hwmon", "rapl"]).values(0.0)
    assert len(whole) == 7
    reader = read(["hwmon", "rapl"])
    text = (full.root / file).read_text()
    odd.hang(full.root / file)
    for second in range(2):
        sample = reader.sample(float(second))
        shown = {repr(each.series).removeprefix("coldplate_node_") for each in sample.readings}
        assert shown == whole.keys() - FILES[file]
        folder = file.rpartition("/")[0].split("/device")[0]
        (gap,) = [each for each in sample.gaps if each.reason is Reason.TIMEOUT]
        assert f"{full.root / folder}" in gap.detail
        assert "no answer for" in gap.detail
    odd.release()
    (full.root / file).unlink()
    (full.root / file).write_text(text)
    seconds = iter(range(10, 100_000, 5))
    wait_until(lambda: reader.values(float(next(seconds))) == whole)


def test_a_meter_with_a_hanging_name_is_read_on_and_a_hanging_one_loses_its_value(full, read, odd) -> None:
    reader = read(["hwmon", "rapl"])
    whole = reader.values(0.0)
    odd.hang(full.root / "class/hwmon/hwmon0/device/power1_oem_info")
    assert reader.values(61.0).keys() == whole.keys()
    assert [gap.reason for gap in reader.gaps(61.5)] == [Reason.TIMEOUT]
    odd.hang(full.root / "class/hwmon/hwmon0/device/power1_average")
    for second in (63.0, 123.0):  # also after meters were looked for again
        assert reader.values(second).keys() == whole.keys() - {module(0)}


@pytest.mark.parametrize(("content", "reason"), [("banana", Reason.MALFORMED), (0xFFFFFFFF * 1000, Reason.IMPLAUSIBLE)])
@pytest.mark.parametrize("oem_info", [None, "Module Power Socket 0"])
def test_a_meter_that_failed_twice_is_left_alone_for_ten_minutes(
    tree, read, oem_info: str | None, content: object, reason: Reason
) -> None:
    path = tree.meter(0, content, oem_info)
    reader = read(["hwmon"])
    assert [reader.values(0.0), reader.values(1.0)] == [{}, {}]
    path.write_text("2000000000\n")
    for second in range(2, 601, 7):
        assert reader.values(float(second)) == {}
    (gap,) = reader.gaps(600.5)
    assert gap.reason is reason
    assert str(path) in gap.detail
    assert "every 600 s" in gap.detail
    assert list(reader.values(601.5).values()) == [2000.0]


def test_a_meter_that_failed_once_is_read_again_at_once(tree, read) -> None:
    path = tree.meter(0, 2_000_000_000)
    reader = read(["hwmon"])
    for second in range(0, 20, 2):
        path.write_text("banana\n")
        assert reader.values(float(second)) == {}
        path.write_text("2000000000\n")
        assert reader.values(second + 1.0) == {'power_watts{source="hwmon"}': 2000.0}


def test_a_meter_that_hung_once_is_read_again_when_it_returns(tree, read, odd) -> None:
    path = tree.meter(0, 2_000_000_000)
    reader = read(["hwmon"])
    odd.hang(path)
    assert [gap.reason for gap in reader.gaps(0.0)] == [Reason.TIMEOUT]
    for second in range(1, 10):
        assert [gap.reason for gap in reader.gaps(float(second))] == [Reason.TIMEOUT]
    odd.release()
    path.unlink()
    path.write_text("2000000000\n")
    seconds = iter(range(10, 600))
    wait_until(lambda: bool(reader.values(float(next(seconds)))))


def test_the_meter_of_the_node_is_not_read_while_a_preferred_source_answers(tree, read, odd, caplog) -> None:
    tree.meter(1, 5_000_000, "CPU Power Socket 0")
    odd.hang(tree.meter(0, 6_000_000_000))
    dcmi = Dcmi(7000)
    reader = read(["ipmi", "hwmon"], ipmi=dcmi)
    for second in range(10):
        assert reader.values(float(second)) == {
            'power_watts{source="ipmi"}': 7000.0,
            'component_power_watts{component="cpu",socket="0"}': 5.0,
        }
    assert not caplog.records
    dcmi.answer = OSError(5, "Input/output error")
    assert [gap.reason for gap in reader.gaps(10.0)] == [Reason.LOST, Reason.TIMEOUT]


def test_the_meter_of_the_node_that_hangs_gives_way_to_the_next_source(tree, read, odd) -> None:
    tree.meter(0, 6_000_000_000)
    tree.rapl("0", "package-0", 5_000_000)
    reader = read(["hwmon", "rapl"])
    assert reader.values(0.0)['power_watts{source="hwmon"}'] == 6000.0
    odd.hang(tree.root / "class/hwmon/hwmon0/device/power1_average")
    sample = reader.sample(1.0)
    assert [each.value for each in sample.readings] == [5.0]
    ((name, reason),) = {(gap.metric.name, gap.reason) for gap in sample.gaps}
    assert (name, reason) == ("coldplate_node_power_watts", Reason.TIMEOUT)


def test_where_no_thread_can_be_started_the_source_says_so_and_the_others_continue(full, read) -> None:
    scarce = True

    def spawn(job: Callable[[], None]) -> None:
        if scarce:
            raise RuntimeError("can't start new thread")
        spawn_thread(job)

    reader = read(["ipmi", "rapl"], ipmi=Dcmi(7000), spawn=spawn)
    sample = reader.sample(0.0)
    assert len(sample.readings) == 4
    assert [(gap.reason, "TasksMax" in gap.detail) for gap in sample.gaps] == [(Reason.DENIED, True)]
    scarce = False
    seconds = iter(range(5, 100_000, 5))
    wait_until(lambda: 'power_watts{source="ipmi"}' in reader.values(float(next(seconds))))


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("file", sorted(FILES))
def test_whatever_is_in_the_place_of_a_file_affects_only_its_own_series(full, read, odd, file: str, kind: str) -> None:
    whole = read(["hwmon", "rapl"]).values(0.0)
    odd.spoil(full.root / file, kind)
    reader = read(["hwmon", "rapl"])
    for second in range(2):
        sample = reader.sample(float(second))
        shown = {repr(each.series).removeprefix("coldplate_node_") for each in sample.readings}
        assert whole.keys() - shown <= FILES[file]
        for gap in sample.gaps:
            assert str(full.root) in gap.detail
            assert gap.detail.isprintable()


@pytest.mark.parametrize("folder", ["class/hwmon", "class/powercap"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "empty", "missing", "folder"])
def test_a_class_that_is_odd_affects_only_its_own_source(full, read, odd, folder: str, kind: str) -> None:
    shutil.rmtree(full.root / folder)
    odd.spoil(full.root / folder, kind)
    shown = read(["hwmon", "rapl"]).values(0.0)
    assert len(shown) == (4 if folder == "class/hwmon" else 3)


def test_more_meters_than_are_shown_are_counted(tree, read) -> None:
    for number in range(METERS + 9):
        tree.meter(number, 1_000_000, f"Module Power Socket {number}")
    sample = read(["hwmon"]).sample(0.0)
    assert (sample.left_out, len(sample.readings)) == (9, METERS)
