"""What is installed, and the unit that starts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.servers import need

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "coldplate.service"


def test_the_wheel_holds_exactly_the_four_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(tmp_path), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    packages = ("agent", "exporters", "alerts", "dashboards")
    expected = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".yaml", ".typed"}
    }
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "alerts" / "rules").glob("*.yml")}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "dashboards" / "generated").glob("*.json")}
    assert held == expected


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = UNIT.read_text()
    for program in ("/usr/bin/env", "/bin/kill"):
        if not Path(program).exists():  # it is not this machine that runs the unit
            unit = unit.replace(f"={program} ", "=/bin/sh ")
    judged = tmp_path / UNIT.name
    judged.write_text(unit)
    verified = subprocess.run(
        [need("systemd-analyze"), "verify", str(judged)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_the_unit_is_confined() -> None:
    report = subprocess.run(
        [need("systemd-analyze"), "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    exposure = re.search(r"Overall exposure level for coldplate\.service: ([\d.]+)", report.stdout)
    assert exposure is not None, report.stdout + report.stderr
    assert float(exposure[1]) <= 1.6
