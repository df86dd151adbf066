"""The state file: what is written is read again, and what is damaged is set aside, never fatal."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.lib.state_files import load_state, seal
from agent.model import Alert, Labels, Phase
from alerts import alert_state
from alerts.lifecycle import AlertRecord

TEXT = st.text(max_size=20) | st.binary(max_size=20).map(os.fsdecode)  # a mount point need not be UTF-8
TIMES = st.floats(0, 4e9)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=4).map(tuple)

LOG = logging.getLogger("coldplate.rules")


@st.composite
def records(draw: st.DrawFn) -> tuple[str, tuple[str, tuple[tuple[str, str], ...]], AlertRecord]:
    phase = draw(st.sampled_from(Phase))
    alert = Alert(
        rule=draw(TEXT),
        labels=draw(PAIRS),
        phase=phase,
        value=draw(st.floats(allow_nan=False)),  # also an infinite one, which JSON does not know
        active_at=draw(TIMES),
        fired_at=None if phase is Phase.PENDING else draw(TIMES),
        resolved_at=draw(TIMES) if phase is Phase.RESOLVED else None,
        annotations=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
    )
    return draw(TEXT), (alert.rule, draw(PAIRS)), AlertRecord(alert, draw(st.none() | TIMES))


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(records(), max_size=3), st.dictionaries(PAIRS, PAIRS, max_size=2))
def test_what_is_written_is_read_again(
    rows: list[tuple[str, tuple[str, tuple[tuple[str, str], ...]], AlertRecord]], effects: dict[Labels, Labels]
) -> None:
    saved = alert_state.decode(alert_state.encode(12.5, "devices", rows, ["http://knew"], effects))
    assert (saved.at, saved.source, saved.notified, saved.effects) == (12.5, "devices", {"http://knew"}, effects)
    for group, identity, record in {(row[0], row[1], row[2].alert.labels): row for row in rows}.values():
        assert saved.records[group][identity][record.alert.labels] == record


GOOD = alert_state.encode(5.0, "devices", [("g", ("r", ()), AlertRecord(Alert("r", (), Phase.FIRING, 1.0, 1.0, 1.0)))])


@pytest.mark.parametrize("phase", ["resolved", "asleep"])
def test_a_file_that_says_what_cannot_be_is_set_aside_with_a_warning(phase: str, tmp_path: Path, caplog) -> None:
    content = seal(alert_state.FORMAT, GOOD.partition(b"\n")[2].replace(b"firing", phase.encode()))
    path = tmp_path / "alerts.state"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert load_state(path, alert_state.decode, LOG, "") is None
    assert not path.exists()
    assert (tmp_path / "alerts.damaged").read_bytes() == content
    assert "set aside" in caplog.text and str(path) in caplog.text
    caplog.clear()
    assert load_state(path, alert_state.decode, LOG, "") is None, "it is not there any more"
    assert not caplog.records
