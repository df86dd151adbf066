"""Has the idle GPUs of the node measured within a time, and says what came of it. A step that hangs is a finding."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.commands.check.deep.course import ENDS, Course
from agent.commands.check.deep.idle_gpus import divided, near_cpus
from agent.commands.check.deep.measuring_process import MeasuringProcess
from agent.commands.check.judgement import Evidence
from agent.health.deep_findings import FROM_GPU, MEMORY, PEER, PRODUCT, TO_GPU, DeepResult, DeepStep
from agent.health.seen_node import SeenNode
from agent.lib.clock import clock
from agent.lib.progress import Progress
from agent.lib.user_error import UserError
from agent.model import Gpu

HERE = Path(__file__).parent
LIBRARIES = tuple(str(HERE / name) for name in ("torch_devices.py", "cupy_devices.py"))
SIZES = {"memory": 512 * 2**20, "product": 8192, "copy": 256 * 2**20}
"""Bytes, and the edge of a matrix: several times a GPU's cache (126 MB on B200), and 1.1 GiB of its memory at most."""
EACH_SECONDS = 0.3
"""Seconds that a step measures, if there are so many; a context and its buffers take about as long again."""
STARTING_SECONDS = 15.0
"""Seconds that are set aside for loading a library."""
RESIDENT = 16 * 2**30
"""Bytes of memory of the host that whatever measures may hold; a context of each of 16 GPUs takes about 6 GiB."""
LOOK_SECONDS = 0.5
ENVIRONMENT = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class DeepOptions:
    """How the test is made: the time for all of it, and the Python that has the library, "" for whichever has it.

    `force`: GPUs that are in use are measured as well.
    """

    seconds: float
    python: str = ""
    force: bool = False


def steps_of(gpus: Sequence[Gpu]) -> list[DeepStep]:
    """What is measured: each GPU by itself, copies to the next one, and copies to the one half of them further on.

    Their number grows with the GPUs, not with their pairs, and each GPU and each half of the node is in some.
    """
    alone = [DeepStep(kind, (gpu,)) for kind in (MEMORY, PRODUCT, TO_GPU, FROM_GPU) for gpu in gpus]
    count = len(gpus)
    strides = [1, count // 2] if count > 3 else [1]
    pairs = dict.fromkeys((at, (at + stride) % count) for stride in strides for at in range(count))
    return alone + [DeepStep(PEER, (gpus[at], gpus[to])) for at, to in pairs if at != to]


def deepened(evidence: Evidence, options: DeepOptions, sysfs: Path) -> Evidence:
    """The evidence with what the active test came to. Raises UserError if the given Python cannot be started."""
    snapshot, devices = evidence.snapshot, evidence.devices
    idle, others = divided(snapshot, evidence.processes, devices, options.force)
    result = DeepResult()
    if idle:
        result = deep_test(idle, near_cpus(SeenNode(snapshot, (), devices), idle, sysfs), options, lambda: clock().mono)
    return replace(evidence, deep=replace(result, passed_over=others))


def deep_test(
    gpus: Sequence[Gpu], cpus: Mapping[Gpu, str], options: DeepOptions, now: Callable[[], float]
) -> DeepResult:
    """Measure these GPUs; `cpus` are the processors near each. Raises UserError if the given Python does not start."""
    began = now()
    until = began + options.seconds
    steps = steps_of(gpus)
    order = _order(gpus, cpus, steps, options.seconds)
    environment = {**os.environ, ENVIRONMENT: ",".join(gpu.uuid for gpu in gpus), "CUDA_MODULE_LOADING": "LAZY"}
    absent = []
    for words in _pythons(options.python):
        try:
            process = MeasuringProcess([*words, str(HERE / "measuring.py")], order, environment)
        except OSError as error:
            if options.python:
                raise UserError(f"--deep-python: {options.python}: {error.strerror}") from error
            continue
        try:
            course = _follow(process, steps, len(gpus), until, now)
        finally:
            process.end()
        if course.stage != "absent":
            return _result(course, now() - began)
        absent.append(f"{words[0]}: {course.why}")
    found = f"neither PyTorch nor CuPy can be used: {'; '.join(absent) or 'there is no Python'}"
    return DeepResult(unfinished=found, seconds=now() - began)


def _order(gpus: Sequence[Gpu], cpus: Mapping[Gpu, str], steps: Sequence[DeepStep], seconds: float) -> bytes:
    each = min(EACH_SECONDS, max(seconds - STARTING_SECONDS, 1.0) / max(len(steps), 1) / 2)
    plan = {
        "libraries": LIBRARIES, "limit": seconds + 5.0, "each": each, "cpus": [cpus.get(gpu, "") for gpu in gpus],
        "sizes": SIZES, "steps": [[step.kind, *(gpus.index(gpu) for gpu in step.gpus)] for step in steps],
    }  # fmt: skip
    return json.dumps(plan).encode()


def _pythons(given: str) -> list[list[str]]:
    """Ours and the machine's, isolated from the folder and the environment of whoever starts us; a given one is not."""
    if given:
        return [[shutil.which(given) or given]]
    found = [sys.executable, shutil.which("python3") or ""]
    return [[python, "-I"] for python in dict.fromkeys(found) if python]


def _follow(
    process: MeasuringProcess, steps: Sequence[DeepStep], gpus: int, until: float, now: Callable[[], float]
) -> Course:
    course = Course(steps, gpus, now())
    with Progress("measuring", len(steps), now, every=1) as progress:
        while process.is_open and now() < until and course.stage not in ENDS:
            for line in process.lines(min(LOOK_SECONDS, until - now())):
                if course.take(line, now()):
                    progress.step(course.doing)
            if course.hangs(now()) or process.resident() > RESIDENT:
                break
    if course.stage in ENDS:
        return course
    if course.hangs(now()):
        course.broken = f"{course.doing()}: no end of it after {now() - course.since:.0f} s"
    elif process.resident() > RESIDENT:
        course.why = f"{course.doing()}: it took more than {RESIDENT >> 30} GiB of memory and was ended"
    elif now() >= until:
        left = len(steps) - len(course.values)
        course.why = f"the time is up during {course.doing()}: {left} of {len(steps)} steps were not measured"
    else:
        course.why = f"what measures ended by itself during {course.doing()}"
    return course


def _result(course: Course, seconds: float) -> DeepResult:
    measured = {course.steps[number]: value for number, value in course.values.items()}
    return DeepResult(course.library, course.number, measured, {}, course.broken, course.why, seconds)
