"""How grave NVLink 5 errors are, by lines of drivers from public reports, and by the catalog's decode table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.catalogue.xid_triage import Grade, grade_of

FATAL, NONFATAL = Grade.FATAL, Grade.NONFATAL
ZEROS = " ".join(["0x00000000"] * 4)


def line(code: int, unit: str, word: str, interrupt: int, status: int) -> str:
    return (
        f"NVRM: Xid (PCI:0018:01:00): {code}, {unit} {word} XC0 i0 Link 08 (0x{interrupt:08x} 0x{status:08x} {ZEROS})"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 {ZEROS})", FATAL),
        (f"NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 {ZEROS})", FATAL),
        (f"Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 {ZEROS})", NONFATAL),
        (f"NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal   XC0 i1 Link 09 (0x000fe406 0x00000000 {ZEROS})", NONFATAL),
        ("NVRM: Xid (PCI:0000:1b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)", NONFATAL),
        ("NVRM: Xid (PCI:0018:01:00): 149, pid=7, name=x y, NETIR_BER_EVENT Nonfatal XC0 (0x26 0x1)", NONFATAL),
        ("NVRM: Xid (PCI:0018:01:00): 149, pid=7, name=NETIR_X Fatal, NETIR_BER_EVENT Nonfatal XC0", NONFATAL),
        ("NVRM: Xid (PCI:0018:01:00): 149, pid=7, name=TLW_X Fatal, something new", None),
        ("NVRM: Xid (PCI:0018:01:00): 149, something new", None),
        ("", None),
    ],
)
def test_the_line_says_how_grave_it_is(text: str, expected: Grade | None) -> None:
    assert grade_of(145 if ": 145," in text else 149, text) is expected


@pytest.mark.parametrize(
    ("code", "unit", "fatal", "other"),
    [
        (144, "SAW_MVB", (0x2, 0x10), (0x1, 0x4, 0x8, 0x20)),
        (145, "RLW_CTRL", (), (0x8000_0000,)),
        (145, "RLW_REMAP", (0x40, 0x80), (0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x100, 0x200, 0x8000_0000)),
        (145, "RLW_RSPCOL", (0x2,), (0x1, 0x8000_0000)),
        (145, "RLW_SRC_TRACK", (0x1, 0x10, 0x20), (0x2, 0x4, 0x8, 0x8000_0000)),
        (145, "RLW_TAGSTATE", (0x2, 0x2_0000, 0x10_0000), (0x1, 0x1_0000, 0x8000_0000)),
        (146, "TLW_CTRL", (0x4,), (0x1, 0x2, 0x8000_0000)),
        (146, "TLW_RX", (0x4,), (0x1, 0x2, 0x8000_0000)),
        (146, "TLW_RX_PIPE1", (0x4,), (0x1, 0x2, 0x8000_0000)),
        (146, "TLW_TX_PIPE0", (0x4, 0x5), (0x1, 0x2, 0x8000_0000)),
        (147, "TREX", (), (0x1, 0x8000_0000)),
        (148, "NVLPW_CTRL", (), (0x8000_0000,)),
    ],
)
def test_the_error_status_makes_fatal_what_the_driver_does_not_call_so(
    code: int, unit: str, fatal: tuple[int, ...], other: tuple[int, ...]
) -> None:
    for status in fatal + other:
        assert grade_of(code, line(code, unit, "Nonfatal", 0, status)) is (FATAL if status in fatal else NONFATAL)
        assert grade_of(code, line(code, unit, "Fatal", 0, status)) is FATAL


@pytest.mark.parametrize(
    ("interrupt", "expected"), [(0x4C2, FATAL), (0x0C2, NONFATAL), (0x86, FATAL), (0x06, NONFATAL)]
)
def test_an_error_of_the_receiver_is_fatal_where_it_was_promoted(interrupt: int, expected: Grade) -> None:
    """Before driver R575, and since."""
    for status in (0x1, 0x2, 0x4):
        assert grade_of(145, line(145, "RLW_RXPIPE", "Nonfatal", interrupt, status)) is expected
    assert grade_of(145, line(145, "RLW_RXPIPE", "Nonfatal", interrupt, 0x8)) is NONFATAL


@pytest.mark.parametrize("unit", ["NETIR_LINK_EVT", "NETIR_LINK_DOWN"])
def test_a_link_that_somebody_took_down_on_purpose_asks_for_no_reset(unit: str) -> None:
    for reason in range(64):
        expected = NONFATAL if reason in (0x26, 0x28) else FATAL
        assert grade_of(149, line(149, unit, "Fatal", reason << 20 | 0x1C6, 0)) is expected


def test_other_codes_are_not_read() -> None:
    assert grade_of(143, line(143, "NETIR", "Fatal", 0, 0)) is None
    assert grade_of(150, line(150, "NETIR", "Fatal", 0, 0)) is None


@given(st.integers(140, 155), st.text(max_size=200))
def test_no_text_stops_the_reader(code: int, text: str) -> None:
    assert grade_of(code, text) in (None, *Grade)
