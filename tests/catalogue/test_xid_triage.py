"""The table of XIDs: what NVIDIA's catalog asks for, code by code, and nothing that only looks like it."""

import pytest

from agent.catalogue.xid_triage import ACTIONS, TRIAGE, XidClass, called, class_of, codes_of

BUCKETS = {
    "RESTART_APP": {XidClass.APPLICATION}, "IGNORE": {XidClass.NOTE}, "XID_154": {XidClass.NOTE},
    "RESET_GPU": {XidClass.RESET}, "WORKFLOW_XID_48": {XidClass.RESET}, "WORKFLOW_NVLINK_ERR": {XidClass.RESET},
    "RESTART_BM": {XidClass.NODE}, "RESTART_VM": {XidClass.NODE}, "CHECK_MECHANICALS": {XidClass.POWER},
    "WORKFLOW_XID_45": {XidClass.CLEANUP}, "WORKFLOW_NVLINK5_ERR": {XidClass.WORDS},
    "UPDATE_SWFW": {XidClass.LOOK}, "CONTACT_SUPPORT": {XidClass.LOOK}, "CHECK_UVM": {XidClass.LOOK},
    "": {XidClass.NOTE, XidClass.LOOK, XidClass.NODE},
}  # fmt: skip
"""The immediate actions of the catalog, and what each may be here."""

ONCE_UNKNOWN = (
    8, 11, 25, 37, 38, 60, 66, 67, 68, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89, 93, *range(96, 106), 108,
    *range(126, 136), 139, 141, 152, 153, 157, 161,
)  # fmt: skip
"""Codes that the catalog lays on the application, or would ignore, and that once warned as unknown."""


def test_a_class_is_what_the_catalog_s_action_says() -> None:
    for row in TRIAGE.values():
        assert row.triage in BUCKETS[row.bucket], row


def test_what_is_the_application_s_or_to_ignore_is_not_unknown() -> None:
    assert set(ONCE_UNKNOWN) <= set(codes_of(XidClass.NOTE, XidClass.APPLICATION))


def test_every_class_has_an_action_and_every_code_words_that_fit_a_table() -> None:
    assert ACTIONS.keys() == set(XidClass)
    for row in TRIAGE.values():
        assert row.name and row.action
        assert not set("|\n.") & set(row.name + row.action), row
        assert max(len(row.name), len(row.action)) <= 80, row


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (79, "", XidClass.NODE),
        (79, "NVRM: Xid (PCI:0000:1b:00): 79, NETIR Nonfatal", XidClass.NODE),
        (173, "", XidClass.LOOK),
        (149, "", XidClass.WORDS),
        (149, "149, NETIR Fatal XC0", XidClass.RESET),
        (149, "149, NETIR Nonfatal XC0", XidClass.APPLICATION),
    ],
)
def test_the_log_line_decides_only_where_the_code_does_not(code: int, text: str, expected: XidClass) -> None:
    assert class_of(code, text) is expected


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (79, "79 (GPU has fallen off the bus)"),
        ("45", "45 (preemptive cleanup)"),
        ("other", "other"),
        ("999", "999"),
        ("٣", "٣"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_code_is_shown_with_its_name_where_it_has_one(code: int | str, shown: str) -> None:
    assert called(code) == shown
