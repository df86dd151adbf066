"""The wheels of a package: fetched for each Python with the locks' hashes, and kept once where they are the same."""

from pathlib import Path

from tests.lab.bring.environment import Environment
from tests.lab.bring.wheels import BUILD, PROGRAM, PYTHONS, Wheelhouse


class FakePip(Environment):
    """Writes what pip would bring: a wheel for all, one for each Python, or what the build needs."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def pip(self, command: str, *arguments: str) -> list[str]:
        self.asked.append((command, *arguments))
        folder = Path(arguments[arguments.index("--dest") + 1])
        folder.mkdir(parents=True)
        for name in ("shared-1-py3-none-any.whl", f"compiled-1-cp{folder.name.replace('.', '')}.whl"):
            (folder / name).write_text(name)
        return []


def test_each_python_has_its_own_and_what_all_have_is_kept_once(tmp_path: Path) -> None:
    for lock in (PROGRAM, BUILD):
        (tmp_path / lock).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lock).write_text("shared==1 --hash=sha256:00\n")
    pip = FakePip()
    place = Wheelhouse(tmp_path, tmp_path / "wheels", pip).provide("aarch64")
    held = {str(each.relative_to(place)) for each in place.rglob("*.whl")}
    own = {f"{each}/compiled-1-cp{each.replace('.', '')}.whl" for each in PYTHONS}
    building = {"build/shared-1-py3-none-any.whl", "build/compiled-1-cpbuild.whl"}
    assert held == {*own, *building, "common/shared-1-py3-none-any.whl"}
    assert all("--require-hashes" in each and "--only-binary=:all:" in each for each in pip.asked)
    systems = {each for asked in pip.asked for each in asked if each.startswith("manylinux")}
    assert all(each.endswith("_aarch64") for each in systems)
