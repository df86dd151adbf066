"""The layers of docs/architecture.md, enforced on the imports of every module."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "exporters", "alerts", "dashboards")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

ROOF = {"agent.cli", "agent.clock", "agent.daemon", "agent.engine", "agent.assembly", "agent.once", "agent.selection",
        "agent.rules_cli", "agent.rule_advice", "agent.commandline", "agent.dashboards_cli", "agent.alerting",
        "agent.judge", "agent.keeper", "agent.peering",
        "agent.worker.__main__", "agent.systemd", "agent.vitals", "agent.reloading"}  # fmt: skip

MAIN = ROOF | {"agent.broker.__main__"}
"""Where a process begins: the broker's may read the clock, but imports no more than the rest of it."""

MAY_IMPORT = (
    # (modules, what of ours they may import); the first line that matches counts
    (r"agent\.(model|wording|yamlscan|logs|systemd|threads)", r""),
    (r"agent\.(quantities|textfile|yamlvalues)", r"agent\.wording"),
    (r"agent\.(credentials|durable)", r"agent\.textfile"),
    (r"agent\.statefiles", r"agent\.(durable|threads)"),
    (r"agent\.yamltree", r"agent\.(wording|yamlscan|yamlvalues)"),
    (r"agent|agent\.backends|agent\.worker", r""),
    (r"agent\.catalogue(\..*)?", r"agent\.model|agent\.catalogue(\..*)?"),
    (r"agent\.backends\.(protocol|relay|sysfs)", r"agent\.model"),
    (r"agent\.backends\.(?P<own>\w+)(\..*)?",
     r"agent\.(model|credentials)|FILES|BROKER|agent\.catalogue(\..*)?|agent\.backends\.(protocol|relay|sysfs)|OWN"),
    (r"agent\.broker(\..*)?", r"agent\.broker(\..*)?"),
    (r"agent\.sampler(\..*)?",
     r"agent\.(model|durable|threads)|agent\.catalogue(\..*)?|agent\.backends\.protocol|agent\.sampler(\..*)?"),
    (r"agent\.worker\.(?!__main__)\w+",
     r"agent\.model|agent\.catalogue(\..*)?|agent\.backends\.protocol|agent\.worker(\.(?!__main__)\w+)?"),
    (r"agent\.config(values|types)?", r"agent\.model|agent\.quantities|agent\.config(values|types)?|FILES"),
    (r"agent\.rack(\..*)?", r"agent\.(model|credentials|threads)|FILES|agent\.catalogue(\..*)?|agent\.rack(\..*)?"),
    (r"exporters(\..*)?", r"agent\.(model|threads)|agent\.catalogue(\..*)?|exporters(\..*)?"),
    (r"alerts(\..*)?",
     r"agent\.(model|durable|credentials|threads)|FILES|agent\.catalogue(\..*)?|alerts(\..*)?"),
    (r"dashboards(\..*)?", r"agent\.model|FILES|agent\.catalogue(\..*)?|dashboards(\..*)?"),
)  # fmt: skip

FILES = r"agent\.textfile|agent\.yamltree|agent\.wording"
"""What reads files that others write."""

BROKER = r"agent\.broker\.(asking|dcmi|variables)"
"""Its client, and its pure parts."""

FENCED = {
    "pynvml": r"agent\.backends\.nvml(\..*)?",
    "prometheus_client": r"exporters(\..*)?",
    "grafanalib": r"dashboards(\..*)?",
    "re2": r"alerts\.regex\.linear",
    "grpc": r"agent\.backends\.jobs(\..*)?",
    "subprocess": r"agent\.worker\.process",
    "yaml": r"agent\.yamltree|agent\.yamlscan|alerts\.rulewriter",
}

CLOCKS = {("time", "time"), ("time", "monotonic"), ("time", "perf_counter"), ("datetime", "now"),
          ("datetime", "utcnow"), ("date", "today"), ("time", "time_ns"), ("time", "monotonic_ns")}  # fmt: skip


