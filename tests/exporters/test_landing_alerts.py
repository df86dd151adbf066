"""What the page at `/` says about alerts, and that the terminal and the log say the same of an alert and of a pause."""

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from agent.catalogue import BY_NAME
from agent.commands.top.screen.node_samples import Traffic
from agent.commands.top.screen.node_view import view_of
from agent.commands.top.screen.panes import alert_lines
from agent.commands.top.screen.text_layout import TextLayout
from agent.commands.top.screen.view_builder import headlines
from agent.model import (
    Alert,
    BackendReport,
    Gap,
    Gpu,
    GroupReport,
    Instant,
    Outcome,
    Phase,
    Reading,
    Reason,
    RuleHealth,
    RuleReport,
    Series,
    Snapshot,
)
from alerts.notify.log import LogReceiver
from alerts.notify.receiver import Notice
from exporters.landing_alerts import MAX_ROWS
from exporters.markup import MAX_TEXT_LENGTH, Tone
from tests.asking import context, overview
from tests.exporters.conftest import reading
from tests.frames import snapshot_of

NOW = 1_700_000_000.0


def alert(
    name: str, phase: Phase = Phase.FIRING, age: float = 60.0, summary: str | None = None, **labels: str
) -> Alert:
    pairs = tuple(sorted({"alertname": name, **labels}.items()))
    annotations = {} if summary is None else {"summary": summary}
    return Alert(name, pairs, phase, 1.0, NOW - age, annotations=annotations)


def page(*alerts: Alert, failed: int = 0, sampled: bool = True, served: Iterable[str] = ()) -> str:
    """The page of a node with one GPU, one rule for these alerts, one recording rule, and some that fail.

    `served` are the alerts whose runbooks the agent has.
    """
    broken = RuleReport("Broken", True, "x", health=RuleHealth.FAILED, error="no")
    reports = (RuleReport("A", True, "x", alerts=alerts), RuleReport("r", False, "x"), *(broken,) * failed)
    snapshot = snapshot_of(1, Instant(100.0, NOW), (reading("coldplate_gpu_up", 1.0),)) if sampled else None
    groups = (GroupReport("g", "f.yml", 15.0, evaluated_at=NOW, rules=reports),)
    return overview(context(snapshot, rules=lambda: groups, runbooks=dict.fromkeys(served, "# It")))


