"""`python -m tests.lab.hardware` from outside: what it says, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.backends.nvml.trace.trace import Trace
from tests.fakes.nvml.build import command

NEITHER_SERIAL_NOR_UUID = ("GPU-c01d97a7", "1650323", "692-2G520")
"""How the stand-in's identifiers begin."""


@pytest.fixture(scope="module")
def whole(make_bench: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """One run of every step that needs no load, over a library whose time stands still; and its trace."""
    path = tmp_path_factory.mktemp("trace") / "node7.jsonl"
    arguments = ("--samples", "8", "--skip", "load,cost", "--record", str(path), "--date", "2026-11-20")
    return make_bench().run(*arguments), path


def test_equal_values_are_the_same_everywhere(whole: tuple[Any, Path]) -> None:
    done, _ = whole
    assert done.code == 0, done.said
    for gpu in (0, 1):
        verdicts = {line["verdict"] for line in done.lines(gpu).values()}
        assert verdicts == {"same", "only coldplate", "absent on both"}
        assert done.check(f"GPU {gpu} agrees with nvidia-smi")["verdict"] == "ok"
    same = {name for name, line in done.lines().items() if line["verdict"] == "same"}
    assert {"UUID", "serial number", "PCI bus id", "model", "utilization", "memory used", "power, instant"} <= same
    assert {"clock, SM", "temperature margin", "throttled now: sw_power_cap", "throttled time: sw_power_cap"} <= same
    assert {"rows remapped, correctable", "row remap pending", "MIG mode", "PCIe width", "PCIe replays"} <= same


def test_calls_are_counted_timed_and_within_the_budget(whole: tuple[Any, Path]) -> None:
    done, _ = whole
    assert done.check("at most 7 device calls in a fast sample")["text"].startswith("7 at most, in 16 samples")
    assert done.check("coldplate counts its calls rightly")["verdict"] == "ok"
    (section,) = (each for each in done.report["sections"] if each["step"] == "calls")
    fields = [row for row in section["tables"][0]["rows"] if row["function"] == "nvmlDeviceGetFieldValues"]
    assert {row["lane"] for row in fields} == {"probe", "fast", "slow", "cold"}
    assert all(0 < int(row["p50"]) <= int(row["p99"]) <= int(row["max"]) for row in fields)


def test_it_registers_for_xids_and_provokes_none(whole: tuple[Any, Path]) -> None:
    done, _ = whole
    assert done.check("GPU 1 registers for XIDs")["verdict"] == "ok"
    assert "timeout" in done.check("a wait without an XID")["text"]


def test_nobody_is_distinguished_from_root(whole: tuple[Any, Path]) -> None:
    done, _ = whole
    if os.geteuid() == 0:
        assert done.check("GPM as nobody")["text"] == "works"
        assert "cannot be opened" in done.check("kernel log as nobody")["text"]
    else:
        assert done.check("as nobody")["verdict"] == "skipped"


def test_a_stand_in_is_never_taken_for_a_gpu(whole: tuple[Any, Path]) -> None:
    done, path = whole
    assert "NO REAL GPU" in done.said
    assert "NO REAL GPU" in done.markdown
    assert done.report["stand_in"] is True
    provenance = Trace(path).provenance
    assert provenance["stand_in"] is True
    assert "no real GPU" in provenance["GPUs"]
    assert provenance["date"] == "2026-11-20"


def test_nothing_written_holds_an_identifier(whole: tuple[Any, Path]) -> None:
    done, path = whole
    for text in (path.read_text(), done.markdown, json.dumps(done.report)):
        assert not [each for each in NEITHER_SERIAL_NOR_UUID if each in text]
        assert "GPU-00000000-0000-4000-8000-000000000001" in text
    assert path.stat().st_size < 200_000


def test_false_values_are_found_and_no_others(bench: Any) -> None:
    honest = int(bench.smi("clocks_event_reasons_counters.sw_power_cap"))
    wrong = {
        "power limit in force": ("enforced.power.limit", "650.00", "differs"),
        "serial number": ("serial", "1234567890123", "differs"),
        "power of the module": ("module.power.draw.instant", "812.00", "only nvidia-smi"),
        "throttled time: sw_power_cap": ("clocks_event_reasons_counters.sw_power_cap", str(honest * 1000),
                                         "differs (by a factor of 0.001: a unit?)"),
        "throttled now: sw_power_cap": ("clocks_event_reasons/clocks_event_reason_sw_power_cap", "Not Active",
                                        "differs"),
    }  # fmt: skip
    done = bench.run("--only", "compare", lies={field: lie for field, lie, _ in wrong.values()})
    assert done.code == 1, done.said
    assert "FAILED" in done.said
    for value, (_, _, verdict) in wrong.items():
        assert done.lines()[value]["verdict"] == verdict
        assert value in done.check("GPU 0 agrees with nvidia-smi")["text"]
    others = {line["verdict"] for name, line in done.lines().items() if name not in wrong}
    assert others == {"same", "only coldplate"}


def test_a_gpu_that_nvidia_smi_does_not_list_is_no_agreement(bench: Any) -> None:
    done = bench.run("--only", "compare", lies={"uuid": "GPU-somebody-else"})
    assert done.code == 1, done.said
    assert done.check("GPU 0 agrees with nvidia-smi")["verdict"] == "FAILED"


def test_a_field_that_this_nvidia_smi_refuses_is_left_out(bench: Any) -> None:
    done = bench.run("--only", "compare", lies={"refuse": ["power.draw.average", "memory.reserved"]})
    assert done.code == 0, done.said
    assert done.lines()["memory reserved"]["verdict"] == "only coldplate"
    assert done.lines()["memory used"]["verdict"] == "same"


def test_without_the_xml_document_the_rest_is_compared_and_the_hole_is_named(bench: Any) -> None:
    done = bench.run("--only", "compare", lies={"refuse": ["-q -x"]})
    assert done.code == 0, done.said
    assert "no XML today" in done.check("values of nvidia-smi -q -x")["text"]
    assert done.lines()["memory used"]["verdict"] == "same"
    assert done.lines()["row remap pending"]["verdict"] == "only coldplate"


@pytest.mark.parametrize(("said", "remedy"), [("unloaded", "modprobe"), ("count 0", "lspci")])
def test_without_a_gpu_nothing_is_checked_and_it_says_so_loudly(bench: Any, said: str, remedy: str) -> None:
    command(bench.control, said)
    done = bench.run()
    assert done.code == 77, done.said
    assert "NOTHING WAS CHECKED" in done.said
    assert remedy in done.said
    assert done.markdown == ""


@pytest.mark.parametrize(("said", "why"), [("mismatch", "versions"), ("segv", "a crash")])
def test_gpus_that_cannot_be_opened_are_a_failure_and_not_an_absence(bench: Any, said: str, why: str) -> None:
    command(bench.control, said)
    done = bench.run()
    assert done.code == 1, done.said
    assert "THE GPUs CANNOT BE OPENED" in done.said
    assert why in done.said


def test_without_a_library_nothing_is_checked(bench: Any, tmp_path: Path) -> None:
    bench.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    done = bench.run("--quick")
    assert done.code == 77, done.said
    assert "libnvidia-ml.so.1" in done.said


def test_when_every_check_is_skipped_nothing_was_checked(bench: Any) -> None:
    done = bench.run("--only", "compare,trace", "--nvidia-smi", "no-such-program")
    assert done.code == 77, done.said
    assert "every check was skipped" in done.said


def test_skipped_checks_are_named_and_strict_counts_them(bench: Any) -> None:
    done = bench.run("--only", "events,compare", "--nvidia-smi", "no-such-program")
    assert done.code == 0, done.said
    assert "NOT CHECKED: values against nvidia-smi (compare)" in done.said
    assert bench.run("--only", "events,compare", "--nvidia-smi", "no-such-program", "--strict").code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--only", "calls,bogus"), "'bogus' is no step"), (("--gpu", "7"), "the GPUs here are 0 to 1")],
)
def test_a_mistake_in_the_command_line_ends_with_2(bench: Any, arguments: tuple[str, ...], words: str) -> None:
    done = bench.run(*arguments)
    assert done.code == 2, done.said
    assert words in done.said


def test_a_gpu_that_hangs_ends_the_run_at_the_limit_with_what_was_found(bench: Any) -> None:
    process = bench.start("--only", "permissions,calls", "--limit", "1")
    while "] calls" not in process.stderr.readline():
        assert process.poll() is None
    command(bench.control, "count 2", "hang 1")
    done = bench.end(process)
    assert done.code == 1, done.said
    assert done.check("GPM as root" if os.geteuid() == 0 else "GPM as this user")["text"] == "works"
    assert "not done within 1 s" in done.check("calls")["text"]
