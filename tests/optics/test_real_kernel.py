"""This machine's own kernel: whatever it offers, it is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.backends.optics import OpticsBackend
from agent.backends.optics.netlink import connect_netlink, resolve_family
from agent.model import Instant, Lane, Reason


def test_a_family_that_there_is_has_a_number_and_another_is_not_found() -> None:
    try:
        assert resolve_family(connect_netlink, "nlctrl") == 16
    except OSError as error:
        pytest.skip(f"this machine allows no netlink: {error}")
    with pytest.raises(FileNotFoundError):
        resolve_family(connect_netlink, "coldplate-none")


def test_a_port_that_is_not_there_is_gone_or_nothing_is_offered(tmp_path: Path) -> None:
    """The kernel's own answers are understood: it knows the question, and not the port."""
    folder = tmp_path / "class" / "net" / "coldplate-none"
    (folder / "device").mkdir(parents=True)
    (folder / "type").write_text("1\n")
    try:
        resolve_family(connect_netlink, "ethtool")
    except OSError as error:
        pytest.skip(f"this machine offers no ethtool netlink: {error}")
    backend = OpticsBackend(tmp_path)
    try:
        sample = backend.read(Lane.SLOW, Instant(1.0, 1e9))
    finally:
        backend.close()
    assert not sample.readings
    by_row = {gap.metric.name: gap.reason for gap in sample.gaps}
    assert by_row["coldplate_ethernet_rate_bytes_per_second"] is Reason.LOST, "LINKMODES_GET is as old as the family"
    assert set(by_row.values()) <= {Reason.LOST, Reason.UNSUPPORTED}, "an older kernel does not know the others"
