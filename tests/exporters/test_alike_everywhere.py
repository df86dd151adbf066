"""Page, terminal and log say the same of a paused driver, and give the cause of an alert where people look first."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from agent.catalogue import BY_NAME
from agent.commands.top.screen.node_diagnosis import diagnose
from agent.commands.top.screen.node_samples import Traffic
from agent.commands.top.screen.node_view import view_of
from agent.commands.top.screen.panes import alert_lines
from agent.commands.top.screen.text_layout import TextLayout
from agent.model import Alert, BackendReport, Gap, Gpu, Instant, Outcome, Phase, Reading, Reason, Series, Snapshot
from alerts.notify.log import LogReceiver
from alerts.notify.receiver import Notice
from exporters.markup import Tone
from tests.asking import context, overview
from tests.exporters.test_landing_alerts import NOW, page
from tests.frames import snapshot_of

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
    found = diagnose([view_of("n", "here", paused(), Traffic())], NOW)
    assert [each.tone for each in found] == [Tone.WARN]
    assert "until 2026-11-24T18:13:52Z" in found[0].text


def test_the_description_of_an_alert_is_on_the_page_in_top_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert CAUSE in page(FIRING)
    node = replace(view_of("n", "here", paused(), Traffic()), alerts=[FIRING])
    assert any(CAUSE in line.plain for line in alert_lines([node], NOW, TextLayout(120)))
    caplog.set_level(logging.INFO, "coldplate.alert")
    LogReceiver().put([Notice(FIRING, NOW + 60)], NOW)
    assert getattr(caplog.records[0], "facts")["description"] == CAUSE  # noqa: B009 - a field of ours
