"""What holds of every module: layers (docs/dev/architecture.md), names that stand for one thing, and calls that are
not made. The folders of tests are those of the code: who changes a file finds its tests by its name.

Names are unique because files are listed in profiles and tracebacks by their last part, and classes without their
module.
"""

import ast
import functools
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "exporters", "alerts", "dashboards")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

EVERYTHING = "everything"
AGENT_ITSELF = {"agent", "agent.backends", "exporters", "alerts", "dashboards"}
"""Packages that hold others: their own files have nothing in them but what the package is."""
ROOF = ("agent.daemon", "agent.wiring", "agent.commands", "agent.cli")
CLOCKWORK = (*ROOF, "agent.worker.__main__", "agent.broker.__main__", "agent.lib.clock")
"""What may read the clock: the top-level packages, and where a process begins."""


def layers() -> list[tuple[str, str]]:
    """Return the table of docs/dev/architecture.md: module or folder, `*` for any name; what it may import."""
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+`) \|(.*)\|$", section, re.MULTILINE)
    return [(name, allowed.strip()) for names, allowed in rows for name in re.findall(r"`(.+?)`", names)]


LAYERS = layers()


FENCED = {
    "pynvml": r"agent\.backends\.nvml(\..*)?",
    "prometheus_client": r"exporters(\..*)?",
    "grafanalib": r"dashboards(\..*)?",
    "bcrypt": r"exporters\.protection\.passwords",
    "re2": r"alerts\.regex\.linear",
    "grpc": r"agent\.backends\.jobs(\..*)?",
    "subprocess": r"agent\.worker\.worker_process",
    "rich": r"agent\.(terminal|commands\.top)(\..*)?",
    "yaml": r"agent\.lib\.yamltree|alerts\.server_files",
}

CLOCKS = r"time\.(time|monotonic|perf_counter|time_ns|monotonic_ns)|datetime\.(now|utcnow)|date\.today"


def name_of(path: Path) -> str:
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


@functools.cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module(path)))


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


def is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def layer(module: str) -> tuple[str, str] | None:
    for place, allowed in LAYERS:
        parts = module.split(".")[: place.count(".") + 1]
        if fnmatch(".".join(parts), place):
            return ".".join(parts), allowed
    return None


def may_import(module: str, other: str) -> bool:
    found = layer(module)
    if found is None:
        return False
    own, allowed = found
    if other in AGENT_ITSELF:
        return True
    return allowed == EVERYTHING or any(is_in(other, place) for place in (own, *re.findall(r"`(.+?)`", allowed)))


def test_the_table_of_the_document_is_read() -> None:
    assert len(LAYERS) > 15
    assert not may_import("agent.backends.nvml.nvml_source", "agent.backends.host.host_backend")
    assert may_import("agent.backends.nvml.nvml_source", "agent.backends.nvml.pynvml_driver")
    assert not may_import("alerts.lifecycle", "alerts.notify.dispatch")
    assert not may_import("agent.lib.threads", "agent.model")


def test_every_module_belongs_to_a_layer_and_imports_only_what_that_may() -> None:
    """One that does not is to be added to the table of docs/dev/architecture.md."""
    assert [name for name in map(name_of, MODULES) if name not in AGENT_ITSELF and layer(name) is None] == []
    assert [name for name in AGENT_ITSELF if ours(name)] == []
    illegal = [
        f"{name_of(path)} imports {each}"
        for path in MODULES
        for each in sorted(imports(path))
        if each.split(".")[0] in PACKAGES and not may_import(name_of(path), each)
    ]
    assert illegal == []


def ours(name: str) -> set[str]:
    path = ROOT / Path(*name.split(".")) / "__init__.py"
    return {each for each in imports(path) if each.split(".")[0] in PACKAGES}


def test_no_layer_and_no_file_needs_one_that_needs_it() -> None:
    """Not for types either: who names what names it belongs in a third file, or asks for it by a Protocol."""
    needs: dict[str, set[str]] = {}
    for path in MODULES:
        own = layer(name_of(path))
        others = {found[0] for each in imports(path) if each not in AGENT_ITSELF and (found := layer(each))}
        if own is not None:
            needs.setdefault(own[0], set()).update(others - {own[0]})
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the circle
    assert [
        f"{own} needs {each}" for own, all_of in needs.items() if own not in ROOF for each in all_of & {*ROOF}
    ] == []
    files = {name_of(path): path for path in MODULES if path.name != "__init__.py"}
    TopologicalSorter({name: imports(path) & files.keys() for name, path in files.items()}).prepare()


def test_third_party_names_stay_behind_their_fences() -> None:
    outside = [
        f"{name_of(path)} imports {library}"
        for path in MODULES
        for library in {each.split(".")[0] for each in imports(path)} & FENCED.keys()
        if not re.fullmatch(FENCED[library], name_of(path))
    ]
    assert outside == []


def test_patterns_for_re_are_in_the_code() -> None:
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


STARTERS = {"agent.commands.record.recorded_command": "the command that a user has recorded"}
"""Modules that start a program without the module subprocess, and which one."""


def users(pattern: str, allowed: Iterable[str]) -> list[str]:
    """Where a module outside the allowed ones, and what is below them, has such a `name.attribute`."""
    return [
        f"{path}:{line}"
        for path in MODULES
        if not any(is_in(name_of(path), each) for each in allowed)
        for name, attribute, line in attributes(path)
        if re.fullmatch(pattern, f"{name}.{attribute}")
    ]


def test_the_top_level_is_what_the_readme_says_and_packaging_holds_no_python() -> None:
    """A package of that name with Python in it would shadow the library `packaging`."""
    assert list((ROOT / "packaging").rglob("*.py")) == []
    allowed = {"pyproject.toml", "agent", "exporters", "dashboards", "alerts", "packaging", "tests", "README.md",
               "Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", ".ci", ".gitignore",
               ".editorconfig", ".pre-commit-config.yaml", ".githooks", ".github"}  # fmt: skip
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
    "agent.lib.threads": "where all others come from",
    "agent.worker.reader_pool": "in the device worker, which is started anew as a whole",
    "agent.worker.loop": "in the device worker",
    "agent.backends.nvml.nvml_source": "in the device worker",
    "agent.backends.nvml.driver": "in the device worker; ends with the call that it makes",
    "agent.backends.file_reader_pool": "another reader takes over from one that hangs or is gone",
    "agent.backends.jobs.environments": "ends with what it was asked, and is made anew for the next question",
    "agent.commands.check.node_check": "ends with its answer, or with the command that does not wait for it",
    "agent.backends.polled_source": "ends with what it was asked, and is made anew for the next question",
}
"""Modules that start threads by themselves, and why that is right."""


def test_threads_and_programs_are_started_and_clocks_read_in_few_places() -> None:
    """A long-lived thread of another kind dies in silence with its first exception: use agent.lib.threads.Threads."""
    assert users(r"threading\.Thread", OWN_THREADS) == []
    assert users(r"(os|pty)\.((exec|fork|posix_spawn|spawn).*|system|popen)", STARTERS) == []
    assert users(CLOCKS, CLOCKWORK) == []


GIVEN_FILES = {"__init__.py", "__main__.py"}
"""Python's own names, one for each package or program."""


def twice(named: Iterable[tuple[str, Path]]) -> list[str]:
    places = defaultdict(list)
    for name, path in named:
        places[name].append(str(path.relative_to(ROOT)))
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_every_file_name_and_every_class_name_exists_once() -> None:
    assert twice((path.name, path) for path in MODULES if path.name not in GIVEN_FILES) == []
    classes = ((node.name, path) for path in MODULES for node in module(path).body if isinstance(node, ast.ClassDef))
    assert twice(classes) == []


def constants(body: list[ast.stmt]) -> Iterable[tuple[str, str]]:
    """The constants of a module that have a docstring, and it."""
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            for target in node.targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Name) and each.id.isupper():
                        yield each.id, str(after.value.value)


def test_a_constant_of_seconds_says_so() -> None:
    """Beside a time-out in milliseconds or a number of rounds, `PATIENCE = 30` would say nothing where it is used."""
    silent = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name, text in constants(module(path).body)
        if text.startswith("Seconds") and not name.endswith("_SECONDS")
    ]
    assert silent == []


def test_descriptors_are_waited_for_with_poll() -> None:
    """select() refuses 1024 and above, which a process has under load, or when something leaks, and never in a trial.
    Without any descriptor it is a pause."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: use select.poll or selectors"
        for path in [*MODULES, *(ROOT / "tests").rglob("*.py")]
        if "select.select" in path.read_text(encoding="utf-8")
        for call in nodes(path)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "select.select"
        if any(not isinstance(each, ast.Tuple) or each.elts for each in call.args[:3])
    ]
    assert found == []


CODE = ("agent", "alerts", "dashboards", "exporters")

KINDS = {
    "deployment": "the chart, the Ansible role and the files of a fleet",
    "fakes": "stand-ins for what a machine lacks",
    "lab": "machinery: benchmarks, drills, packages, machines; docs/dev/testing.md lists it",
    "largest": "the largest node there is",
    "parsers": "inputs that once broke a parser",
    "rulepack": "the rules that ship",
    "rule_tests": "a runner of unit tests of rules, which proves that the engine and promtool agree",
    "structure": "how the code is arranged",
}
"""Folders that test no part by itself, and what they are for."""


def parts() -> set[str]:
    found = set(CODE)
    for top in CODE:
        found |= {path.stem for path in (ROOT / top).rglob("*") if path.is_dir() or path.suffix == ".py"}
    return found - {"__init__", "__main__", "__pycache__"}


def folders() -> set[str]:
    return {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}


def test_a_folder_of_tests_has_the_name_of_what_it_tests() -> None:
    """One that tests no part by itself is to be added to KINDS, with what it is for."""
    assert folders() - parts() - KINDS.keys() == set()
    assert KINDS.keys() - folders() == set()
    assert list((ROOT / "tests").glob("test_*.py")) == []
