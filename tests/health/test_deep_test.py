"""`coldplate check --deep`: the program that measures, who watches over it, and the verdicts on what it measured.

No GPU is needed: the libraries are stand-ins, and PyTorch itself where it is installed, on a processor.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import cli
from agent.backends.protocol import GpuProcess
from agent.commands.check.deep import course, measuring
from agent.commands.check.deep.course import HANGING_SECONDS, OPENING_SECONDS, Course
from agent.commands.check.deep.cupy_devices import CupyDevices
from agent.commands.check.deep.deep_run import DeepOptions, deep_test, steps_of
from agent.commands.check.deep.idle_gpus import divided, near_cpus
from agent.commands.check.deep.torch_devices import TorchDevices
from agent.commands.check.judgement import Evidence, Judgement, learn
from agent.commands.check.wording_of_judgement import as_json
from agent.config.schema import ConfigError
from agent.health.deep_findings import FROM_GPU, MEMORY, PEER, PRODUCT, TO_GPU, DeepResult, DeepStep, deep_findings
from agent.health.deep_names import DEEP_NAMES
from agent.health.examination import view_of
from agent.health.expectation_files import load_expectations
from agent.health.expected_node import GENERIC
from agent.health.verdicts import HealthFinding, Verdict
from agent.lib.clock import clock
from agent.lib.user_error import UserError
from agent.model import Gpu
from tests.servers import unmeasured

GPUS = [Gpu(str(number), f"GPU-{number}") for number in range(8)]
H100 = load_expectations("dgx-h100")
WELL = {MEMORY: 2.9e12, PRODUCT: 700e12, TO_GPU: 55e9, FROM_GPU: 54e9, PEER: 390e9}


def measured(gpus: list[Gpu] = GPUS, **slow: float) -> dict[DeepStep, float]:
    """What a node that is well reaches; `slow` has the share that GPU 3 reaches, by the kind of step."""
    odd = {kind.replace("_", "-"): share for kind, share in slow.items()}
    return {
        step: WELL[step.kind] * (odd.get(step.kind, 1.0) if step.gpus[0].index == "3" else 1.0)
        for step in steps_of(gpus)
    }


def found(result: DeepResult, expected=H100) -> dict[str, HealthFinding]:
    return {each.name: each for each in deep_findings(result, expected)}


class TestVerdicts:
    def test_a_node_that_is_well_meets_every_expectation(self) -> None:
        findings = found(DeepResult("PyTorch 2.9", "bfloat16", measured(), seconds=21.4))
        assert tuple(findings) == DEEP_NAMES
        assert {each.verdict for each in findings.values()} == {Verdict.OK}
        assert findings["deep"].found == "GPUs 0-7 in 21 s with PyTorch 2.9, products of bfloat16"
        assert findings["deep-memory"].expected == "at least 1905 GB/s and none 10% below the median"

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            ("memory", "deep-memory"),
            ("to_gpu", "deep-host-copy"),
            ("from_gpu", "deep-host-copy"),
            ("peer", "deep-peer-copy"),
        ],
    )
    def test_below_the_lowest_is_critical(self, kind: str, name: str) -> None:
        finding = found(DeepResult("PyTorch", measured=measured(GPUS, **{kind: 0.5})))[name]
        assert finding.verdict is Verdict.CRITICAL
        assert "GPU 3" in finding.found
        assert "GPU 4" not in finding.found.replace("GPU 3 to GPU 4", "")

    @pytest.mark.parametrize(("share", "verdict"), [(0.89, Verdict.WARNING), (0.91, Verdict.OK)])
    def test_a_tenth_below_the_others_is_a_warning_without_any_figure(self, share: float, verdict: Verdict) -> None:
        finding = found(DeepResult("PyTorch", measured=measured(product=share)), GENERIC)["deep-product"]
        assert finding.verdict is verdict
        assert finding.found.startswith("matrix product, GPU 3: 623 TFLOP/s (median 700") == (share < 0.9)

    def test_of_two_gpus_it_cannot_be_told_which_is_wrong(self) -> None:
        two = [GPUS[2], GPUS[3]]
        finding = found(DeepResult("PyTorch", measured=measured(two, product=0.5)), GENERIC)["deep-product"]
        assert finding.verdict is Verdict.OK

    def test_pairs_are_compared_only_where_all_of_them_are_joined_alike(self) -> None:
        result = DeepResult("PyTorch", measured=measured(peer=0.88))
        assert found(result)["deep-peer-copy"].verdict is Verdict.WARNING
        assert found(result, GENERIC)["deep-peer-copy"].verdict is Verdict.OK

    def test_what_could_not_be_done_is_unknown_and_what_hangs_is_critical(self) -> None:
        assert found(DeepResult(unfinished="no PyTorch"))["deep"].verdict is Verdict.UNKNOWN
        assert found(DeepResult("PyTorch", broken="GPU 3: no end"))["deep"].verdict is Verdict.CRITICAL
        busy = DeepResult(passed_over={GPUS[1]: "process 7 computes on it"})
        assert {each.verdict for each in found(busy).values()} == {Verdict.SKIPPED}
        assert found(busy)["deep"].found == "GPU 1: process 7 computes on it"

    def test_figures_are_in_the_object_for_programs(self) -> None:
        result = DeepResult("PyTorch 2.9", "bfloat16", {DeepStep(PEER, (GPUS[0], GPUS[1])): 3e11}, seconds=9.96)
        shown = json.loads(as_json(Judgement([], H100, deep=result)))["deep"]
        assert shown == {"library": "PyTorch 2.9", "number": "bfloat16", "seconds": 10.0,
                         "measured": [{"kind": "peer", "gpus": ["GPU-0", "GPU-1"], "per_second": 3e11}]}  # fmt: skip
        assert "deep" not in json.loads(as_json(Judgement([], H100)))

    def test_a_node_teaches_what_it_reaches_less_a_tenth_if_all_of_it_was_measured(self, look) -> None:
        snapshot = look("idle")
        node = learn(Evidence(snapshot, "synthetic", deep=DeepResult("PyTorch", measured=measured())))
        assert (node.gpu_memory_gigabytes_per_second, node.gpu_product_teraflops) == (2610.0, 630.0)
        assert (node.host_copy_gigabytes_per_second, node.peer_copy_gigabytes_per_second) == (48.6, 351.0)
        with pytest.raises(ConfigError, match="process 7"):
            learn(Evidence(snapshot, "synthetic", deep=DeepResult(passed_over={GPUS[1]: "process 7 computes on it"})))


class TestGpus:
    def test_what_is_in_use_is_left_alone(self, look) -> None:
        snapshot = look("idle")
        view = view_of(snapshot, "synthetic")
        idle, others = divided(snapshot, {view.gpus[5]: [GpuProcess(4711)]}, "synthetic", force=False)
        assert [gpu.index for gpu in idle] == [each.index for each in view.gpus if each.index != "5"]
        assert others == {view.gpus[5]: "process 4711 computes on it"}
        assert divided(snapshot, {view.gpus[5]: [GpuProcess(4711)]}, "synthetic", force=True) == (view.gpus, {})

    def test_memory_in_use_tells_of_a_job_whose_processes_cannot_be_seen(self, look) -> None:
        idle, others = divided(look("healthy-training"), {}, "synthetic", force=False)
        assert idle == []
        assert all(why.endswith("GiB of its memory are in use") for why in others.values())

    def test_each_is_copied_from_by_few_others_however_many_there_are(self) -> None:
        for count in (1, 2, 3, 4, 8, 72):
            gpus = [Gpu(str(number), f"GPU-{number}") for number in range(count)]
            pairs = [step.gpus for step in steps_of(gpus) if step.kind == PEER]
            assert len(set(pairs)) == len(pairs) <= 2 * count
            assert (
                {source for source, _ in pairs}
                == {target for _, target in pairs}
                == (set(gpus) if count > 1 else set())
            )
            assert all(source != target for source, target in pairs)

    def test_the_host_is_measured_from_the_gpus_own_side(self, look, tmp_path: Path) -> None:
        view = view_of(look("idle"), "synthetic")
        folder = tmp_path / "bus/pci/devices" / view.slots()[view.gpus[1]]
        folder.mkdir(parents=True)
        (folder / "local_cpulist").write_text("48-95,144-191\n")
        assert near_cpus(view, view.gpus, tmp_path) == {view.gpus[1]: "48-95,144-191"}
        assert list(measuring.listed("0-2,5")) == [0, 1, 2, 5]


STEPS = steps_of(GPUS[:2])


class TestCourse:
    def follow(self, *lines: str | dict[str, Any], gpus: int = 2) -> Course:
        made = Course(STEPS, gpus, 100.0)
        for line in lines:
            made.take(line.encode() if isinstance(line, str) else json.dumps(line).encode(), 101.0)
        return made

    def test_values_are_taken_by_their_step_and_nonsense_is_not(self) -> None:
        made = self.follow(
            {"said": "loaded", "text": "PyTorch"}, {"said": "ready", "value": 2, "text": "bfloat16"},
            {"said": "value", "step": 0, "value": 5.0}, "Segmentation fault", "[]", {"said": 1},
            {"said": "value", "step": 99, "value": 1.0}, {"said": "value", "step": 1, "value": -3.0}, {"said": "done"},
        )  # fmt: skip
        assert (made.library, made.number, made.values, made.stage) == ("PyTorch", "bfloat16", {0: 5.0}, "done")

    @pytest.mark.parametrize(
        ("said", "patience"), [({"said": "loaded"}, OPENING_SECONDS), ({"said": "begin", "step": 1}, HANGING_SECONDS)]
    )
    def test_a_driver_or_a_step_that_does_not_return_hangs(self, said: dict[str, Any], patience: float) -> None:
        made = self.follow(said)
        assert not made.hangs(101.0 + patience)
        assert made.hangs(101.1 + patience)

    def test_the_loading_of_a_library_from_a_cold_disk_does_not_hang(self) -> None:
        assert not self.follow().hangs(1_000.0)

    def test_only_errors_that_a_device_causes_condemn_it(self) -> None:
        ecc = {"said": "broken", "step": 1, "text": "RuntimeError: CUDA error: uncorrectable ECC error encountered"}
        assert self.follow(ecc).broken == f"{STEPS[1]}: {ecc['text']}"
        other = self.follow({"said": "broken", "step": 1, "text": "RuntimeError: CUDA error: no kernel image"})
        assert (other.broken, other.why) == ("", f"{STEPS[1]}: RuntimeError: CUDA error: no kernel image")
        full = self.follow({"said": "failed", "step": 0, "text": "OutOfMemoryError: hardware is full"})
        assert (full.broken, full.stage) == ("", "failed")

    def test_it_is_an_end_if_it_sees_other_gpus_than_were_asked_for(self) -> None:
        made = self.follow({"said": "loaded", "text": "PyTorch"}, {"said": "ready", "value": 1}, gpus=2)
        assert (made.stage, made.why) == ("broken", "PyTorch sees 1 of the 2 GPUs")


class FakeDevices:
    """Devices whose every act takes a second of a clock of their own; `errors` by the kind of step."""

    about, number = "Fake 1", "float8"

    def __init__(self, errors: dict[str, Exception] | None = None, slow: tuple[int, ...] = ()) -> None:
        self.errors = errors or {}
        self.slow = slow
        self.runs: list[int] = []
        self.released = 0

    def count(self) -> int:
        return 2

    def _run(self, kind: str) -> measuring.Run:
        if kind in self.errors:
            raise self.errors[kind]

        def run(times: int) -> float:
            self.runs.append(times)
            return float(times) * (2.0 if len(self.runs) in self.slow else 1.0)

        return run

    def memory(self, gpu: int, size: int) -> measuring.Run:
        return self._run("memory")

    def product(self, gpu: int, edge: int) -> measuring.Run:
        return self._run("product")

    def host(self, gpu: int, size: int, to_gpu: bool) -> measuring.Run:
        return self._run("to-gpu" if to_gpu else "from-gpu")

    def peer(self, source: int, target: int, size: int) -> measuring.Run:
        return self._run("peer")

    def release(self) -> None:
        self.released += 1


PLAN: dict[str, Any] = {
    "each": 30.0, "cpus": ["", ""], "sizes": {"memory": 100, "product": 10, "copy": 50},
    "steps": [["memory", 0], ["product", 1], ["to-gpu", 0], ["from-gpu", 0], ["peer", 0, 1]],
}  # fmt: skip


def said(devices: measuring.MeasuredDevices, plan: dict[str, Any] = PLAN) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    measuring.measure(devices, plan, lambda **words: lines.append(words))
    return lines


class TestMeasuring:
    def test_every_step_is_announced_before_it_is_measured(self) -> None:
        lines = said(FakeDevices())
        assert [line["said"] for line in lines] == ["begin", "value"] * 5 + ["done"]
        assert [line["value"] for line in lines if "value" in line] == [200.0, 2000.0, 50.0, 50.0, 50.0]

    def test_the_fastest_round_counts_and_all_take_the_time_that_is_given(self) -> None:
        devices = FakeDevices(slow=(3, 5))
        assert measuring.fastest(devices.memory(0, 1), 30.0) == 1.0
        assert devices.runs == [1, 2, 10, 10, 10]

    def test_without_memory_or_a_way_to_a_peer_the_next_step_follows(self) -> None:
        lines = said(FakeDevices({"product": RuntimeError("CUDA out of memory."), "peer": LookupError("no way")}))
        assert [line["step"] for line in lines if line["said"] == "failed"] == [1, 4]
        assert lines[-1] == {"said": "done"}

    def test_after_an_error_of_a_device_nothing_more_is_tried(self) -> None:
        lines = said(FakeDevices({"product": RuntimeError("CUDA error: unspecified launch failure")}))
        assert lines[-1] == {
            "said": "broken",
            "step": 1,
            "text": "RuntimeError: CUDA error: unspecified launch failure",
        }

    def test_the_first_library_that_loads_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "none.py").write_text("import a_library_that_nobody_has\n")
        (tmp_path / "one.py").write_text("def open_devices(): return 'devices'\n")
        names = [str(tmp_path / name) for name in ("none.py", "one.py")]
        assert measuring.open_devices(names) == ("devices", "")
        assert measuring.open_devices(names[:1]) == (
            None,
            "ModuleNotFoundError: No module named 'a_library_that_nobody_has'",
        )

    def test_pytorch_takes_every_call_on_a_processor(self) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
        lines = said(TorchDevices(torch, "cpu"), {**PLAN, "each": 0.003})
        assert [line["said"] for line in lines] == ["begin", "value"] * 5 + ["done"]
        assert all(line["value"] > 0 for line in lines if line["said"] == "value")

    def test_cupy_is_asked_for_copies_in_the_right_direction(self) -> None:
        cupy = FakeCupy()
        devices = CupyDevices(cupy)
        assert said(devices, PLAN)[-1] == {"said": "done"}
        assert dict.fromkeys(cupy.calls) == dict.fromkeys(
            [("copy", 3), "matmul", ("copy", 1), ("copy", 2), ("peer access", 1), ("peer copy", 1, 0)]
        )
        cupy.reachable = False
        assert [line["said"] for line in said(devices, {**PLAN, "steps": [["peer", 0, 1]]})] == [
            "begin",
            "failed",
            "done",
        ]


class FakeCupy:
    """As much of CuPy as is asked for: it notes what was called, and every call takes no time."""

    __version__ = "14.2"
    float16 = float32 = uint8 = None

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.reachable = True
        note = self.calls.append
        pool = SimpleNamespace(free_all_blocks=lambda: None)
        self.get_default_memory_pool = self.get_default_pinned_memory_pool = lambda: pool
        self.random = SimpleNamespace(standard_normal=lambda *_, **__: self)
        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            getDeviceCount=lambda: 2,
            memcpyAsync=lambda to, of, size, kind, stream: note(("copy", kind)),
            memcpyPeerAsync=lambda to, device, of, other, size, stream: note(("peer copy", device, other)),
            deviceCanAccessPeer=lambda one, other: self.reachable,
            deviceEnablePeerAccess=lambda other: note(("peer access", other)),
        )
        self.cuda = SimpleNamespace(
            runtime=runtime, Device=FakeDevice, Stream=lambda **_: SimpleNamespace(ptr=7),
            alloc_pinned_memory=lambda size: SimpleNamespace(ptr=9),
        )  # fmt: skip
        self.data = SimpleNamespace(ptr=8)

    def astype(self, kind: object) -> FakeCupy:
        return self

    def empty_like(self, array: object) -> FakeCupy:
        return self

    def full(self, *_: object, **__: object) -> FakeCupy:
        return self

    def matmul(self, *_: object, **__: object) -> None:
        self.calls.append("matmul")


class FakeDevice:
    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


READY = '{"said":"loaded","text":"Fake 1"}\\n{"said":"ready","value":2,"text":"float8"}\\n'


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A program in the place of a Python that has a library; its body is of the shell's."""
    for name in [name for name in os.environ if name not in unmeasured()]:
        monkeypatch.delenv(name)

    def make(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\nread order\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def outcome(python: str, seconds: float = 30.0) -> DeepResult:
    return deep_test(GPUS[:2], {}, DeepOptions(seconds, python), lambda: clock().mono)


class TestWatching:
    def test_what_was_measured_is_what_the_program_said(self, stand_in, tmp_path: Path) -> None:
        values = "".join(
            f'{{"said":"begin","step":{n}}}\\n{{"said":"value","step":{n},"value":{n + 1}}}\\n' for n in range(10)
        )
        end = '{"said":"done"}\\n'
        result = outcome(stand_in(f"echo $CUDA_VISIBLE_DEVICES $1 >{tmp_path}/told\nprintf '{READY}{values}{end}'"))
        assert (result.library, result.number, result.unfinished, result.broken) == ("Fake 1", "float8", "", "")
        assert result.measured == {step: number + 1.0 for number, step in enumerate(STEPS)}
        assert (tmp_path / "told").read_text() == f"GPU-0,GPU-1 {Path(measuring.__file__)}\n"

    def test_a_step_that_hangs_is_a_finding_and_is_ended_with_its_children(
        self, stand_in, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(course, "HANGING_SECONDS", 0.3)
        begin = '{"said":"begin","step":3}\\n'
        result = outcome(stand_in(f"sleep 600 & echo $! $$ >{tmp_path}/pids\nprintf '{READY}{begin}'\nwait"))
        assert result.broken.startswith(f"{STEPS[3]}: no end of it after ")
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            assert gone(pid)

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (
                'printf \'{"said":"absent","text":"no library"}\\n\'',
                "neither PyTorch nor CuPy can be used: .*: no library",
            ),
            (f"printf '{READY}'", "what measures ended by itself during the opening of the driver by CUDA"),
            ("exit 1", "what measures ended by itself during the loading of PyTorch or CuPy"),
        ],
    )
    def test_what_cannot_measure_is_not_the_gpus_fault(self, stand_in, body: str, why: str) -> None:
        result = outcome(stand_in(body))
        assert result.broken == ""
        assert re.fullmatch(why, result.unfinished)

    def test_the_time_is_kept(self, stand_in) -> None:
        result = outcome(stand_in("exec sleep 600"), 1.0)
        assert result.unfinished == (
            "the time is up during the loading of PyTorch or CuPy: 10 of 10 steps were not measured"
        )

    def test_a_python_that_is_not_there_is_the_users_mistake(self) -> None:
        with pytest.raises(UserError, match="--deep-python: /nowhere/python: No such file"):
            outcome("/nowhere/python")

    def test_the_program_runs_in_a_python_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The real one, in a real process, with a library of ours: what it prints does not come between the lines."""
        (tmp_path / "library.py").write_text(
            "class D:\n about, number = 'L 1', 'int'\n def count(self): print('chatter'); return 2\n"
            " def release(self): pass\n"
            " memory = product = host = lambda self, *_: float\n"
            " def peer(self, *_): raise LookupError('no way')\n"
            "def open_devices(): return D()\n"
        )
        for name in [name for name in os.environ if name not in unmeasured()]:
            monkeypatch.delenv(name)
        monkeypatch.setattr("agent.commands.check.deep.deep_run.LIBRARIES", (str(tmp_path / "library.py"),))
        result = outcome(sys.executable)
        assert (result.library, result.broken) == ("L 1", "")
        assert {step.kind for step in result.measured} == {MEMORY, PRODUCT, TO_GPU, FROM_GPU}
        assert result.unfinished == f"{STEPS[9]}: LookupError: no way"


def gone(pid: int) -> bool:
    """Whether a process has ended, though perhaps nobody has taken its status; waits for the signal to arrive."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        signal.sigtimedwait([], 0.01)
    return False


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--force"], "--force: needs --deep"),
        (["--deep-python", "python3"], "--deep-python: needs --deep"),
        (["--deep", "--scenario", "idle"], "--deep: measures real GPUs"),
        (["--deep", "--deep-seconds", "0.5", "--backend", "nvml"], "--deep-seconds: 0.5 is not from 1s to 1h"),
    ],
)
def test_mistakes_are_unknown(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *arguments]) == 3
    assert complaint in capsys.readouterr().err
