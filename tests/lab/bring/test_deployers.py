"""helm, kubectl and Ansible come once, from files whose hashes are known; what cannot be had is named."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab.bring import deployers
from tests.lab.bring.deployers import Deployers, layer_of
from tests.lab.bring.shortage import ShortageError

ROOT = Path(__file__).resolve().parents[3]
SAYS_ITS_VERSION = b"#!/bin/sh\necho v4.1.4\n"


def package(path: Path, program: bytes = SAYS_ITS_VERSION) -> Path:
    """A wheel with a tar file with a zip file with the programs, as they are published."""
    layer, tar = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as held:
        for name in deployers.NAMES:
            held.writestr(f"{name}/{name}", program)
    with tarfile.open(fileobj=tar, mode="w:gz") as held_in_tar:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        held_in_tar.addfile(member, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("x/_jsii/layer@1.jsii.tgz", tar.getvalue())
    return path


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployers:
    """Deployers whose pip finds what it is asked for beside it, and notes each question in `asked`."""
    for name in (deployers.PROGRAMS, deployers.LOCKED):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("lock")

    def pip(self: Deployers, command: str, *options: str) -> None:
        with (tmp_path / "asked").open("a") as asked:
            asked.write(json.dumps([command, *options]) + "\n")
        place = Path(options[options.index("--dest" if command == "download" else "--target") + 1])
        place.mkdir()
        if command == "download":
            package(place / "p.whl")
            return
        for version in ("1.25.0", "1.30.0", "1.37.0"):
            (place / "kubernetes_validate/kubernetes-json-schema" / f"v{version}-local-strict").mkdir(parents=True)

    monkeypatch.setattr(Deployers, "_pip", pip)
    return Deployers(tmp_path, tmp_path / ".programs", Path(sys.executable))


def asked(folder: Path) -> list[Sequence[str]]:
    return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


def test_they_come_once_until_a_lock_changes(
    brought: Deployers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert brought.provide(strict=True) == 0
    assert [each[0] for each in asked(tmp_path)] == ["download", "install"]
    assert all("--require-hashes" in each for each in asked(tmp_path))
    assert (tmp_path / ".programs/usr/bin/helm").read_bytes() == SAYS_ITS_VERSION
    kept = (tmp_path / ".programs/deployers/library").rglob("v*-strict")
    assert sorted(each.name for each in kept) == ["v1.25.0-local-strict", "v1.37.0-local-strict"]
    capsys.readouterr()
    assert brought.provide(strict=True) == 0
    assert capsys.readouterr() == ("", "")
    assert len(asked(tmp_path)) == 2
    (tmp_path / deployers.LOCKED).write_text("another")
    assert brought.provide(strict=True) == 0
    assert [each[0] for each in asked(tmp_path)][2:] == ["install"]


@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_be_had_is_named_and_fails_only_in_ci(
    brought: Deployers, strict: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Deployers, *_: str) -> None:
        raise ShortageError("pip: no route")

    monkeypatch.setattr(Deployers, "_pip", fails)
    assert brought.provide(strict=strict) == int(strict)
    said = capsys.readouterr().err
    assert "missing: helm and kubectl (pip: no route)" in said
    assert "missing: Ansible" in said


def test_the_programs_lie_inside_the_package(tmp_path: Path) -> None:
    assert layer_of(package(tmp_path / "a.whl")) == dict.fromkeys(deployers.NAMES, SAYS_ITS_VERSION)
    with zipfile.ZipFile(tmp_path / "b.whl", "w") as wheel:
        wheel.writestr("other", "")
    with pytest.raises(ShortageError, match=r"b\.whl has no layer"):
        layer_of(tmp_path / "b.whl")


def test_every_file_is_locked_by_its_hash() -> None:
    for name in (deployers.PROGRAMS, deployers.LOCKED):
        text = (ROOT / name).read_text()
        lines = text.replace("\\\n", "").splitlines()
        wanted = [line for line in lines if line and not line.startswith("#")]
        assert wanted
        assert all("==" in line and "--hash=sha256:" in line for line in wanted), name
        assert not any(word in text for word in ("http:", "https:", "file:", "index-url", "find-links"))
