"""What is installed, the units that start it, and the locked dependencies with their sums."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from agent.backends.host.kernel import CPU_MODES, PRESSURE
from agent.backends.jobs.kubelet import SOCKETS
from agent.backends.jobs.pods import POD_LOGS as PODS
from agent.broker.asking import SOCKET
from agent.catalogue import ROWS
from agent.catalogue.bindings import Field
from agent.catalogue.gpu import EVENT_REASONS
from agent.model import Metric
from tests.each import for_each
from tests.servers import need

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
EXPOSURE = {"coldplate.service": 1.6, "coldplate-broker.service": 1.6, "coldplate-kubelet.service": 1.0}
"""The most that `systemd-analyze security` may find."""


EXTRAS = {"dashboards": "grafanalib", "kubernetes": "grpc", "top": "rich"}
"""The module that each extra brings."""


def test_every_extra_is_imported_and_none_is_named_as_a_package() -> None:
    section = (
        (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    )
    assert set(re.findall(r"^(\w+) = \[", section, re.MULTILINE)) - {"bench"} == set(EXTRAS)
    code = [
        path.read_text()
        for name in ("agent", "alerts", "dashboards", "exporters")
        for path in (ROOT / name).rglob("*.py")
    ]
    for module in EXTRAS.values():
        assert any(re.search(rf"^\s*(import|from) {module}\b", text, re.MULTILINE) for text in code), module
    texts = [path for pattern in ("*.md", "docs/**/*.md", "agent/**/*.py") for path in ROOT.glob(pattern)]
    assert not [path.name for path in texts if re.search(r"coldplate\[\w+\]", path.read_text())]


def test_the_wheel_holds_exactly_the_four_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "docs")
    )
    build = "import sys, setuptools.build_meta as build; build.build_wheel(sys.argv[1])"
    built = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True, check=False
    )
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
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "alerts").glob("*.yml")}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "alerts" / "rules").glob("*.yml")}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "alerts" / "server").iterdir()}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "alerts" / "runbooks" / "html").glob("*.html")}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "dashboards" / "generated").glob("*.json")}
    assert held == expected


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units as they are installed, with programs where they look for them."""
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    for name in ("coldplate", "python"):
        (prefix / "bin" / name).symlink_to(sys.executable)
    made = []
    for unit in sorted(UNITS.glob("*.s*")):
        made.append(tmp_path / unit.name)
        made[-1].write_text(runnable(unit.read_text().replace("/opt/coldplate", str(prefix))))
    return made


def runnable(unit: str) -> str:
    """The unit with programs that this machine has: it is not this one that runs it."""
    return re.sub(
        r"(?m)^(Exec\w+=)(/\S+)", lambda line: line[0] if Path(line[2]).exists() else f"{line[1]}/bin/sh", unit
    )


