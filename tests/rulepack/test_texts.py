"""What alerts say to those whom they wake: every text that a unit test of the pack expects, read as a receiver does.

promtool and coldplate agree on those texts (`test_cases.py`), so what holds for them holds on a node and on a server.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alerts.rulefile import AlertingRule, RuleFile
from tests.rulepack.conftest import rules_of
from tests.rulepack.expected import told

LONGEST_SUMMARY = 120
"""Characters with a node's name of two: what a pager and a phone's lock screen show."""
LONGEST_DESCRIPTION = 520
NAMES = {
    "InfinibandPortDown": ("device", "port"), "BackendFailing": ("backend",),
    "GpuXidUnknown": ("xid",), "RackFeedOverload": ("feed",),
}  # fmt: skip
"""Labels beside node, rack, GPU and job without which the text of an alert says too little."""
NOBODY = "no job known"


def about(*labels: str) -> set[str]:
    """The alerts that have one of these labels."""
    return {each.name for each in told() if any(label in each.labels for label in labels)}


def test_every_alert_of_the_pack_is_read_here(pack: list[RuleFile]) -> None:
    assert {each.name for each in told()} == {rule.name for rule in rules_of(pack, AlertingRule)}


def test_every_alert_names_its_node_or_its_rack() -> None:
    for each in told():
        assert each.labels.keys() & {"instance", "rack"}, each
        assert [name for name in ("instance", "rack") if name in each.labels and not each.says(name)] == [], each


def test_every_alert_about_a_gpu_names_it_by_number_and_by_uuid() -> None:
    for each in told():
        wanted = {"gpu", "uuid", "job_id"} & each.labels.keys()
        assert [name for name in sorted(wanted) if not each.says(name)] == [], each
    without = {each.name for each in told() if "gpu" in each.labels and "uuid" not in each.labels}
    assert without == {"GpuLost"}, "one that has not said who it is"


def test_every_alert_says_which_of_the_nodes_parts_it_is_about() -> None:
    for each in told():
        assert [name for name in NAMES.get(each.name, ()) if not each.says(name)] == [], each


def test_every_alert_about_a_gpu_or_a_job_says_whose_it_is() -> None:
    """Each has a case in which a job is known, with its user or the namespace of its pod; no other alert has one."""
    owned = {each.name for each in told() if "owner" in each.notes}
    assert owned == about("gpu", "job_id")
    known = {each.name: each.notes["owner"] for each in told() if each.notes.get("owner", NOBODY) != NOBODY}
    assert known.keys() == owned
    for each in told():
        if (owner := each.notes.get("owner", NOBODY)) not in (NOBODY, "several jobs"):
            assert re.fullmatch(r"\w+ job \w+( pod [\w-]+/[\w-]+| of \w+)(; \w+ job \w+ of \w+)*", owner), each
        if "job_id" in each.labels:
            assert f"{each.labels['scheduler']} job {each.labels['job_id']} of " in owner


@pytest.mark.parametrize(
    "owner",
    ["slurm job 4711 of alice", "kubernetes job 9f2c pod ml/trainer-0", "several jobs", NOBODY,
     "slurm job 4711 of alice; slurm job 4712 of bob"],
)  # fmt: skip
def test_every_kind_of_owner_is_tried(owner: str) -> None:
    assert owner in {each.notes.get("owner") for each in told()}


def test_owners_are_found_in_one_way_by_gpu_and_in_one_by_job(pack: list[RuleFile]) -> None:
    sources: dict[str, set[str]] = {}
    for file in pack:
        for rule in rules_of([file], AlertingRule):
            owner = dict(rule.annotations).get("owner")
            if owner is not None:
                sources.setdefault(owner.source, set()).add(Path(file.path).name)
    by_job = [source for source, files in sources.items() if files <= {"imbalance.yml", "advice.yml"}]
    assert (len(sources), len(by_job)) == (2, 1)
    one, other = (re.sub(r"\{instance=.*?\}|\$labels\.\w+", "", source).split() for source in sources)
    assert one == other


def test_a_pager_can_show_every_text() -> None:
    for each in told():
        assert 0 < len(each.notes["summary"]) <= LONGEST_SUMMARY, each.notes["summary"]
        assert 0 < len(each.notes["description"]) <= LONGEST_DESCRIPTION, each.name
        for text in (each.notes["summary"], each.notes["description"]):
            assert not re.search(r"\n|  |<no value>|<error|\{\{|%!| of (is|in|has|,)", text), each
        assert each.notes["summary"][-1] not in " .", each


def test_an_owner_makes_no_other_alert() -> None:
    """What varies is in annotations: a job that begins or ends leaves the alert the one that it was."""
    for each in told():
        assert not each.labels.keys() & {"owner", "user", "namespace", "pod", "name"}, each


def test_every_alert_leads_to_its_runbook_on_an_agent_that_knows_of_it() -> None:
    for each in told():
        host = each.labels.get("instance", "n1")
        assert each.notes["runbook_url"] == f"http://{host}/runbooks/{each.name}"
