"""The wheels of a package: fetched for each Python with the locks' hashes, and kept once where they are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.bring.archive import ShortageError
from tests.lab.bring.environment import Environment
from tests.lab.bring.wheels import BUILD, PROGRAM, PYTHONS, Wheelhouse


class FakePip(Environment):
    """Writes what pip would bring: a wheel for all, one for each Python, or what the build needs."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.fails: list[str] = []

    def pip(self, command: str, *arguments: str) -> list[str]:
        self.asked.append((command, *arguments))
        folder = Path(arguments[arguments.index("--dest") + 1])
        folder.mkdir(parents=True)
        for name in ("shared-1-py3-none-any.whl", f"compiled-1-cp{folder.name.replace('.', '')}.whl"):
            (folder / name).write_text(name)
        return self.fails


@pytest.fixture
def pip() -> FakePip:
    return FakePip()


@pytest.fixture
def house(tmp_path: Path, pip: FakePip) -> Wheelhouse:
    for lock in (PROGRAM, BUILD):
        (tmp_path / lock).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lock).write_text("shared==1 --hash=sha256:00\n")
    return Wheelhouse(tmp_path, tmp_path / "wheels", pip)


def test_each_python_has_its_own_and_what_all_have_is_kept_once(house: Wheelhouse, pip: FakePip) -> None:
    place = house.provide("aarch64")
    held = {str(each.relative_to(place)) for each in place.rglob("*.whl")}
    own = {f"{each}/compiled-1-cp{each.replace('.', '')}.whl" for each in PYTHONS}
    building = {"build/shared-1-py3-none-any.whl", "build/compiled-1-cpbuild.whl"}
    assert held == {*own, *building, "common/shared-1-py3-none-any.whl"}
    assert all("--require-hashes" in each and "--only-binary=:all:" in each for each in pip.asked)
    systems = {each for asked in pip.asked for each in asked if each.startswith("manylinux")}
    assert all(each.endswith("_aarch64") for each in systems)


def test_they_are_fetched_once_and_again_where_a_lock_changes_or_one_is_missing(
    house: Wheelhouse, pip: FakePip, tmp_path: Path
) -> None:
    place = house.provide("x86_64")
    fetched = len(pip.asked)
    house.provide("x86_64")
    assert len(pip.asked) == fetched
    (place / "common" / "shared-1-py3-none-any.whl").unlink()
    house.provide("x86_64")
    assert len(pip.asked) == 2 * fetched
    (tmp_path / PROGRAM).write_text("shared==2 --hash=sha256:00\n")
    house.provide("x86_64")
    assert len(pip.asked) == 3 * fetched


def test_what_pip_says_is_handed_on(house: Wheelhouse, pip: FakePip) -> None:
    pip.fails = ["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"]
    with pytest.raises(ShortageError, match=r"DO NOT MATCH(?s:.*)packaging/locks/top\.txt(?s:.*)PIP_INDEX_URL"):
        house.provide("x86_64")


def test_another_machine_is_refused(house: Wheelhouse, pip: FakePip) -> None:
    with pytest.raises(ShortageError, match="'vax', only for x86_64 and aarch64"):
        house.provide("vax")
    assert pip.asked == []