def rows(text: str) -> list[list[str]]:
    """The cells of the table of alerts, without their markup."""
    section = re.search(r"<h2>Alerts</h2>.*?</table>", text, re.DOTALL)
    assert section is not None
    lines = re.findall(r"<tr>(.*?)</tr>", section[0])[1:]
    return [[re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", line)] for line in lines]


def runbooks(text: str) -> list[str]:
    """Where the rows lead for what to do."""
    return re.findall(r'<a href="([^"]*)">what to do</a>', text)


def tile(text: str) -> str:
    found = re.search(r"<dt>Alerts</dt><dd>(.*?)</dd>", text)
    assert found is not None
    return found[1]


def test_an_alert_is_shown_with_what_a_person_needs_and_what_it_lacks_is_absent() -> None:
    labels: dict[str, Any] = {"gpu": "0", "severity": "critical", "instance": "n:19400", "job": "gpus"}
    text = page(alert("GpuHot", age=11_520.0, summary="GPU 0 is hot", **labels))
    assert rows(text) == [["✖ firing critical", "GpuHot", "gpu 0", "3 h 12 min", "GPU 0 is hot", "–"]]
    assert tile(text) == '<span class="bad">1 firing</span>'
    bare = page(alert("Bare", Phase.PENDING))
    assert rows(bare) == [["○ pending –", "Bare", "–", "1 min", "–", "–"]]
    assert tile(bare) == "1 pending"
    assert tile(page()) == "none"
    assert text.index("<h2>Alerts") < text.index("<h2>GPUs")
    assert bare.index("<h2>Alerts") > bare.index("<h2>GPUs")
    assert rows(page(alert("A"), sampled=False))[0][3] == "–", "no age is known before the first sample"


def test_firing_comes_before_pending_and_the_worst_and_oldest_first() -> None:
    text = page(
        alert("P", Phase.PENDING, 900.0, severity="critical"),
        alert("Info", age=900.0, severity="info"),
        alert("Young", age=10.0, severity="warning"),
        alert("Odd", age=20.0, severity="page"),
        alert("Old", age=300.0, severity="warning"),
        alert("Worst", age=1.0, severity="critical"),
        alert("Over", Phase.RESOLVED),
    )
    assert [row[1] for row in rows(text)] == ["Worst", "Old", "Odd", "Young", "Info", "P"]
    assert tile(text) == '<span class="bad">5 firing, 1 pending</span>'


def test_inhibited_alerts_are_listed_and_counted_apart() -> None:
    effect = replace(alert("Effect", severity="critical"), inhibited_by="Cause")
    text = page(alert("Cause", severity="warning", detector="Leak_0"), effect, alert("P", Phase.PENDING))
    assert rows(text)[0][2] == "detector Leak_0"
    assert "Leak_<wbr>0" in text, "a long label leaves no room for the summary"
    assert [row[1] for row in rows(text)] == ["Cause", "Effecteffect of Cause", "P"]
    assert tile(text) == '<span class="warn">1 firing, 1 pending, 1 inhibited</span>'
    assert "<p>and 1 more, at " in page(*(alert("A", gpu=str(number)) for number in range(MAX_ROWS)), effect)


@pytest.mark.parametrize(
    ("age", "words"),
    [(-5.0, "0 s"), (0.4, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (3599.0, "59 min"), (3600.0, "1 h 0 min"),
     (86_400.0 * 2 + 3600 * 5, "2 d 5 h")],
)  # fmt: skip
def test_ages_are_written_in_words(age: float, words: str) -> None:
    assert rows(page(alert("A", age=age)))[0][3] == words


@pytest.mark.parametrize(("failed", "words"), [(1, "1 rule has failed"), (3, "3 rules have failed"), (0, "")])
@pytest.mark.parametrize("alerts", [(), (alert("A"),), (alert("Over", Phase.RESOLVED),)])
def test_the_absence_of_alerts_is_shown_with_the_number_of_rules_and_of_failures(
    failed: int, words: str, alerts: tuple[Alert, ...]
) -> None:
    text = page(*alerts, failed=failed)
    fires = any(each.phase is Phase.FIRING for each in alerts)
    assert (f"<p>No alert is pending or firing. {2 + failed} rules are evaluated" in text) is not fires
    assert (f'<span class="bad">{words} at the last evaluation</span>: <a href="/api/v1/rules">' in text) is bool(words)
    assert ("failed" in text) is bool(words)


def test_the_page_stays_small_whatever_the_rules_do() -> None:
    many = [alert("A", summary="x" * 10_000, gpu=f"{number:06}" + "y" * 10_000) for number in range(MAX_ROWS + 7)]
    text = page(*many)
    assert len(rows(text)) == MAX_ROWS
    assert "<p>and 7 more, at " in text
    assert tile(text) == f'<span class="warn">{MAX_ROWS + 7} firing</span>'
    assert max(len(cell) for row in rows(text) for cell in row) <= MAX_TEXT_LENGTH + len("&quot;")
    assert "more, at" not in page(*many[:MAX_ROWS])


def test_an_alert_leads_to_the_runbook_of_the_agent_or_of_the_rule() -> None:
    """A rule of the pack names the agent itself; a rule of the site may name a page of its own, or nothing at all."""
    addresses = {
        "GpuHot": "http://n1/runbooks/GpuHot",
        "RackPowerHigh": "HTTP://n9:19400/runbooks/RackPowerHigh",
        "Own": "https://wiki.example/own?a=1&b=2",
        "GpuLost": "http://n2/runbooks/GpuLost",
        "GpuXid": "https://n1/runbooks/GpuXid",
        "Loud": "HTTPS://wiki.example/loud",
        "GpuCountWrong": "https://wiki.example/runbooks/GpuCountWrong",
        "Other": "http://n1/runbooks/Another",
        "Bare": "",
        "Relative": "docs/x.md",
        "NoPage": "docs/x.md",
        "Mine": "http://n1/runbooks/Mine",
        "Sly": "javascript:alert(1)",
        "a b/../c": "docs/x.md",
    }
    alerts = [replace(alert(name, instance="n1"), annotations={"runbook_url": url}) for name, url in addresses.items()]
    served = ("GpuHot", "GpuXid", "RackPowerHigh", "GpuLost", "GpuCountWrong", "Other", "Bare", "Relative")
    assert sorted(runbooks(page(*alerts, served=served))) == [
        "/runbooks/GpuHot", "/runbooks/GpuLost", "/runbooks/GpuXid", "/runbooks/RackPowerHigh", "/runbooks/Relative",
        "HTTPS://wiki.example/loud", "http://n1/runbooks/Another", "https://wiki.example/own?a=1&amp;b=2",
        "https://wiki.example/runbooks/GpuCountWrong",
    ]  # fmt: skip


CAUSE = "its peers are blocked on this GPU"
FIRING = Alert(
    "GpuLost", (("alertname", "GpuLost"), ("severity", "critical")), Phase.FIRING, 0.0, NOW - 60,
    annotations={"summary": "GPU 3 is gone", "description": CAUSE},
)  # fmt: skip


def paused() -> Snapshot:
    detail = "coldplate pause has released the driver until 2026-11-24T18:13:52Z"
    gpus = [Gpu(str(number), f"GPU-{number}") for number in range(2)]
    facts = (("slot", "0000:1b:00.0"), ("serial", "1"), ("model", "H100"))
    readings = [Reading(Series(BY_NAME["coldplate_gpu_info"], gpu, facts), 1) for gpu in gpus]
    gaps = tuple(Gap(BY_NAME["coldplate_gpu_sample_age_seconds"], gpu, Reason.PAUSED, detail) for gpu in gpus)
    return snapshot_of(1, Instant(100.0, NOW), readings, [BackendReport("nvml", Outcome.ABSENT, 0.0, detail, gaps, 0)])


def test_a_released_driver_is_a_pause_and_not_the_loss_of_all_gpus() -> None:
    text = overview(context(paused()))
    assert "until 2026-11-24T18:13:52Z" in text
    assert "answer, missing" not in text and "Bad" not in text
    lines = headlines([view_of("n", "here", paused(), Traffic())])
    assert [each.tone for each in lines] == [Tone.UNKNOWN]
    assert "until 2026-11-24T18:13:52Z" in lines[0].text


def test_what_follows_the_summary_of_an_alert_is_folded() -> None:
    """On a phone two alerts with all their words fill the screen before any GPU."""
    (row,) = rows(page(FIRING))
    assert row[4] == f"GPU 3 is gonedetails{CAUSE}"
    assert "<details><summary>details</summary>" in page(FIRING)
    assert "<details>" not in page(alert("Bare"))


def test_the_description_of_an_alert_is_on_the_page_in_top_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert CAUSE in page(FIRING)
    node = structs.replace(view_of("n", "here", paused(), Traffic()), alerts=[FIRING])
    assert any(CAUSE in line.plain for line in alert_lines([node], NOW, TextLayout(120)))
    caplog.set_level(logging.INFO, "coldplate.alert")
    LogReceiver().accept_notices([Notice(FIRING, NOW + 60)], NOW)
    assert getattr(caplog.records[0], "facts")["description"] == CAUSE  # noqa: B009 - a field of ours
