"""What a file takes of a process's memory: a module of its own, for the process that measures to load nothing else."""

from pathlib import Path

from agent.backends.synthetic import ScenarioError, load_scenario
from agent.config import reading as config
from agent.config.schema import ConfigError
from agent.rack.finder import read_file
from alerts import rulefile
from alerts.rulefile import RuleFileError

Figures = tuple[object, int]


def used() -> int:
    """Bytes: not what getrusage tells, which begins with what the parent had."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def use(kind: str, path: Path) -> object:
    if kind == "config":
        config.load(path)
    elif kind == "rules":
        return rulefile.load(path).rule_count
    elif kind == "peers":
        read_file(path)
    else:
        load_scenario(str(path))
    return None


def outcome(kind: str, path: Path) -> object:
    try:
        return use(kind, path)
    except (ConfigError, RuleFileError, ScenarioError, ValueError) as error:
        return str(error)[:2000]


def figures(kind: str, path: Path, small: Path) -> Figures:
    """What is said of a file, and the memory that it took, in bytes."""
    outcome(kind, small)
    before = used()
    return outcome(kind, path), used() - before
