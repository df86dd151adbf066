"""The real binding over the stand-in library: what the C functions say is what the source gives.

Each case runs in a process of its own, as the device worker does: a library is loaded once for life.
"""

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent.backends.nvml.driver import NOT_SUPPORTED, DriverError
from agent.backends.nvml.pynvml_driver import PynvmlDriver
from agent.catalogue import nvml_constants
from tests.daemon.conftest import library
from tests.fakes.nvml.build import CONTROL, command

__all__ = ["library"]

ROOT = Path(__file__).parents[2]
PROLOGUE = """
import json, sys, threading, time
from agent.backends.nvml import NvmlSource
from agent.backends.protocol import AbsentError, DeviceError, SourceError
from agent.model import Instant, Lane
def now(): return Instant(time.monotonic(), time.time())
def show(sample): return {repr(r.series): r.value for r in sample.readings}
def tell(**told): print(json.dumps(told), flush=True)
def heard(): return sys.stdin.readline()
source = NvmlSource(wall=time.time, timeout=0.5)
"""

Start = Callable[..., "Child"]


class Child:
    """A Python process with the stand-in library; `ask` lets it go on and takes what it says next."""

    def __init__(self, code: str, library: Path, control: Path) -> None:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library), CONTROL: str(control)}
        environment["PYTHONPATH"] = str(ROOT)
        self.control = control
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + code],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def ask(self, *commands: str) -> dict[str, Any]:
        """Break things, wait until the library has seen it, and let the process go on."""
        assert self.process.stdin is not None
        command(self.control, *commands)
        time.sleep(0.15)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Start]:
    children: list[Child] = []

    def make(code: str, *commands: str) -> Child:
        command(tmp_path / "control", *commands)
        children.append(Child(code, library, tmp_path / "control"))
        return children[-1]

    yield make
    for child in children:
        child.end()


READ_ALL = """
channels = source.open(now())
first = channels[2].read(Lane.FAST, now())
time.sleep(0.13)
lanes = {lane.value: show(channels[2].read(lane, now())) for lane in (Lane.FAST, Lane.SLOW, Lane.COLD)}
import pynvml
h = pynvml.nvmlDeviceGetHandleByIndex(2)
field = lambda i, s=0: pynvml.nvmlDeviceGetFieldValues(h, [(i, s)])[0].value
memory = pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2)
tell(count=len(channels), lanes=lanes, facts=channels[2].identity.facts, slot=channels[2].identity.slot,
     uuid=channels[2].key, calls=first.calls,
     says=dict(power_watts=field(185).uiVal / 1000, nvlink_transmit_bytes_total=field(138, 0xFFFFFFFF).ullVal * 1024,
               temperature_celsius=pynvml.nvmlDeviceGetTemperatureV(h, 0), memory_reserved_bytes=memory.reserved,
               utilization_ratio=pynvml.nvmlDeviceGetUtilizationRates(h).gpu / 100),
     margin=pynvml.nvmlDeviceGetMarginTemperature(h))
"""


def test_the_source_gives_what_the_library_says(start: Start) -> None:
    told = start(READ_ALL, "freeze 123.25").said()
    assert told["count"] == 8
    assert told["slot"] == "0000:3b:00.0"
    assert told["uuid"] == "GPU-c01d97a7-0000-4000-8000-000000000003"
    assert dict(told["facts"])["driver_version"] == "570.124.06"
    labels = f'gpu="2",uuid="{told["uuid"]}"'
    fast, slow, cold = (told["lanes"][lane] for lane in ("fast", "slow", "cold"))
    assert {name: fast[f"coldplate_gpu_{name}{{{labels}}}"] for name in told["says"]} == told["says"]
    # The library gives metric 2 as two percent above the wave that metric 13 is thirteen above.
    active = fast[f"coldplate_gpu_sm_active_ratio{{{labels}}}"]
    assert fast[f"coldplate_gpu_fp16_active_ratio{{{labels}}}"] - active == pytest.approx(0.11)
    assert 0.02 < active < 0.22
    assert slow[f"coldplate_gpu_temperature_margin_celsius{{{labels}}}"] == told["margin"]
    assert slow[f'coldplate_nvlink_errors_total{{{labels},link="3",type="crc"}}'] == 1.0
    assert cold[f'coldplate_gpu_fabric_problem{{{labels},problem="manager_disconnected"}}'] == 0.0


def test_xids_lost_and_denied_gpus_and_a_driver_that_goes(start: Start) -> None:
    child = start(
        """
channels = source.open(now())
def read(n):
    try: return len(channels[n].read(Lane.FAST, now()).readings)
    except (DeviceError, SourceError) as error: return f"{type(error).__name__}: {error}"
def events():
    try: return [[e.device[-1:], e.code] for e in source.events(0.2)]
    except SourceError as error: return "SourceError"
tell(read=[read(n) for n in range(4)])
while heard(): tell(read=[read(n) for n in range(4)], events=events())
""",
        "count 4",
    )
    assert all(isinstance(count, int) and count > 20 for count in child.said()["read"])
    assert child.ask("count 4", "xid 2 79", "xid 0 94")["events"] == [["3", 79], ["1", 94]]
    assert child.ask("count 4", "xid 2 79", "xid 0 94")["events"] == []
    assert child.ask("count 4", "xid 2 79", "xid 0 94", "xid 1 48")["events"] == [["2", 48]]
    lost = child.ask("count 4", "lost 2")["read"]
    assert "GPU is lost" in lost[2]
    assert isinstance(lost[0], int) and isinstance(lost[3], int)
    assert isinstance(child.ask("count 4")["read"][2], int)
    unloaded = child.ask("unloaded")
    assert "SourceError" in unloaded["read"][0]
    assert unloaded["events"] == "SourceError"
    assert "versions" in child.ask("mismatch")["read"][1]


