"""The agent's own readings keep their series, whatever comes and goes between two frames."""

import pytest

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.daemon.reloading import LastReload
from agent.daemon.self_report import SelfMetrics
from agent.model import EMPTY_LAYOUT, Frame, Instant
from exporters.protection.web_gate import WebReload

UP = OwnReading("coldplate_worker_up", 1)
AGE = OwnReading("coldplate_backend_age_seconds", 3.0)


def test_a_frame_with_another_number_of_values_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="1 values for 0 series"):
        Frame(EMPTY_LAYOUT, (1.0,))


def test_a_layout_stays_as_long_as_the_series_do() -> None:
    own = OwnSeries()
    first, second, third = own.frame([UP, AGE]), own.frame([UP._replace(value=0), AGE]), own.frame([AGE])
    assert first.layout is second.layout
    assert (second.values, third.values) == ((0, 3.0), (3.0,))
    assert third.layout.series == (first.layout.series[1],)


def test_a_web_configuration_that_a_reload_removes_meanwhile_moves_no_value() -> None:
    """The watch is asked once for a frame, from whatever moment on it gives another answer."""
    given = iter([WebReload(1.0), None, WebReload(3.0, 9.0), None])
    metrics = SelfMetrics(None, LastReload(5.0), web=lambda: next(given))
    now = Instant(0.0, 0.0)
    for expected in (1.0, None, 3.0, None):
        found = {reading.metric.name: reading.value for reading in metrics.frame(now).readings}
        assert found["coldplate_build_info"] == 1
        assert found["coldplate_config_last_reload_success_timestamp_seconds"] == 5.0
        assert found.get("coldplate_web_config_last_reload_success_timestamp_seconds") == expected
