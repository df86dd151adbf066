"""Whatever a file says, it is a reading or a gap, never an exception and never nonsense."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.backends.infiniband import InfinibandBackend, sysfs_attribute
from agent.catalogue.infiniband import DIRECTORIES, driver_counter
from agent.model import Gap, Instant, Lane, Reading

NOW = Instant(0.0, 0.0)

contents = st.one_of(
    st.binary(max_size=200),
    st.integers(-(2**70), 2**70).map(lambda number: f"{number}\n".encode()),
    st.from_regex(rb"[ \t]?[-+]?[0-9_.]{0,25}[eE:x]? ?[A-Za-z/() 0-9]{0,20}\n?", fullmatch=True),
)


@given(contents)
def test_a_parser_gives_a_finite_number_that_is_not_negative_or_says_why_not(raw: bytes) -> None:
    for decode in (sysfs_attribute.parse_counter, sysfs_attribute.parse_state_code, sysfs_attribute.parse_rate):
        try:
            value = decode(raw)
        except sysfs_attribute.InvalidSysfsValueError as error:
            assert error.why
            assert error.why.isprintable()
        else:
            assert math.isfinite(value)
            assert value >= 0
            assert isinstance(value, int)


@given(st.integers(0, 2**64 - 1), st.sampled_from(["", "\n", " \n"]))
def test_every_counter_that_a_kernel_can_print_comes_back_exactly(value: int, ending: str) -> None:
    assert sysfs_attribute.parse_counter(f"{value}{ending}".encode()) == value


@given(st.sampled_from([25, 50, 100, 200, 250, 400, 560, 800, 1000, 1600, 2000, 4000, 8000, 16000]))
def test_every_rate_that_a_kernel_can_print_is_exact(tenths: int) -> None:
    text = f"{tenths // 10}{'.5' if tenths % 10 else ''} Gb/sec (4X XDR)\n"
    assert sysfs_attribute.parse_rate(text.encode()) * 8 * 10 == tenths * 10**9


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(number=contents, state=contents, rate=contents)
def test_a_port_of_garbage_gives_one_reading_or_gap_for_each_file(
    tmp_path: Path, number: bytes, state: bytes, rate: bytes
) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True, exist_ok=True)
    for name, content in (("state", state), ("phys_state", state), ("rate", rate)):
        (port / name).write_bytes(content)
    for name in ("link_downed", "port_rcv_data", "made_up", "symbol_error"):
        (port / "counters" / name).write_bytes(number)
    backend = InfinibandBackend(tmp_path)
    try:
        samples = [backend.read(lane, NOW) for lane in (Lane.FAST, Lane.SLOW)]
    finally:
        backend.close()
    found: list[Reading | Gap] = [each for sample in samples for each in (*sample.readings, *sample.gaps)]
    assert len({each.metric for each in found}) == len(found) == 9
    for each in found:
        if not isinstance(each, Gap):
            assert math.isfinite(each.value)
            assert each.value >= 0


@given(st.sampled_from(DIRECTORIES), st.text(min_size=1, max_size=60))
def test_every_file_name_makes_a_valid_metric_name_of_its_own(directory: str, file: str) -> None:
    row = driver_counter(f"{directory}/{file}")
    assert row.name.startswith("coldplate_infiniband_")
    assert set(row.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert driver_counter(f"{directory}/{file}") is row