def test_systemd_finds_nothing_wrong_with_the_units(units: list[Path]) -> None:
    """It cannot see whether they start, nor what they see then: `make test-systemd` does."""
    command = [need("systemd-analyze"), "verify", *map(str, units)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (len(units), verified.returncode, verified.stdout + verified.stderr) == (5, 0, "")


@pytest.mark.parametrize(("unit", "most"), EXPOSURE.items())
def test_a_unit_is_confined(unit: str, most: float) -> None:
    report = subprocess.run(
        [need("systemd-analyze"), "security", "--offline=true", "--no-pager", str(UNITS / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    exposure = re.search(rf"Overall exposure level for {re.escape(unit)}: ([\d.]+)", report.stdout)
    assert exposure is not None, report.stdout + report.stderr
    assert float(exposure[1]) <= most


def lines(unit: str) -> set[str]:
    return set((UNITS / unit).read_text().splitlines())


def test_units_restart_for_ever_and_only_the_broker_has_privileges() -> None:
    """DevicePolicy=closed refuses what StandardInput= names: the unit ends with 208/STDIN, and verify is silent."""
    assert {"Restart=always", "StartLimitIntervalSec=0", "OOMPolicy=continue"} <= lines("coldplate.service")
    held = lines("coldplate.service")
    for path in (line.partition("file:")[2] for line in held if line.startswith("StandardInput=file:/dev/")):
        assert any(line.startswith(f"DeviceAllow={path} ") for line in held)
    assert "CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH" in lines("coldplate-broker.service")
    for unit in ("coldplate.service", "coldplate-kubelet.service"):
        assert {"CapabilityBoundingSet=", "AmbientCapabilities="} <= lines(unit)


def test_sockets_are_where_the_agent_looks_and_only_for_its_user() -> None:
    assert {f"ListenSequentialPacket={SOCKET}", "SocketUser=coldplate", "SocketMode=0600"} <= lines(
        "coldplate-broker.socket"
    )
    assert {f"ListenStream={SOCKETS[1]}", "SocketUser=coldplate", "SocketMode=0600"} <= lines(
        "coldplate-kubelet.socket"
    )
    assert SOCKETS[0] in (UNITS / "coldplate-kubelet.service").read_text()


def test_the_rules_of_packages_name_what_the_agent_reads() -> None:
    rule = (UNITS.parent / "udev" / "70-coldplate.rules").read_text()
    assert 'SUBSYSTEM=="powercap", KERNEL=="intel-rapl:*"' in rule
    assert not re.search(r"chmod [0-7]*[1-7] ", rule), "readable for the world"
    assert f"a+ {PODS} - - - - group:coldplate:r--" in (UNITS.parent / "tmpfiles.d" / "coldplate.conf").read_text()


LOCKS = ROOT / "packaging" / "locks"
LOCKED_EXTRAS = ("top", "kubernetes")


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
    tools, _ = (pinned(ROOT / "tests" / f"{name}.txt") for name in ("tools", "helm"))
    assert wanted <= tools.keys()


def named(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9-]+", requirement)
    assert match is not None
    return match[0].lower()


def test_every_requirement_is_locked_and_the_locks_agree_with_one_another() -> None:
    wanted: dict[str, set[str]] = {}
    for requirement in metadata.requires("coldplate") or []:
        extra = re.search(r"extra == .([a-z]+)", requirement)
        wanted.setdefault(extra[1] if extra else "base", set()).add(named(requirement))
    for name in ("base", *LOCKED_EXTRAS):
        assert wanted[name] <= locked(name).keys(), f"{name}: run `make lock`"
    base = locked("base")
    for name in LOCKED_EXTRAS:
        assert base.items() <= locked(name).items(), f"{name}: run `make lock`"
    assert locked("build").keys() == {"setuptools"}


def test_the_bill_of_materials_has_each_package_with_version_and_licence() -> None:
    bill = json.loads((ROOT / "packaging" / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "coldplate"
    components = {each["name"].lower().replace("_", "-"): each for each in bill["components"]}
    assert {name: each["version"] for name, each in components.items()} == {**locked("top"), **locked("kubernetes")}, (
        "run `make lock`"
    )
    for name, each in components.items():
        assert each.get("licenses"), f"{name} says nothing of its licence"


def test_an_extra_without_a_lock_is_refused_by_the_installation() -> None:
    text = (ROOT / "packaging" / "install.sh").read_text()
    assert f"there are {', '.join(LOCKED_EXTRAS[:-1])} and {LOCKED_EXTRAS[-1]}" in text
    assert {path.stem for path in LOCKS.glob("*.txt")} == {"base", "build", *LOCKED_EXTRAS}


CONTAINED = {
    # NVML fields: a whole, and what is counted in it, too (NVML API reference; PCIe Base Specification, AER)
    5: (3,),
    6: (4,),
    173: (175, 176, 178),
    176: (182,),
    179: (181,),
    183: (175,),
    75: (269, 270),
    80: (74, 75, 269, 270, 271),
    81: (74, 75, 269, 270, 271),
    208: (206, 207, 209, 210),
    215: (213, 214),
    221: (219, 208),
    219: (208,),
}
REASONS_CONTAINED = {0x8: (0x40, 0x80)}
WORDS = {"total", "all", "any", "sum", "both", "overall", "aggregate", "thermal", "hw_slowdown"}
"""Label values that are, or in the drivers' words were, the total of others."""


def label_values(row: Metric) -> list[str]:
    if not row.labels:
        return []  # a call's labels may name the member of its answer
    return [value for binding in row.origin for value in getattr(binding, "labels", ())]


@for_each("row", ROWS)
def test_no_family_has_a_whole_beside_its_parts(row: Metric) -> None:
    fields = {binding.id for binding in row.origin if isinstance(binding, Field)}
    beside = {whole: sorted(fields.intersection(parts)) for whole, parts in CONTAINED.items() if whole in fields}
    assert not {whole: parts for whole, parts in beside.items() if parts}
    assert not WORDS.intersection(label_values(row))
    assert "scope" not in row.labels


def test_no_throttle_reason_and_no_figure_of_the_kernel_stands_for_others() -> None:
    bits = {bit for bit, _ in EVENT_REASONS}
    assert not [whole for whole, parts in REASONS_CONTAINED.items() if whole in bits and bits.intersection(parts)]
    assert not {"guest", "guest_nice"}.intersection(CPU_MODES)  # in user and nice
    assert PRESSURE["some"] is not PRESSURE["full"]  # a time in which all waited is one in which some did
