"""A node with NVIDIA GPUs on the PCI bus and no driver is broken, for the page, the alerts and `check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import warm


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for address in ("0000:1b:00.0", "0000:43:00.0"):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    return tmp_path / "sys"


def test_check_is_critical(sysfs: Path, tmp_path: Path) -> None:
    given = (["--path.sysfs", str(sysfs)], ["--path.sysfs", str(tmp_path)],
             ["--path.sysfs", str(tmp_path), "--backend", "nvml"])  # fmt: skip
    ended = warm.commands([["check", "--agent", "none", "--timeout", "20s", "--json", *each] for each in given])
    verdicts = [{each["name"]: each["verdict"] for each in json.loads(done.output)["findings"]} for done in ended]
    assert [(done.status, found["driver"]) for done, found in zip(ended, verdicts, strict=True)] == [
        (2, "critical"), (3, "unknown"), (2, "critical"),
    ]  # fmt: skip


def test_the_daemon_alerts_and_its_page_is_bad(sysfs: Path, start) -> None:
    daemon = start("--path.sysfs", str(sysfs))
    daemon.until("expected GPUs", lambda: daemon.family("coldplate_gpus_expected", "") == {"": 2.0}, 30)

    def alerts() -> dict[str, str]:
        found = json.loads(daemon.get("/api/v1/alerts"))["data"]["alerts"]
        return {each["labels"]["alertname"]: each["labels"]["severity"] for each in found}

    daemon.until("a critical alert", lambda: alerts().get("GpuCountWrong") == "critical", 30)
    page = daemon.get("/")
    assert "Bad" in page
    assert "0 of 2 GPUs" in page
