"""What is installed or only used is locked with hashes, and the bill of materials names it: `make lock` writes both."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "packaging" / "locks"
EXTRAS = ("top", "kubernetes", "otlp")


def pinned(path: Path) -> dict[str, str]:
    """The packages of a lock and their versions. Fails where one has no hash, or a place it was downloaded from."""
    text = path.read_text()
    assert not re.search(r"https?:|file:|index-url|find-links", text), path.name
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([\w.-]+)==([\w.]+) ( *;[^#]*?)?( +--hash=sha256:[0-9a-f]{64})+ *", line)
            assert match is not None, f"{path.name}: {line[:60]} is not of one version with its hashes"
            found[match[1]] = match[2]
    assert found, path.name
    return found


def locked(name: str) -> dict[str, str]:
    return pinned(LOCKS / f"{name}.txt")


def test_every_tool_of_make_and_the_tests_is_locked() -> None:
    """One that is added to pyproject.toml is added to the lock by `make lock`."""
    group = (ROOT / "pyproject.toml").read_text().partition("\ntools = [\n")[2].partition("\n]")[0]
    wanted = {found.lower() for found in re.findall(r'^  "([\w-]+)', group, re.MULTILINE)}
    tools, _, _ = (pinned(ROOT / "tests" / f"{name}.txt") for name in ("tools", "deployers", "helm"))
    assert wanted <= tools.keys()


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
