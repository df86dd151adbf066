"""Plays kinds of work of a job on eight GPUs through the real ledger and rules."""

from __future__ import annotations

import pytest

from alerts.rulefile import RuleFile
from tests.lab.score.play import load_pack
from tests.lab.score.work import FAULTY, HEALTHY, INFORMED
from tests.lab.score.work_play import play_work, rules_for_jobs


@pytest.fixture(scope="module")
def rules() -> tuple[RuleFile, ...]:
    return rules_for_jobs(load_pack())


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_work_is_no_alert(name: str, rules: tuple[RuleFile, ...]) -> None:
    found = play_work(HEALTHY[name], 1800.0, rules, tick=5.0)
    assert [each for each in found if name not in INFORMED or each.severity != "info"] == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_of_a_job_is_named_in_time_and_nothing_else_is(name: str, rules: tuple[RuleFile, ...]) -> None:
    fault = FAULTY[name]
    found = play_work(fault.work, fault.begins + max(fault.within, fault.warns_within or 0.0) + 60.0, rules, tick=2.0)
    assert {(each.alert, each.gpu) for each in found} == {(fault.alert, fault.gpu)}
    assert found[0].at - fault.begins <= fault.within
    if fault.warns_within is not None:
        warned = [each.at - fault.begins for each in found if each.severity == "warning"]
        assert warned and warned[0] <= fault.warns_within