LIST_PROCESSES = """
channels = source.open(now())
import pynvml
h = pynvml.nvmlDeviceGetHandleByIndex(1)
binding = sorted((each.pid, each.usedGpuMemory) for each in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(h))
ours = [channel.read(Lane.SLOW, now()).processes for channel in channels[:2]]
tell(binding=binding, ours=[[(each.pid, each.memory, each.instance, each.sm) for each in some] for some in ours])
"""


@pytest.mark.parametrize("count", [3, 65])  # more than the binding makes room for at first
def test_processes_are_those_that_the_binding_lists(start: Start, count: int) -> None:
    told = start(LIST_PROCESSES, *(f"process 1 {1000 + number}" for number in range(count))).said()
    assert told["ours"][0] == []
    assert told["ours"][1] == [[*each, None, None] for each in told["binding"]]
    assert told["binding"] == [[1000 + number, 2**30] for number in range(count)]


def test_what_two_jobs_and_a_client_of_mps_have_of_a_gpu(start: Start) -> None:
    commands = ("process 1 100", "process 1 101", "client 1 102", "sm 1 60", "sm 1 30", "sm 1 5")
    told = start(LIST_PROCESSES, *commands).said()["ours"][1]
    assert told == [[pid, 2**30, None, sm] for pid, sm in ((100, 0.6), (101, 0.3), (102, 0.05))]


READ_INSTANCES = """
channel = source.open(now())[1]
def read():
    sample = channel.read(Lane.SLOW, now())
    gone = [[gap.metric.name, gap.reason.value] for gap in sample.gaps if "_mig_" in gap.metric.name]
    return dict(values={dict(r.labels)["gpu_instance"] + r.metric.name: r.value
                        for r in sample.readings if "_mig_" in r.metric.name}, gaps=sorted(gone))
channel.read(Lane.COLD, now())
read()
time.sleep(0.13)
tell(**read())
heard()
tell(**read())
time.sleep(0.13)
tell(**read())
source.close()
"""
_PERCENT = {"utilization": 1, "sm_active": 2, "tensor_active": 5, "dram_active": 10}
"""The library gives each GPM metric as its own id above what the control file says."""


def activity(told: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in told.items() if name.endswith("_ratio")}


def expected(**percents: float) -> dict[str, float]:
    return {
        f"{instance[1:]}coldplate_gpu_mig_{part}_ratio": pytest.approx((percent + offset) / 100)
        for instance, percent in percents.items()
        for part, offset in _PERCENT.items()
    }


def test_instances_have_the_librarys_activity_and_a_vanished_one_costs_only_itself(start: Start) -> None:
    instances = ["mig 1 1 40", "mig 1 2 0", "mig 1 5 70", "mig 1 7"]
    child = start(READ_INSTANCES, *instances)
    told = child.said()
    assert activity(told["values"]) == expected(i1=40, i2=0, i5=70)
    refused = [[f"coldplate_gpu_mig_{part}_ratio", "unsupported"] for part in sorted(_PERCENT)]
    assert told["gaps"] == refused
    vanished = child.ask(instances[0], *instances[2:])
    assert activity(vanished["values"]) == expected(i1=40, i5=70)
    assert sum(1 for name, reason in vanished["gaps"] if name.endswith("_ratio")) == 2 * len(_PERCENT)
    after = child.said()
    assert activity(after["values"]) == expected(i1=40, i5=70)
    assert after["gaps"] == refused
    assert "7coldplate_gpu_mig_memory_used_bytes" in after["values"]


def test_a_name_that_is_no_text_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board whose memory is damaged may give any bytes; its other facts are still of use."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", pynvml.convertStrBytes(lambda handle: b"NVIDIA \xff"))
    with pytest.raises(DriverError) as refused:
        PynvmlDriver().call("nvmlDeviceGetName", 0)
    assert refused.value.code == NOT_SUPPORTED


# The numbers of NVML's fields and metrics, against NVIDIA's own module.
CATALOGUE = Path(nvml_constants.__file__).parent
NUMBERS = {name: value for name, value in vars(nvml_constants).items() if name.startswith(("FI_DEV_", "GPM_METRIC_"))}


def test_every_number_is_the_one_that_nvidia_gives_the_name() -> None:
    """A field that is newer than the installed module is the one thing that it cannot judge."""
    assert len(NUMBERS) > 60
    known = {name: getattr(pynvml, f"NVML_{name}", None) for name in NUMBERS}
    newer = {name for name, value in NUMBERS.items() if name.startswith("FI_DEV_") and value >= pynvml.NVML_FI_MAX}
    assert {name: value for name, value in known.items() if value != NUMBERS[name] and name not in newer} == {}


def test_no_row_writes_a_number_where_there_is_a_name() -> None:
    bare = [
        f"{path.name}:{node.lineno}"
        for path in sorted(CATALOGUE.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Field", "Gpm")
        if any(isinstance(each, ast.Constant) for each in node.args[:1])
    ]
    assert bare == []
