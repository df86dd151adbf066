"""Reads scenario files, strictly: a mistake is an error that names file, line, key path and the nearest valid word."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from agent.backends.synthetic.activity import TRAFFIC
from agent.backends.synthetic.coolant_loop import OF_COOLANT
from agent.backends.synthetic.machines import TOPOLOGIES, MachineType
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, ScenarioJob, ScenarioPhase, Window
from agent.backends.synthetic.scenario_schema import (
    FAULTS,
    PHASES,
    Parameter,
    Value,
    choice,
    duration,
    ratio,
    span,
    text,
)
from agent.lib import textfile, yamltree
from agent.lib.typed_yaml import YamlFile, key_path
from agent.lib.wording import meant, shown

SHIPPED = Path(__file__).parent / "scenarios"
MOST_ITEMS = 500
"""Most jobs, phases of a job, and faults."""
PARTS: Mapping[str, Callable[[MachineType], Sequence[str]]] = {
    "optic": lambda machine: machine.optics,
    "detector": lambda machine: (*machine.leak_detectors, *(machine.rack.leak_detectors if machine.rack else ())),
    "pump": lambda machine: machine.rack.pumps if machine.rack else (),
    "feed": lambda machine: machine.rack.feeds if machine.rack else (),
    "shelf": lambda machine: [str(number + 1) for number in range(machine.rack.shelves)] if machine.rack else (),
}
"""The parts that only some machines have, by the key that names one."""
_GPUS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_OF_JOB = {
    "id": Parameter(text, None),
    "name": Parameter(text, ""),
    "user": Parameter(text, ""),
    "scheduler": Parameter(text, "slurm"),
    "account": Parameter(text, ""),
    "partition": Parameter(text, ""),
    "parallelism": Parameter(choice(TRAFFIC), "data"),
    "memory": Parameter(ratio, 0.8),
}
"""The keys of a job whose values are taken as they are."""
SHORTEST_REPEAT_SECONDS = 10.0
"""Least seconds. A fault that changes what a GPU does costs a step of the model at each edge."""


class ScenarioError(Exception):
    """A scenario cannot be read; the text names the file, the key and the remedy."""


def load_scenario(name_or_path: str, machine: MachineType | None = None, folder: Path = Path()) -> Scenario:
    """Return a shipped scenario by its name, or a file: anything with a slash, or that ends in .yaml or .yml.

    A relative path begins at `folder`.

    With `machine` it is played on that one, and not on its own. Raises ScenarioError.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = folder / name_or_path
    else:
        if name_or_path not in shipped_names():
            hint = meant(name_or_path, shipped_names())
            raise ScenarioError(f"there is no shipped scenario {shown(name_or_path)}{hint}")
        path = SHIPPED / f"{name_or_path}.yaml"
    return ScenarioReader(parsed(path)).scenario(path.stem, machine)


def shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def parsed(path: Path) -> YamlFile:
    """Return what is in a file. Raises ScenarioError."""
    return YamlFile.read(path, textfile.SCENARIO, ScenarioError, yamltree.Bounds(depth=16))


