"""Packages are brought into a folder by apt itself, which is not changed by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive, whole
from tests.lab.bring.conftest import Mirror
from tests.lab.bring.shortage import ShortageError


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "a folder" / "apt")


def names(files: list[Path]) -> set[str]:
    return {each.name for each in files}


def test_a_package_comes_alone_or_with_all_that_it_needs(mirror: Mirror, archive: Archive) -> None:
    assert names(archive.fetch("hello")) == {"hello_1.0_all.deb"}
    assert names(archive.fetch("hello", dependencies=True)) == {"hello_1.0_all.deb", "world_2.0_all.deb"}


def test_what_is_there_already_is_named_as_well(mirror: Mirror, archive: Archive) -> None:
    assert archive.fetch("hello") == archive.fetch("hello") == Archive(archive.folder).fetch("hello")


def test_the_newest_version_counts(mirror: Mirror, archive: Archive) -> None:
    mirror.add("hello", "1.1", needs="world")
    assert names(archive.fetch("hello")) == {"hello_1.1_all.deb"}


def test_a_source_in_the_newer_form_is_read(
    mirror: Mirror, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "sources.list"
    address = sources.read_text().split()[2]
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "own.sources").write_text(f"Types: deb\nURIs: {address}\nSuites: ./\nTrusted: yes\n")
    sources.unlink()
    settings = tmp_path / "apt.conf"
    settings.write_text(settings.read_text().replace('sourceparts "/dev/null"', f'sourceparts "{tmp_path}/parts"'))
    assert names(archive.fetch("hello")) == {"hello_1.0_all.deb"}


def test_a_package_that_is_nowhere_is_reported_in_apts_words(mirror: Mirror, archive: Archive) -> None:
    with pytest.raises(ShortageError, match="Unable to locate package nosuch"):
        archive.fetch("hello", "nosuch")


def test_one_source_that_is_away_leaves_the_others(
    mirror: Mirror, archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "sources.list").open("a") as file:
        file.write("deb [trusted=yes] http://127.0.0.9:9 ./\n")
    assert names(archive.fetch("hello")) == {"hello_1.0_all.deb"}
    assert "127.0.0.9:9" in capsys.readouterr().err


def test_a_file_that_is_not_what_was_listed_is_refused(mirror: Mirror, archive: Archive) -> None:
    package = mirror.files / "hello_1.0_all.deb"
    package.write_bytes(package.read_bytes()[:-1] + b"!")
    with pytest.raises(ShortageError):
        archive.fetch("hello")


def test_a_download_that_was_cut_short_is_repeated(mirror: Mirror, archive: Archive) -> None:
    (file,) = archive.fetch("hello")
    good = file.read_bytes()
    file.write_bytes(good[:100])
    assert [each.read_bytes() for each in Archive(archive.folder).fetch("hello")] == [good]


def test_hooks_are_not_run_and_all_is_in_the_folder(mirror: Mirror, archive: Archive, tmp_path: Path) -> None:
    before = {each.name for each in tmp_path.iterdir()}
    archive.fetch("hello")
    assert {each.name for each in tmp_path.iterdir()} == before | {"a folder"}
    archive.tidy()
    assert list((tmp_path / "a folder").iterdir()) == []


def test_unpacking_gives_a_complete_folder_or_none(mirror: Mirror, archive: Archive, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    files = archive.fetch("hello", dependencies=True)
    archive.unpack(files, tree)
    assert os.access(tree / "usr/bin/hello", os.X_OK)
    assert whole(tree)
    archive.unpack(files, tree, without=frozenset({"world"}))
    assert whole(tree)
    assert not (tree / "usr/lib/world").exists()


def test_a_package_that_cannot_be_unpacked_leaves_what_was_there_and_is_forgotten(
    mirror: Mirror, archive: Archive, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (file,) = archive.fetch("hello")
    archive.unpack([file], tree)
    file.write_bytes(b"no package")
    with pytest.raises(ShortageError, match=r"hello_1\.0_all\.deb"):
        archive.unpack([file], tree)
    assert whole(tree)
    assert not file.exists()


@pytest.mark.parametrize("damage", ["gone", "cut short", "never finished"])
def test_a_damaged_tree_is_known_as_one(mirror: Mirror, archive: Archive, tmp_path: Path, damage: str) -> None:
    tree = tmp_path / "tree"
    archive.unpack(archive.fetch("hello"), tree)
    program = tree / "usr/bin/hello"
    if damage == "gone":
        program.unlink()
    elif damage == "cut short":
        program.write_text("#!")
    else:
        (tree / ".held").unlink()
    assert not whole(tree)


def test_a_machine_without_apt_is_told_so(tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShortageError, match="no apt"):
        archive.fetch("hello")
