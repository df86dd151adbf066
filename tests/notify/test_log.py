"""Alerts as log lines, and as messages to the journal read back from its socket."""

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alerts.notify.dispatch import Dispatcher
from alerts.notify.log import LogReceiver, field_name, find_journal
from alerts.notify.receiver import Notice
from tests.notify.conftest import make_alert, make_notice


class Journald:
    def __init__(self, path: str, held: socket.socket) -> None:
        self.path = path
        self._socket = held
        self._socket.bind(path)
        self._socket.setblocking(False)

    def read(self) -> list[tuple[str, str]]:
        """One message, taken apart as systemd's Native Journal Protocol says."""
        data = self._socket.recv(1 << 20)
        fields = []
        while data:
            line, _, rest = data.partition(b"\n")
            name, equals, value = line.partition(b"=")
            if equals:
                data = rest
            else:
                size = int.from_bytes(rest[:8], "little")
                value, data = rest[8 : 8 + size], rest[8 + size :]
                assert data[:1] == b"\n"
                data = data[1:]
            fields.append((name.decode(), value.decode()))
        return fields


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[Journald]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        yield Journald(str(tmp_path / "journal"), held)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


SUMMARY = {
    "summary": "GPU 0 is at 91°C",
    "owner": "slurm job 7 of ada",
    "runbook_url": "http://n1:19400/runbooks/GpuHot",
}


def test_an_alert_is_a_line_with_its_labels_as_facts(lines) -> None:
    receiver = LogReceiver()
    receiver.accept_notices(
        [Notice(make_alert(severity="critical", gpu="0", level="top", annotations=SUMMARY), 0.0)], 0.0
    )
    (record,) = lines.records
    assert (record.name, record.levelname) == ("coldplate.alert", "ERROR")
    assert record.getMessage() == "firing: GpuHot: GPU 0 is at 91°C"
    assert record.facts == {
        "alertname": "GpuHot",
        "alertstate": "firing",
        "severity": "critical",
        "gpu": "0",
        "label_level": "top",
        "value": 91.0,
        "owner": "slurm job 7 of ada",
        "runbook_url": "http://n1:19400/runbooks/GpuHot",
    }
    assert receiver.counts.sent == 1


def test_the_level_is_by_severity_and_a_value_that_json_cannot_write_is_a_text(lines) -> None:
    cases: list[tuple[Any, ...]] = [
        ("critical", None, "ERROR", "inf"),
        ("warning", None, "WARNING", "-inf"),
        ("info", None, "INFO", "nan"),
        ("critical", 1010.0, "INFO", 0.0),
    ]
    for severity, resolved_at, _, value in cases:
        alert = make_alert(severity=severity, resolved_at=resolved_at, value=float(value))
        LogReceiver().accept_notices([Notice(alert, 0.0)], 0.0)
    assert [(each.levelname, each.facts["value"]) for each in lines.records] == [case[2:] for case in cases]


def test_there_is_one_line_for_each_change_and_none_for_pending(lines) -> None:
    dispatcher = Dispatcher([LogReceiver()], resend=1.0)
    for at, alert in enumerate([make_alert(fired_at=None), *[make_alert()] * 3, *[make_alert(resolved_at=1010.0)] * 3]):
        dispatcher.consider("g", [alert], 1000.0 + 5 * at, 1.0)
    assert [record.getMessage() for record in lines.records] == ["firing: GpuHot", "resolved: GpuHot"]


def test_the_journal_gets_fields_and_the_log_no_second_line(lines, journald) -> None:
    notes = {**SUMMARY, "summary": "line one\nline two"}
    receiver = LogReceiver(journald.path)
    receiver.accept_notices([Notice(make_alert(severity="warning", gpu="0", tür="zu", annotations=notes), 0.0)], 0.0)
    assert journald.read() == [
        ("MESSAGE", "firing: GpuHot: line one\nline two"),
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "coldplate"),
        ("COLDPLATE_ALERTNAME", "GpuHot"),
        ("COLDPLATE_ALERTSTATE", "firing"),
        ("COLDPLATE_SEVERITY", "warning"),
        ("COLDPLATE_VALUE", "91.0"),
        ("COLDPLATE_OWNER", "slurm job 7 of ada"),
        ("COLDPLATE_RUNBOOK_URL", "http://n1:19400/runbooks/GpuHot"),
        ("COLDPLATE_LABEL_ALERTNAME", "GpuHot"),
        ("COLDPLATE_LABEL_GPU", "0"),
        ("COLDPLATE_LABEL_SEVERITY", "warning"),
        ("COLDPLATE_LABEL_T_R", "zu"),
    ]
    assert lines.records == []
    assert (receiver.counts.sent, receiver.counts.failed) == (1, 0)
    lines.set_level(logging.ERROR)
    LogReceiver(journald.path).accept_notices([Notice(make_alert(severity="warning"), 0.0)], 0.0)
    with pytest.raises(BlockingIOError):
        journald.read()


def test_a_journal_that_is_gone_full_or_overloaded_costs_nothing_but_the_fields(lines, journald, tmp_path) -> None:
    away = LogReceiver(str(tmp_path / "nobody"))
    away.accept_notices([make_notice("Gone")], 0.0)
    long = LogReceiver(journald.path)
    long.accept_notices([make_notice("Long", annotations={"summary": "x" * 5_000_000})], 0.0)
    full = LogReceiver(journald.path)
    for _ in range(10_000):
        full.accept_notices([make_notice("Full")], 0.0)
        if full.counts.failed:
            break
    assert [record.getMessage()[:13] for record in lines.records] == ["firing: Gone", "firing: Long:", "firing: Full"]
    assert [each.counts.failed for each in (away, long, full)] == [1, 1, 1]
    assert full.counts.dropped == 0


def test_the_journal_is_used_where_standard_error_leads_there(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        status = os.fstat(write)
        stream = f"{status.st_dev}:{status.st_ino}"
        assert find_journal({"JOURNAL_STREAM": stream}, write) is not None
        assert find_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, write) is None
        assert find_journal({"JOURNAL_STREAM": "nonsense"}, write) is None
        assert find_journal({}, write) is None
    finally:
        os.close(read)
        os.close(write)
    assert find_journal({"JOURNAL_STREAM": stream}, write) is None


@given(st.text(min_size=1, max_size=100))
@example("x" * 100)
def test_a_field_has_a_name_that_journald_takes(name: str) -> None:
    field = field_name(f"COLDPLATE_LABEL_{name}")
    assert 16 < len(field) <= 64
    assert set(field) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
