"""A recent Prometheus and its authors' test scripts come from a newer archive than the machine's own."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive
from tests.lab.bring.conftest import Mirror
from tests.lab.bring.newest import SCRIPTS, NewestPrometheus
from tests.lab.bring.programs import RECENT_ONES, is_recent
from tests.lab.parity.oracles import MissingError, find


def program(version: str) -> str:
    return f"#!/bin/sh\necho 'prometheus, version {version} (branch: x)'\n"


def source_of(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


@pytest.fixture
def newer(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewestPrometheus:
    """An archive that has a recent Prometheus, and a machine whose own is old."""
    mirror.add("prometheus", "3.5.9", files={"usr/bin/prometheus": program("3.5.9")})
    mirror.add("promtool", "3.5.9", files={"usr/bin/promtool": program("3.5.9")})
    mirror.add_source(
        "prometheus",
        "3.5.9",
        source_of(
            {
                f"prometheus-3.5.9/{SCRIPTS}/some.test": "eval instant at 0 1\n",
                f"prometheus-3.5.9/{SCRIPTS}/readme.md": "no script",
                f"../prometheus/{SCRIPTS}/outside.test": "none of ours",
                "prometheus-3.5.9/other.test": "none either",
            }
        ),
    )
    machine = tmp_path / "machine"
    machine.mkdir()
    for each in RECENT_ONES:
        (machine / each.name).write_text(program("2.42.0"))
        (machine / each.name).chmod(0o755)
    monkeypatch.setenv("PATH", str(machine), prepend=":")
    sources = mirror.sources()
    return NewestPrometheus(tmp_path / "newest", Archive(tmp_path / "newest" / "apt", lambda: sources))


def test_programs_and_scripts_come_once_and_lie_beside_the_machines_own(
    newer: NewestPrometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert newer.provide() == 0
    for name in ("prometheus", "promtool"):
        told = subprocess.run([tmp_path / "newest" / "usr" / "bin" / name], capture_output=True, text=True, check=True)
        assert "3.5.9" in told.stdout
    found = [each.relative_to(tmp_path / "newest" / "scripts") for each in (tmp_path / "newest").rglob("*.test")]
    assert found == [Path("prometheus-3.5.9", "some.test")]
    assert not (tmp_path / "prometheus").exists()
    capsys.readouterr()
    assert newer.provide() == 0
    assert capsys.readouterr() == ("", "")


def test_an_archive_without_the_scripts_gives_the_programs(
    mirror: Mirror, newer: NewestPrometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.add_source("prometheus", "3.5.10", source_of({"prometheus-3.5.10/other.test": ""}))
    assert newer.provide() == 0
    assert "holds no test scripts" in capsys.readouterr().err
    assert not (tmp_path / "newest" / "scripts").exists()


def test_what_a_fleet_runs_on_comes_from_there_as_well(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VictoriaMetrics knows its version by one dash, and says nothing to two."""
    said = '#!/bin/sh\n[ "$1" = -version ] || exit 2\n'
    files: dict[str, str | Path] = {f"usr/bin/{name}": said for name in ("victoria-metrics", "vmagent", "vmalert")}
    mirror.add("victoria-metrics", "1.145", files=files)
    sources = mirror.sources()[:1]
    newest = NewestPrometheus(tmp_path / "newest", Archive(tmp_path / "newest" / "apt", lambda: sources))
    assert newest.provide_engines(strict=True) == 1, "this archive has no Prometheus"
    named = capsys.readouterr().err
    assert "missing: prometheus " in named
    assert "victoria-metrics" not in named
    for path in files:
        subprocess.run([tmp_path / "newest" / path, "-version"], check=True)


@pytest.mark.parametrize(
    ("version", "good"), [("3.5.3+ds1", True), ("3.11.0", True), ("3.4.9", False), ("2.53.5", False)]
)
def test_a_program_is_recent_from_3_5_on(version: str, good: bool, tmp_path: Path) -> None:
    path = tmp_path / "prometheus"
    path.write_text(program(version))
    path.chmod(0o755)
    assert (is_recent(path) == "") is good


def test_what_is_not_there_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="make newest"):
        find(tmp_path)