class ScenarioReader:
    """Reads one file. All methods raise ScenarioError."""

    def __init__(self, file: YamlFile) -> None:
        self.file = file
        self.fail = file.fail

    def mapping(
        self, raw: object, path: str, allowed: Iterable[str], required: Iterable[str] = ()
    ) -> dict[str, object]:
        """Return a mapping with only known keys, and all of the required ones."""
        if not isinstance(raw, dict):
            self.fail(path, f"expected a mapping of keys, found {shown(raw)}")
        self.file.check_keys(raw, path, allowed, dict.fromkeys(required, "it"))
        return raw

    def sequence(self, raw: object, path: str) -> Sequence[object]:
        if raw is None:
            return []
        if not isinstance(raw, list):
            self.fail(path, f"expected a list, found {shown(raw)}")
        if len(raw) > MOST_ITEMS:
            self.fail(path, f"has {len(raw)} items; the limit is {MOST_ITEMS}")
        return raw

    def items(self, raw: object, path: str) -> Iterator[tuple[str, object]]:
        """Yield the items of a list, each after its own key path."""
        for number, item in enumerate(self.sequence(raw, path)):
            yield f"{path}[{number}]", item

    def value(self, keys: Mapping[str, object], key: str, path: str, parameter: Parameter) -> Value:
        if key not in keys:
            if parameter.default is None:
                self.fail(key_path(path, key), "is missing")
            return parameter.default
        try:
            return parameter.parse(keys[key])
        except ValueError as error:
            self.fail(key_path(path, key), str(error))

    def number(self, keys: Mapping[str, object], key: str, path: str, parameter: Parameter) -> float:
        return float(self.value(keys, key, path, parameter))

    def optional(self, keys: Mapping[str, object], key: str, path: str) -> float | None:
        return None if keys.get(key) is None else self.number(keys, key, path, Parameter(span, None))

    def scenario(self, name: str, machine: MachineType | None = None) -> Scenario:
        """Return the whole file, on its own machine or on another."""
        allowed = ("description", "topology", "seed", "jobs", "faults", "expect")
        keys = self.mapping(self.file.raw, "", allowed, ("description", "topology"))
        topology = str(self.value(keys, "topology", "", Parameter(choice(TOPOLOGIES), None)))
        machine = machine or TOPOLOGIES[topology]
        seed = self.seed(keys)
        expect = keys.get("expect", [])
        notes = [expect] if isinstance(expect, str) else self.sequence(expect, "expect")
        jobs = tuple(self.job(item, path, machine) for path, item in self.items(keys.get("jobs"), "jobs"))
        self.apart(jobs)
        return Scenario(
            name,
            " ".join(str(self.value(keys, "description", "", Parameter(text, None))).split()),
            machine,
            seed,
            jobs,
            tuple(self.fault(item, path, machine) for path, item in self.items(keys.get("faults"), "faults")),
            tuple(" ".join(str(n).split()) for n in notes),
        )

    def seed(self, keys: Mapping[str, object]) -> int:
        seed = keys.get("seed", 1)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            self.fail("seed", f"expected a whole number from 0, found {shown(seed)}")
        return seed

    def job(self, raw: object, path: str, machine: MachineType) -> ScenarioJob:
        keys = self.mapping(raw, path, ("gpus", "phases", "start", "end", *_OF_JOB), ("id", "gpus", "phases"))
        start = self.number(keys, "start", path, Parameter(duration, 0.0))
        end = self.optional(keys, "end", path)
        if end is not None and end <= start:
            self.fail(f"{path}.end", "comes before the job's start")
        phases, last = self._phases(keys["phases"], f"{path}.phases", start)
        end = min((e for e in (end, last) if e is not None), default=None)
        values: dict[str, Any] = {key: self.value(keys, key, path, parameter) for key, parameter in _OF_JOB.items()}
        gpus = self.gpus(keys["gpus"], f"{path}.gpus", machine)
        window = Window(start, None if end is None else end - start)
        return ScenarioJob(gpus=gpus, phases=phases, window=window, **values)

    def _phases(self, raw: object, path: str, start: float) -> tuple[tuple[ScenarioPhase, ...], float | None]:
        """Return the phases one after the other, and when the last one ends (None: never)."""
        items, phases, at = self.sequence(raw, path), [], start
        if not items:
            self.fail(path, "a job needs at least one phase")
        for number, item in enumerate(items):
            here = f"{path}[{number}]"
            kind = self.kind(item, here, PHASES)
            parameters = PHASES[kind].parameters
            keys = self.mapping(item, here, ("kind", "duration", *parameters))
            length = self.optional(keys, "duration", here)
            if length is None and number < len(items) - 1:
                self.fail(f"{here}.duration", "is missing; only the last phase may have no duration")
            values = {name: self.number(keys, name, here, parameter) for name, parameter in parameters.items()}
            phases.append(ScenarioPhase(kind, Window(at, length), values))
            if length is None:
                return tuple(phases), None
            at += length
        return tuple(phases), at

    def kind(self, item: object, path: str, allowed: Iterable[str]) -> str:
        if not isinstance(item, dict):
            self.fail(path, f"expected a mapping of keys, found {shown(item)}")
        return str(self.value(item, "kind", path, Parameter(choice(allowed), None)))

    def fault(self, raw: object, path: str, machine: MachineType) -> ScenarioFault:
        name = self.kind(raw, path, FAULTS)
        kind = FAULTS[name]
        targets = [word for target in kind.targets for word in target.split("|")]
        keys = self.mapping(raw, path, ("kind", "at", "duration", "repeat", *targets, *kind.parameters))
        for target in kind.targets:
            present = [word for word in target.split("|") if word in keys]
            if len(present) != 1:
                self.fail(key_path(path, target.replace("|", " or ")), "is missing" if not present else "name only one")
        if name in ("coolant-warm", "coolant-slow") and not machine.connectors:
            self.fail(f"{path}.kind", f"{machine.name} is not cooled by water")
        if name in ("reservoir-low", "humid-air") and not machine.rack:
            self.fail(f"{path}.kind", f"{machine.name} has no distribution unit")
        part = next((word for word in PARTS if word in keys), "")
        values = {key: self.value(keys, key, path, parameter) for key, parameter in kind.parameters.items()}
        if name == "checkpoint-stall" and float(values["takes"]) >= float(values["every"]):
            self.fail(f"{path}.takes", "must be shorter than `every`")
        return ScenarioFault(
            name,
            self.window(keys, path),
            self._gpus_of(name, keys, path, machine),
            str(self.value(keys, "port", path, Parameter(choice(machine.ports), None))) if "port" in keys else "",
            self._link(keys, path, machine) if "link" in keys else 0,
            {key: value for key, value in values.items() if isinstance(value, float)},
            {key: value for key, value in values.items() if isinstance(value, str)},
            self._part(part, keys, path, machine) if part else "",
        )

    def _gpus_of(self, kind: str, keys: Mapping[str, object], path: str, machine: MachineType) -> tuple[int, ...]:
        """Return the GPUs that a fault is done to; what befalls the coolant reaches all of them."""
        if kind in OF_COOLANT:
            return self.gpus("all", path, machine)
        return self.gpus(keys["gpu"], f"{path}.gpu", machine) if "gpu" in keys else ()

    def window(self, keys: Mapping[str, object], path: str) -> Window:
        """Return when something holds: its keys `at`, `duration` and `repeat`."""
        window = Window(
            self.number(keys, "at", path, Parameter(duration, 0.0)),
            self.optional(keys, "duration", path),
            self.optional(keys, "repeat", path),
        )
        if window.repeat is not None:
            if window.repeat < SHORTEST_REPEAT_SECONDS:
                self.fail(f"{path}.repeat", f"must be at least {SHORTEST_REPEAT_SECONDS:g}s")
            if window.duration is not None and window.duration >= window.repeat:
                self.fail(f"{path}.duration", "must be shorter than `repeat`")
        return window

    def _part(self, key: str, keys: Mapping[str, object], path: str, machine: MachineType) -> str:
        """Return the name of a part that only some machines have."""
        parts = PARTS[key](machine)
        if not parts:
            self.fail(f"{path}.{key}", f"{machine.name} has none")
        return str(self.value(keys, key, path, Parameter(choice(parts), None)))

    def _link(self, keys: Mapping[str, object], path: str, machine: MachineType) -> int:
        link = keys["link"]
        if isinstance(link, bool) or not isinstance(link, int) or not 0 <= link < machine.nvlinks:
            self.fail(f"{path}.link", f"{machine.name} has NVLinks 0 to {machine.nvlinks - 1}, found {shown(link)}")
        return link

    def gpus(self, raw: object, path: str, machine: MachineType) -> tuple[int, ...]:
        """Return GPU numbers: one, a list, a range such as 0-3, or all."""
        if raw == "all":
            return tuple(range(machine.gpus))
        gpus: list[int] = []
        for part in raw if isinstance(raw, list) else [raw]:
            match = _GPUS.fullmatch(str(part))
            if isinstance(part, bool) or match is None:
                problem = "expected a GPU number, a list, a range such as 0-3, or all"
                self.fail(path, f"{problem}; found {shown(part)}")
            first, last = int(match[1]), int(match[2] or match[1])
            if max(first, last) >= machine.gpus:
                gpus = []
                break
            gpus += range(first, last + 1)
        if not gpus or len(set(gpus)) < len(gpus):
            self.fail(path, f"{machine.name} has GPUs 0 to {machine.gpus - 1}, each named once; found {shown(raw)}")
        return tuple(gpus)

    def apart(self, jobs: Sequence[ScenarioJob], path: str = "") -> None:
        """Check that no two jobs hold a GPU at the same time: the model has no time-slicing.

        `path` is that of the last job, if the jobs are not the list `jobs` of a file.
        """
        for number, job in enumerate(jobs):
            for other, before in enumerate(jobs[:number]):
                shared = set(job.gpus) & set(before.gpus)
                if shared and job.window.at < _end(before) and before.window.at < _end(job):
                    where = f"{path or f'jobs[{number}]'}.gpus"
                    whose = f"job {before.id}" if path else f"jobs[{other}]"
                    self.fail(where, f"GPU {min(shared)} is held by {whose} at the same time")


def _end(job: ScenarioJob) -> float:
    return inf if job.window.duration is None else job.window.at + job.window.duration
