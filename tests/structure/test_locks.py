"""What is installed is locked with hashes, and the bill of materials names it: `make lock` writes both."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "packaging" / "locks"
EXTRAS = ("top", "kubernetes", "otlp")


def locked(name: str) -> dict[str, str]:
    """The packages of a lock and their versions. Fails where one has no hash."""
    found = {}
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = re.match(r"([a-z0-9-]+)==([^ ;]+)", line)
            assert match is not None, f"{name}: {line[:60]} is not pinned"
            assert "--hash=sha256:" in line, f"{name}: {match[1]} has no hash"
            found[match[1]] = match[2]
    return found


def named(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9-]+", requirement)
    assert match is not None
    return match[0].lower()


def test_every_requirement_is_locked() -> None:
    wanted: dict[str, set[str]] = {}
    for requirement in metadata.requires("coldplate") or []:
        extra = re.search(r"extra == .([a-z]+)", requirement)
        wanted.setdefault(extra[1] if extra else "base", set()).add(named(requirement))
    for name in ("base", *EXTRAS):
        assert wanted[name] <= locked(name).keys(), f"{name}: run `make lock`"


def test_the_locks_agree_with_one_another() -> None:
    base = locked("base")
    for extra in EXTRAS:
        assert base.items() <= locked(extra).items(), f"{extra}: run `make lock`"
    assert locked("build").keys() == {"setuptools"}


def test_the_bill_of_materials_has_each_package_with_version_and_licence() -> None:
    bill = json.loads((ROOT / "packaging" / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "coldplate"
    components = {each["name"].lower().replace("_", "-"): each for each in bill["components"]}
    assert {name: each["version"] for name, each in components.items()} == {
        **locked("top"), **locked("kubernetes")
    }, "run `make lock`"  # fmt: skip
    for name, each in components.items():
        assert each.get("licenses"), f"{name} says nothing of its licence"


def test_an_extra_without_a_lock_is_refused_by_the_installation() -> None:
    text = (ROOT / "packaging" / "install.sh").read_text()
    assert f"there are {', '.join(EXTRAS[:-1])} and {EXTRAS[-1]}" in text
    assert {path.stem for path in LOCKS.glob("*.txt")} == {"base", "build", *EXTRAS}
