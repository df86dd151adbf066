"""Two versions of the rules on the same recording: what differs is told, and nothing else."""

from __future__ import annotations

from pathlib import Path

from alerts.backtest.play import AlertSpan
from alerts.backtest.span_differences import SpanDifference, differences, labels_set_by
from tests.backtest.simulated import heat, rules, ruleset, temperatures
from tests.backtest.test_rule_play import spans

BASE = "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s\nlabels: {severity: warning}"
SNAPSHOTS = heat(temperatures((50, 10), (92, 10), (97, 20), (50, 20), (92, 10), (50, 5)))


def compared(folder: Path, old: str, new: str) -> tuple[list[SpanDifference], int]:
    before, after = ruleset(rules(folder, old, name="old.yml")), ruleset(rules(folder, new, name="new.yml"))
    return differences(spans(SNAPSHOTS, before), spans(SNAPSHOTS, after), labels_set_by(before, after))


def test_the_same_rules_do_not_differ(tmp_path: Path) -> None:
    assert compared(tmp_path, BASE, BASE) == ([], 2)


def test_a_longer_for_fires_later_and_not_at_all(tmp_path: Path) -> None:
    (later, gone), same = compared(tmp_path, BASE, BASE.replace("5s", "12s"))
    assert (later.start_shift, later.end_shift, same) == (7.0, 0.0, 0)
    assert (gone.new, gone.old is not None) == (None, True)


def test_a_higher_threshold_fires_later_and_not_at_all(tmp_path: Path) -> None:
    (gone, later), _ = sorted_by_new(*compared(tmp_path, BASE, BASE.replace("90", "95")))
    assert (later.start_shift, later.end_shift) == (10.0, 0.0)
    assert gone.new is None


def test_a_kept_alert_ends_later(tmp_path: Path) -> None:
    (kept, other), same = compared(tmp_path, BASE, BASE + "\nkeep_firing_for: 4s")
    assert (kept.start_shift, kept.end_shift, other.end_shift, same) == (0.0, 4.0, 4.0, 0)


def test_an_alert_with_another_severity_is_the_same_alert(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, BASE, BASE.replace("warning", "critical"))
    assert [each.labels_change for each in found] == [True, True]


def test_another_name_is_another_alert(tmp_path: Path) -> None:
    found, same = compared(tmp_path, BASE, BASE.replace("Hot", "TooHot"))
    assert (sum(each.old is None for each in found), sum(each.new is None for each in found), same) == (2, 2, 0)


def test_alerts_that_never_fire_do_not_count(tmp_path: Path) -> None:
    assert compared(tmp_path, BASE.replace("5s", "1m"), BASE.replace("5s", "2m")) == ([], 0)


def test_equal_labels_go_together_first() -> None:
    """Where rules of one name set two severities, each has its own partner."""
    warning, critical = (
        AlertSpan("n", "Hot", (("severity", each),), 0.0, fired, None, 1.0)
        for each, fired in (("warning", 1.0), ("critical", 2.0))
    )
    assert differences([warning, critical], [critical, warning], {"Hot": {"severity"}}) == ([], 2)


def sorted_by_new(found: list[SpanDifference], same: int) -> tuple[list[SpanDifference], int]:
    return sorted(found, key=lambda each: each.new is not None), same
