"""What the pack says of XIDs is what the table says: rules, runbooks and the reference are current and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.catalogue.xid_triage import TRIAGE, XidClass, codes_of
from tests.lab.generate import alert_tables
from tests.lab.generate.xid_texts import ALERTS, RULES, RUNBOOKS, with_codes, with_section

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"
HINT = "not what the table of XIDs says; write it anew with: make generate"


def test_the_committed_rules_have_the_table_s_codes() -> None:
    for path in RULES:
        text = path.read_text()
        assert with_codes(text) == text, HINT


def test_every_class_is_read_by_a_rule() -> None:
    named = re.findall(r"# codes: ([a-z, ]+)\n.*?=~", "".join(path.read_text() for path in RULES))
    read = {word for words in named for word in words.split(", ")}
    assert read == {each.value for each in XidClass} - {XidClass.LOOK.value}, "those to look at are all others"


@pytest.mark.parametrize("alert", sorted(set(ALERTS.values())))
def test_a_committed_runbook_has_the_table_s_part_about_its_alert(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert with_section(text, alert) == text, HINT
    codes = [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", text)]
    assert codes == list(codes_of(*(each for each in XidClass if ALERTS[each] == alert)))


def test_the_committed_reference_has_a_line_for_every_code() -> None:
    assert alert_tables.splice(DOCUMENT.read_text()) == DOCUMENT.read_text(), HINT
    assert [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", DOCUMENT.read_text())] == list(TRIAGE)


def test_a_class_that_is_misspelt_in_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="rest"):
        with_codes('# codes: rest\nup{xid=~""}')