def name_of(path: Path) -> str:
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def attributes(path: Path) -> Iterator[tuple[str, str, int]]:
    """Every `name.attribute` of a file, and its line."""
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr, node.lineno


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            for alias in node.names:
                inner = ROOT / Path(*module.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                found.add(f"{module}.{alias.name}" if is_module else module)
    return frozenset(found)


def allowed(name: str) -> str | None:
    """What of ours a module may import, as an expression; None where it belongs to no layer."""
    for pattern, expression in MAY_IMPORT:
        match = re.fullmatch(pattern, name)
        if match:
            own = match.groupdict().get("own")
            given = expression.replace("FILES", FILES).replace("BROKER", BROKER)
            return given.replace("OWN", rf"agent\.backends\.{own}(\..*)?") if own else given
    return None


def test_every_module_belongs_to_a_layer() -> None:
    """One that does not is to be added to the table, and to docs/architecture.md."""
    assert [name for name in map(name_of, MODULES) if name not in ROOF and allowed(name) is None] == []


def test_a_module_imports_only_what_its_layer_may() -> None:
    illegal = [
        f"{name_of(path)} imports {each}"
        for path in MODULES
        if name_of(path) not in ROOF
        for each in sorted(imports(path))
        if each.split(".")[0] in PACKAGES and not re.fullmatch(allowed(name_of(path)) or "", each)
    ]
    assert illegal == []


def test_nothing_but_the_roof_imports_the_roof() -> None:
    assert [name_of(path) for path in MODULES if name_of(path) not in ROOF and imports(path) & ROOF] == []


def test_third_party_names_stay_behind_their_fences() -> None:
    outside = [
        f"{name_of(path)} imports {library}"
        for path in MODULES
        for library in {each.split(".")[0] for each in imports(path)} & FENCED.keys()
        if not re.fullmatch(FENCED[library], name_of(path))
    ]
    assert outside == []


def test_patterns_for_re_stand_in_the_code() -> None:
    """One that comes from outside may take `re` for ever, and the whole process with it: see alerts/regex."""
    computed = [
        f"{path}:{node.lineno}"
        for path in MODULES
        if not re.fullmatch(r"alerts\.regex\.\w+", name_of(path))
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and re.fullmatch(r"re\.(?!escape$)\w+", ast.unparse(node.func))
        and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Subscript))
    ]
    assert computed == []


def test_nothing_below_the_roof_reads_a_clock() -> None:
    reading = [
        f"{path}:{line}"
        for path in MODULES
        if name_of(path) not in MAIN
        for name, attribute, line in attributes(path)
        if (name, attribute) in CLOCKS
    ]
    assert reading == []


def test_packaging_holds_no_python() -> None:
    """A package of that name would shadow the library `packaging`."""
    assert list((ROOT / "packaging").rglob("*.py")) == []


def test_the_top_level_is_what_the_readme_says() -> None:
    allowed = {"pyproject.toml", "agent", "exporters", "dashboards", "alerts", "packaging", "tests", "README.md",
               "Makefile", "LICENSE", "CHANGELOG.md", "docs", ".ci", ".gitignore"}  # fmt: skip
    assert top_level() <= allowed


def top_level() -> set[str]:
    """What belongs to the repository: what git lists, or, where there is no git, what .gitignore does not name."""
    git = shutil.which("git")
    if git is not None:
        listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode == 0 and listed.stdout:
            return {line.split("/")[0] for line in listed.stdout.splitlines()}
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    names = {path.name for path in ROOT.iterdir()} - {".git"}
    return {name for name in names if not any(fnmatch(name, pattern) for pattern in ignored)}


OWN_THREADS = {
    "agent.threads": "where all others come from",
    "agent.worker.crew": "in the device worker, which is started anew as a whole",
    "agent.worker.loop": "in the device worker",
    "agent.backends.nvml.source": "in the device worker",
    "agent.backends.nvml.errands": "in the device worker; ends with the call that it makes",
    "agent.backends.relay": "another reader takes over from one that hangs or is gone",
    "agent.backends.jobs.users": "ends with what it was asked, and is made anew for the next question",
    "agent.backends.power.pacing": "ends with what it was asked, and is made anew for the next question",
}
"""Modules that start threads by themselves, and why that is right."""


def test_a_long_lived_thread_is_one_that_is_kept() -> None:
    """One that is started in another way dies in silence with its first exception: use agent.threads.Threads."""
    started = [
        f"{path}:{line}"
        for path in MODULES
        if name_of(path) not in OWN_THREADS
        for name, attribute, line in attributes(path)
        if (name, attribute) == ("threading", "Thread")
    ]
    assert started == []
